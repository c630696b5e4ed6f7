"""`make bench-demo`: the demo from an empty state for each seed, with wall time and peak memory of all its processes.

Prints a Markdown table for BENCHMARKS.md. Owns the measurement; the numbers of a cycle come from its record.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

SAMPLE_S = 3.0
COMMAND = [sys.executable, "-m", "flows.cli"]


@dataclass(frozen=True, slots=True)
class Measurement:
    seed: int
    wall_s: float
    peak: dict[str, int]
    """Bytes by command at the moment of the highest sum, over all processes that carry the run's EVERLOOP_HOME: proportional set
    size, so shared pages count once."""
    record: dict[str, Any]
    before: float
    after: float
    """Production failure rate, in [0, 1]."""


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, default=None, help="folder for the states of the runs; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        rows = [measure(seed, root / f"seed-{seed}") for seed in arguments.seeds]
    sys.stdout.write(as_table(rows))
    return 0


def measure(seed: int, home: Path) -> Measurement:
    """One demo run in its own state folder. Raises CalledProcessError when the demo fails."""
    environment = {**os.environ, "EVERLOOP_HOME": str(home.absolute())}
    started = time.monotonic()
    try:
        demo = subprocess.Popen([*COMMAND, "demo", "--seed", str(seed)], env=environment)
        peak: dict[str, int] = {}
        while demo.poll() is None:
            peak = max(peak, memory_of(str(home.absolute())), key=lambda held: sum(held.values()))
            time.sleep(SAMPLE_S)
        wall_s = time.monotonic() - started
        if demo.returncode != 0:
            raise subprocess.CalledProcessError(demo.returncode, demo.args)
        status = subprocess.run([*COMMAND, "status", "--json"], env=environment, capture_output=True, check=True)
    finally:
        subprocess.run([*COMMAND, "down"], env=environment, check=False)
    waves = {
        name: orjson.loads((home / "demo" / f"{name}-{seed}.json").read_bytes()) for name in ("training", "holdout", "after")
    }
    before = [waves["training"], waves["holdout"]]
    return Measurement(
        seed,
        wall_s,
        peak,
        orjson.loads(status.stdout)["cycle"],
        sum(w["num_failed"] for w in before) / sum(w["num_requests"] for w in before),
        waves["after"]["num_failed"] / waves["after"]["num_requests"],
    )


def memory_of(home: str) -> dict[str, int]:
    """Bytes by command of every process started with this EVERLOOP_HOME, and of their children."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get("EVERLOOP_HOME") == home:
                found |= {p.pid: p for p in [process, *process.children(recursive=True)]}
        except psutil.Error:
            continue
    held: dict[str, int] = {}
    for process in found.values():
        try:
            name = name_of(process.cmdline())
            held[name] = held.get(name, 0) + process.memory_full_info().pss
        except psutil.Error:
            continue
    return held


def name_of(command: list[str]) -> str:
    """The module that `python -m` runs, else the program's name (vLLM's processes rename themselves)."""
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return Path(command[0].split()[0]).name if command and command[0] else "unknown"


def as_table(rows: list[Measurement]) -> str:
    """The table, with the machine named."""
    lines = [
        f"Machine: {platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, Python {platform.python_version()}.",
        "",
        "| seed | wall | peak memory | champion | after SFT | candidate | gain (95%) | production failures | decision | outside stages |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        evaluation, wall = row.record["evaluation"], row.record["wall_s"]
        rates = evaluation["pass_rates"]
        gain = evaluation["holdout/champion-candidate"]
        low, high = gain["interval_points"]
        lines.append(
            f"| {row.seed} | {row.wall_s:.0f} s | {sum(row.peak.values()) / 2**30:.1f} GiB | {rates['champion/holdout']:.1%} "
            f"| {rates['warm_start/holdout']:.1%} | {rates['candidate/holdout']:.1%} | {gain['gain_points']:+.1f} ({low:+.1f} to {high:+.1f}) "
            f"| {row.before:.0%} -> {row.after:.0%} | {row.record['outcome']} | {wall['outside_stages'] / wall['total']:.1%} |"
        )
    lines += ["", "| at the peak | " + " | ".join(f"seed {row.seed}" for row in rows) + " |", "| --- |" + " --- |" * len(rows)]
    for name in sorted({name for row in rows for name in row.peak}):
        lines.append(f"| {name} | " + " | ".join(f"{row.peak.get(name, 0) / 2**30:.2f} GiB" for row in rows) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

"""Control groups (v1 and v2) around one sandbox run: memory and process limits for a whole tree.

Owns finding a writable place, making a group, reading whether the kernel killed for memory, and removing it. Where nothing is
writable it says so; what to do then is the sandbox's choice.
"""

import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT_FILES = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max", "pids.max")}
"""Controller to its limit file under v2 and v1."""


@dataclass(frozen=True, slots=True)
class Places:
    """Folders in which groups can be made; None where the controller is out of reach."""

    memory: Path | None
    pids: Path | None


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one run: one folder per controller (the same folder twice under v2)."""

    memory: Path | None
    pids: Path | None

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(f for f in (self.memory, self.pids) if f))

    def oom_kills(self) -> int:
        """How many processes of the tree the kernel killed because the memory limit was reached."""
        if self.memory is None:
            return 0
        events = self.memory / "memory.events"
        text = (events if events.exists() else self.memory / "memory.oom_control").read_text()
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)

    def remove(self, patience_s: float = 5.0) -> bool:
        """Remove the group; False when processes were still in it after `patience_s`."""
        deadline = time.monotonic() + patience_s
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        return False
                    time.sleep(0.002)
        return True


def find_places() -> Places:
    """Look for a writable place per controller by making a group, joining it with a short-lived process and removing it."""
    return Places(_find("memory"), _find("pids"))


def make_group(places: Places, *, memory_bytes: int, num_processes: int) -> Group:
    """Make the group of one run. Raises OSError when a place that was found no longer takes one."""
    name = f"everloop-{uuid.uuid4().hex[:12]}"
    memory = places.memory / name if places.memory else None
    pids = places.pids / name if places.pids else None
    if memory:
        memory.mkdir()
        _limit_memory(memory, memory_bytes)
    if pids:
        pids.mkdir(exist_ok=True)
        (pids / "pids.max").write_text(str(num_processes))
    return Group(memory, pids)


def _limit_memory(folder: Path, size_bytes: int) -> None:
    v2_file, v1_file = LIMIT_FILES["memory"]
    if (folder / v2_file).exists():
        (folder / v2_file).write_text(str(size_bytes))
        if (folder / "memory.swap.max").exists():
            (folder / "memory.swap.max").write_text("0")
        return
    (folder / v1_file).write_text(str(size_bytes))
    if (folder / "memory.memsw.limit_in_bytes").exists():
        (folder / "memory.memsw.limit_in_bytes").write_text(str(size_bytes))


def _find(controller: str) -> Path | None:
    return next((place for place in _candidates(controller) if _works(place, controller)), None)


def _candidates(controller: str) -> Iterator[Path]:
    """The process's own group, then those above it, for each hierarchy that has the controller."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        own[names] = path
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(","):
            path = next((p for names, p in own.items() if controller in names.split(",")), "/")
        elif kind == "cgroup2":
            path = own.get("", "/")
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        yield from (Path(mount, *parts[:depth]) for depth in range(len(parts), -1, -1))


def _works(place: Path, controller: str) -> bool:
    folder = place / f"everloop-probe-{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        if not any((folder / name).exists() for name in LIMIT_FILES[controller]):
            return False
        join = ["sh", "-c", 'echo $$ > "$1"', "sh", str(folder / "cgroup.procs")]
        return subprocess.run(join, capture_output=True, check=False).returncode == 0
    finally:
        for _ in range(100):
            with suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                break
            time.sleep(0.002)

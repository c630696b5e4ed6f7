"""Checks of this machine before anything runs: each says what it saw and, when it is bad, how to fix it.

Owns `everloop doctor`. Refuses to repair anything; writes one small object to the lake (`health/probe`), which stays.
"""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from infra.inference.replicas import list_replicas
from infra.lake import open_lake
from infra.sandbox.bubblewrap import probe
from infra.settings import Settings
from infra.stack.environment import QUIET, serving_python
from infra.stack.lifecycle import observe_stack
from infra.stack.parts import server_parts
from infra.stack.processes import is_alive, port_is_free, port_owner
from pipelines.errors import EverloopError

DISK_GIB = 5.0
"""Free disk one machine needs: a cycle keeps the base model, checkpoints and candidates, about 0.3 GB each."""
MEMORY_GIB = 6.0
"""Memory that must be available: servers 1 GB, vLLM 2-3 GB, the trainer 2-3 GB."""
LAKE_PROBE = "health/probe"
_SETUP = "run `make setup`"
_PROBE_TIMEOUT_S = 300


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Works, with something to know."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the doctor's report."""

    name: str
    outcome: Outcome
    detail: str
    """What was seen."""
    fix: str = ""
    """What to do about it; empty when nothing needs doing."""

    @property
    def ok(self) -> bool:
        return self.outcome is not Outcome.FAILED


def diagnose(settings: Settings, *, report: Callable[[CheckResult], None] = lambda _: None) -> list[CheckResult]:
    """Run every check, the quick ones first; `report` is called with each result as it comes."""
    results = []
    for check in (check_python, check_disk, check_memory, check_ports, check_lake, check_sandbox, check_torch, check_serving):
        results.append(check(settings))
        report(results[-1])
    return results


def check_python(_settings: Settings) -> CheckResult:
    """Python 3.11, the version the locks are made for."""
    seen = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} at {sys.executable}"
    if sys.version_info[:2] == (3, 11):
        return CheckResult("python", Outcome.OK, seen)
    return CheckResult("python", Outcome.FAILED, seen, "install Python 3.11 and run `make setup` again")


def check_torch(_settings: Settings) -> CheckResult:
    """torch of the control environment, really imported."""
    return _import_check("torch", sys.executable, "import torch; print(torch.__version__, f'{torch.get_num_threads()} threads')")


def check_serving(settings: Settings) -> CheckResult:
    """vLLM of the serving environment, really imported by its own interpreter."""
    python = serving_python(settings)
    if not python.is_file():
        fix = f"{_SETUP}, or set EVERLOOP_SERVING_PYTHON to the interpreter of an environment with vLLM"
        return CheckResult("vllm", Outcome.FAILED, f"no interpreter at {python}", fix)
    return _import_check("vllm", str(python), "import vllm; print(vllm.__version__)")


def check_sandbox(settings: Settings) -> CheckResult:
    """bubblewrap, by really isolating a small command."""
    try:
        sandbox = probe(settings.root / "cache" / "sandbox")
    except EverloopError as error:
        return CheckResult("bubblewrap", Outcome.FAILED, str(error), "make that change, then run `everloop doctor` again")
    return CheckResult("bubblewrap", Outcome.OK, f"isolates a command, with its overlay in {sandbox.overlay}")


def check_disk(settings: Settings, *, needed_gib: float = DISK_GIB) -> CheckResult:
    """Free space where the state lives."""
    folder = next(path for path in (settings.root, *settings.root.parents) if path.exists())
    free_gib = shutil.disk_usage(folder).free / 2**30
    detail = f"{free_gib:.1f} GiB free at {folder}"
    if not os.access(folder, os.W_OK):
        return CheckResult("disk", Outcome.FAILED, f"{folder} is not writable", "set EVERLOOP_HOME to a folder you can write")
    if free_gib >= needed_gib:
        return CheckResult("disk", Outcome.OK, detail)
    return CheckResult("disk", Outcome.FAILED, detail, f"free {needed_gib:.0f} GiB, or put EVERLOOP_HOME on a larger disk")


def check_memory(_settings: Settings) -> CheckResult:
    """Memory available to new processes; short memory is a warning, because it may be the stack that uses it."""
    memory = psutil.virtual_memory()
    detail = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available"
    if memory.available / 2**30 >= MEMORY_GIB:
        return CheckResult("memory", Outcome.OK, detail)
    return CheckResult("memory", Outcome.WARNING, detail, f"a cycle needs about {MEMORY_GIB:.0f} GiB: end other programs")


def check_ports(settings: Settings) -> CheckResult:
    """Ports of the servers and of the declared replicas: free, or ours."""
    state = observe_stack(settings)
    ours = state.parts if state is not None and is_alive(state.supervisor) else {}
    wanted = [(part.name, part.port, part.port_setting) for part in server_parts(settings) if part.port is not None]
    wanted += [(spec.part_name, spec.port, "EVERLOOP_SERVING_PORT") for spec in list_replicas(settings)]
    taken = [
        (f"{port} ({name}) is used by {port_owner(port)}", setting)
        for name, port, setting in wanted
        if not port_is_free(settings.host, port) and not (name in ours and ours[name].process is not None)
    ]
    if not taken:
        listing = ", ".join(f"{port} {name}" for name, port, _ in wanted)
        return CheckResult("ports", Outcome.OK, f"{listing}: {'in use by the stack' if ours else 'free'}")
    fix = f"end that process, or set {' and '.join(sorted({setting for _, setting in taken}))}"
    return CheckResult("ports", Outcome.FAILED, "; ".join(text for text, _ in taken), fix)


def check_lake(settings: Settings) -> CheckResult:
    """The lake, by a conditional write that is read back."""
    content = secrets.token_bytes(16)
    try:
        lake = open_lake(settings)
        before = lake.get(LAKE_PROBE)
        written = (
            lake.put_if_absent(LAKE_PROBE, content)
            if before is None
            else lake.replace(LAKE_PROBE, content, expected_etag=before.etag)
        )
        read = lake.get_bytes(LAKE_PROBE)
    except EverloopError as error:
        fix = "check EVERLOOP_LAKE, EVERLOOP_S3_ENDPOINT_URL and the AWS variables"
        return CheckResult("lake", Outcome.FAILED, str(error), fix)
    if written and read == content:
        return CheckResult("lake", Outcome.OK, f"{lake.root}: written conditionally and read back")
    fix = "use a store that honours If-None-Match and If-Match, or run the doctor once at a time"
    return CheckResult("lake", Outcome.FAILED, f"{lake.root}: what was read back is not what was written", fix)


def _import_check(name: str, python: str, code: str) -> CheckResult:
    # In a process of its own: a broken native library must not take the doctor down with it.
    environment = {**os.environ, **QUIET, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, env=environment, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return CheckResult(name, Outcome.FAILED, f"no import within {_PROBE_TIMEOUT_S} s", "free the processor and try again")
    if done.returncode == 0:
        return CheckResult(name, Outcome.OK, _last_line(done.stdout))
    return CheckResult(name, Outcome.FAILED, _last_line(done.stderr), f"{_SETUP}; environment {Path(python).parent.parent}")


def _last_line(text: str) -> str:
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(no output)"

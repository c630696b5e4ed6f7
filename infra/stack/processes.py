"""Operating-system processes of the stack: start one that cannot outlive us, find all that belong to us, end exactly those.

A process belongs to the stack when it carries the stack's id in its environment, or is in the process group of a recorded
part. Pids are compared together with creation times, so a recycled number is never signalled.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra.stack.state import ProcessId

STACK_ID = "EVERLOOP_STACK_ID"

_CLOCK_TOLERANCE_S = 2.0
"""psutil derives creation times from a boot time that moves by about a second when the clock is set."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal this process gets when its parent dies."""
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def spawn(command: Sequence[str], environment: Mapping[str, str], *, log: Path, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a child in its own session, output appended to `log`; on Linux it gets SIGTERM when this process dies."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_follow_parent(os.getpid()),
        )


def identify(pid: int) -> ProcessId | None:
    """The process with this pid, or None when it has ended (a zombie has ended)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid=pid, started_s=process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(process: ProcessId) -> bool:
    """Whether this very process still runs; False when its number now belongs to another."""
    current = identify(process.pid)
    return current is not None and _same_start(current.started_s, process.started_s)


def find_processes(stack_id: str, leaders: Iterable[ProcessId]) -> list[psutil.Process]:
    """Every live process of a stack except the calling one: by the id in its environment, or by a recorded group."""
    groups = {leader.pid: leader.started_s for leader in leaders if not _is_recycled(leader)}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and _belongs(process, stack_id, groups):
                found.append(process)
    return found


def end_processes(stack_id: str, leaders: Sequence[ProcessId], *, grace_s: float) -> int:
    """Terminate what `find_processes` finds, kill what is left after the grace, and look again; returns how many were found."""
    total = 0
    while found := find_processes(stack_id, leaders):
        total += len(found)
        _signal(found, signal.SIGTERM)
        _, stubborn = psutil.wait_procs(found, timeout=grace_s)
        _signal(stubborn, signal.SIGKILL)
        psutil.wait_procs(stubborn, timeout=grace_s)
    return total


def signal_group(leader: ProcessId, number: signal.Signals) -> None:
    """Signal a part's process group, unless its number now belongs to another process."""
    if not _is_recycled(leader):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)


def group_is_alive(leader: ProcessId) -> bool:
    """Whether any process of the group still runs (zombies excepted)."""
    return bool(find_processes("", [leader]))


def reap(pid: int) -> None:
    """Collect the exit status of an ended child, if it was one of ours."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now (sockets of ended connections do not count)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def port_owner(port: int) -> str:
    """`pid 123 (name)` of the process listening on a port, or `another process` when the system does not say."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections(kind="inet"):
            address, pid = connection.laddr, connection.pid
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and pid is not None:
                return f"pid {pid} ({psutil.Process(pid).name()})"
    return "another process"


def log_tail(log: Path, *, num_lines: int = 20) -> str:
    """The last lines of a log, indented; says so when there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()[-num_lines:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  | {line}" for line in lines) or "  | (no output)"


def _follow_parent(parent: int) -> Callable[[], None]:
    def set_death_signal() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return set_death_signal


def _belongs(process: psutil.Process, stack_id: str, groups: Mapping[int, float]) -> bool:
    group = os.getpgid(process.pid)
    if group in groups and process.create_time() >= groups[group] - _CLOCK_TOLERANCE_S:
        return True
    return bool(stack_id) and process.environ().get(STACK_ID) == stack_id


def _is_recycled(leader: ProcessId) -> bool:
    current = identify(leader.pid)
    return current is not None and not _same_start(current.started_s, leader.started_s)


def _same_start(a_s: float, b_s: float) -> bool:
    return abs(a_s - b_s) <= _CLOCK_TOLERANCE_S


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)

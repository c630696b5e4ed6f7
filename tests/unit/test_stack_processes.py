"""Which processes belong to the stack, and that exactly those are ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.stack.processes import (
    STACK_ID,
    end_processes,
    find_processes,
    group_is_alive,
    identify,
    is_alive,
    log_tail,
    port_is_free,
    port_owner,
    signal_group,
    spawn,
)
from infra.stack.state import ProcessId

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
PARENT_OF_STUBBORN_CHILD = [
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time\n"
    "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)'\n"
    "child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)",
]

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process the way the supervisor does; whatever is left at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start_process(command: list[str], stack_id: str = "") -> subprocess.Popen[bytes]:
        environment = {**os.environ, STACK_ID: stack_id}
        started.append(spawn(command, environment, log=tmp_path / "process.log", cwd=tmp_path))
        return started[-1]

    yield start_process
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def known(pid: int) -> ProcessId:
    process = identify(pid)
    assert process is not None
    return process


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_process_is_told_from_a_later_one_with_the_same_number(start: Start) -> None:
    process = known(start(SLEEP).pid)
    assert is_alive(process)
    assert not is_alive(ProcessId(pid=process.pid, started_s=process.started_s - 60))


def test_an_ended_child_that_nobody_collected_counts_as_dead(start: Start) -> None:
    process = start(SLEEP)
    identity = known(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(identity))
    assert not group_is_alive(identity)


def test_processes_are_found_by_the_stacks_id_even_outside_its_groups(start: Start) -> None:
    inside, outside = start(SLEEP, "stack-a"), start(SLEEP, "stack-b")
    assert eventually(lambda: [p.pid for p in find_processes("stack-a", [])] == [inside.pid])
    assert outside.pid not in [p.pid for p in find_processes("stack-a", [])]


def test_a_grandchild_that_ignores_the_signal_is_ended_with_its_group(start: Start, tmp_path: Path) -> None:
    parent = known(start(PARENT_OF_STUBBORN_CHILD).pid)
    assert eventually(lambda: bool((tmp_path / "process.log").read_text().strip()))
    grandchild = known(int((tmp_path / "process.log").read_text()))
    assert end_processes("", [parent], grace_s=0.5) == 2
    assert not is_alive(parent)
    assert not is_alive(grandchild)


def test_the_group_of_a_recycled_number_is_never_signalled(start: Start) -> None:
    process = known(start(SLEEP).pid)
    stranger = ProcessId(pid=process.pid, started_s=process.started_s - 3600)
    signal_group(stranger, signal.SIGKILL)
    assert end_processes("", [stranger], grace_s=0.5) == 0
    assert is_alive(process)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time; from pathlib import Path; from infra.stack.processes import spawn\n"
        f"child = spawn({SLEEP!r}, dict(os.environ), log=Path('child.log'), cwd=Path('.'))\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, env=_with_repository()) as parent:
        assert parent.stdout is not None
        child = known(int(parent.stdout.readline()))
        parent.kill()
    assert eventually(lambda: not is_alive(child))


def test_a_port_in_use_is_not_free_and_names_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        assert f"pid {os.getpid()}" in port_owner(port)
    assert port_is_free("127.0.0.1", port)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    assert "(no output)" in log_tail(log)
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_tail(log, num_lines=2) == "  | line 98\n  | line 99"


def _with_repository() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

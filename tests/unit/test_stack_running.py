"""One part's life, with real small processes and a clock that the test moves."""

import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.stack.parts import Launch, Part
from infra.stack.running import MAX_RESTARTS, RunningPart
from infra.stack.state import Status
from pipelines.errors import ConfigError

SLEEP = "import time; time.sleep(60)"
Make = Callable[..., RunningPart]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[RunningPart] = []

    def make_part(
        code: str, *, answers: bool = True, port: int | None = None, launch: Callable[[], Launch] | None = None
    ) -> RunningPart:
        part = Part(
            name="part",
            host="127.0.0.1",
            port=port,
            port_setting="EVERLOOP_PART_PORT",
            launch=launch or (lambda: Launch((sys.executable, "-c", code), {})),
            answers=lambda _: answers,
        )
        made.append(RunningPart(part, log=tmp_path / "part.log", cwd=tmp_path, startup_timeout_s=30.0))
        return made[-1]

    yield make_part
    for running in made:
        running.retire(0.0)
        running.step(1000.0, ready=True)
        running.collect()


def step_until(running: RunningPart, status: Status, *, now_s: float) -> None:
    deadline = time.monotonic() + 10
    while running.status is not status and time.monotonic() < deadline:
        running.step(now_s, ready=True)
        time.sleep(0.02)
    assert running.status is status, running.state()


def status_after(running: RunningPart, now_s: float, *, ready: bool = True) -> Status:
    running.step(now_s, ready=ready)
    return running.status


def test_a_part_waits_for_the_one_it_needs(make: Make) -> None:
    running = make(SLEEP)
    assert status_after(running, 0.0, ready=False) is Status.WAITING
    assert status_after(running, 1.0) is Status.STARTING
    assert status_after(running, 2.0) is Status.UP


def test_a_part_that_dies_during_start_has_failed_and_says_how(make: Make) -> None:
    running = make("raise SystemExit(3)", answers=False)
    step_until(running, Status.FAILED, now_s=0.0)
    assert running.state().detail == "exited with code 3 during start"


def test_a_part_that_never_answers_fails_after_its_time_and_is_ended(make: Make) -> None:
    running = make(SLEEP, answers=False)
    assert status_after(running, 0.0) is Status.STARTING
    assert status_after(running, 29.0) is Status.STARTING
    assert status_after(running, 31.0) is Status.FAILED
    assert "30 s" in running.state().detail
    running.collect()


def test_a_part_that_dies_later_is_started_again_after_a_pause_but_not_for_ever(make: Make) -> None:
    running = make(SLEEP)
    for restart in range(MAX_RESTARTS):
        step_until(running, Status.UP, now_s=10.0 * restart)
        assert running.state().restarts == restart
        _kill(running)
        step_until(running, Status.RESTARTING, now_s=10.0 * restart)
        assert "SIGKILL" in running.state().detail
    step_until(running, Status.UP, now_s=100.0)
    _kill(running)
    step_until(running, Status.FAILED, now_s=100.0)
    assert "died 4 times in 5 minutes" in running.state().detail


def test_old_deaths_are_forgiven(make: Make) -> None:
    running = make(SLEEP)
    for restart in range(MAX_RESTARTS + 2):
        step_until(running, Status.UP, now_s=400.0 * restart)
        _kill(running)
        step_until(running, Status.RESTARTING, now_s=400.0 * restart)


def test_a_taken_port_fails_with_its_owner_and_the_setting_to_change(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = make(SLEEP, port=server.getsockname()[1])
        running.step(0.0, ready=True)
    assert running.status is Status.FAILED
    assert "in use by pid" in running.state().detail
    assert "EVERLOOP_PART_PORT" in running.state().detail


def test_a_part_that_cannot_be_launched_fails_with_the_reason(make: Make) -> None:
    def refuse() -> Launch:
        raise ConfigError("no model there")

    refused = make("", launch=refuse)
    refused.step(0.0, ready=True)
    assert (refused.status, refused.state().detail) == (Status.FAILED, "no model there")

    missing = make("", launch=lambda: Launch(("/nonexistent/python",), {}))
    missing.step(0.0, ready=True)
    assert missing.status is Status.FAILED
    assert "cannot be started" in missing.state().detail


def test_a_retired_part_that_ignores_the_signal_is_killed_after_its_grace(make: Make, tmp_path: Path) -> None:
    running = make("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)")
    step_until(running, Status.UP, now_s=0.0)
    while not (tmp_path / "part.log").read_text():
        time.sleep(0.02)
    running.retire(100.0)
    running.step(105.0, ready=True)
    assert not running.stopped
    deadline = time.monotonic() + 10
    while not running.stopped and time.monotonic() < deadline:
        running.step(120.0, ready=True)
        time.sleep(0.02)
    assert running.stopped


def _kill(running: RunningPart) -> None:
    import os
    import signal

    assert running.leader is not None
    os.kill(running.leader.pid, signal.SIGKILL)

"""Start, stop and observe the local stack from outside. Owns the rule that `up` leaves everything running or nothing."""

import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from infra.inference.base_model import prepare_base_model
from infra.inference.replicas import Role, declare_replica, list_replicas
from infra.inference.weights import served_name
from infra.settings import Settings
from infra.stack.environment import part_environment
from infra.stack.parts import server_parts
from infra.stack.processes import STACK_ID, end_processes, identify, is_alive, log_tail, port_is_free, reap
from infra.stack.running import STOP_GRACE_S, describe_taken_port
from infra.stack.state import PartState, ProcessId, StackState, Status, forget_state, read_state
from pipelines.errors import InfrastructureError

BASE_REPLICA = "base"
"""Name of the replica that serves the base model when nothing else is declared for serving."""
ANSWER_ATTEMPTS = 5
"""A busy two-core machine may miss the two seconds that one question waits."""
_POLL_S = 0.2
_RUNNING = (Status.STARTING, Status.UP, Status.STOPPING)

Watch = Callable[[StackState], None]


@dataclass(frozen=True, slots=True)
class StackStart:
    """What `start_stack` did."""

    state: StackState
    already_up: bool
    """True: it was running before, nothing was started."""
    wall_s: float


@dataclass(frozen=True, slots=True)
class StackStop:
    """What `stop_stack` did."""

    was_running: bool
    num_leftovers: int
    """Processes found and ended after the supervisor was gone; 0 after an orderly stop."""


def start_stack(settings: Settings, *, serve: bool = True, watch: Watch = lambda _: None) -> StackStart:
    """Start the supervisor, wait until every part answers, and report; says so when it was already up.

    `serve` declares a replica of the base model unless some replica is declared for serving. `watch` is called with the state
    at every change. When a part fails everything started here is stopped again, and InfrastructureError carries its log's tail.
    """
    begin = time.monotonic()
    with _one_start_at_a_time(settings):
        before = observe_stack(settings)
        if before is not None and is_alive(before.supervisor):
            state = _bring_up(settings, before.supervisor, serve=serve, watch=watch)
            return StackStart(state=state, already_up=True, wall_s=time.monotonic() - begin)
        stop_stack(settings)
        _check_ports(settings)
        stack_id = secrets.token_hex(16)
        supervisor = _spawn_supervisor(settings, stack_id)
        try:
            state = _bring_up(settings, supervisor, serve=serve, watch=watch)
        except BaseException:
            _end_stack(settings, StackState(stack_id=stack_id, supervisor=supervisor))
            raise
    return StackStart(state=state, already_up=False, wall_s=time.monotonic() - begin)


def stop_stack(settings: Settings) -> StackStop:
    """End the supervisor and everything it started, also when it was killed and left parts behind; replica declarations stay."""
    state = read_state(settings)
    return StackStop(was_running=False, num_leftovers=0) if state is None else _end_stack(settings, state)


def observe_stack(settings: Settings) -> StackState | None:
    """The recorded state, with parts whose process no longer exists shown as gone; None when no stack is recorded."""
    state = read_state(settings)
    if state is None or is_alive(state.supervisor):
        return state
    parts = {name: _without_supervisor(part) for name, part in state.parts.items()}
    return replace(state, parts=parts)


def require_servers(settings: Settings) -> None:
    """Raise InfrastructureError naming the server that does not answer; the clients' own errors are tracebacks, after minutes."""
    for part in server_parts(settings):
        if part.port is None:
            continue
        for _ in range(ANSWER_ATTEMPTS):
            if part.answers(0.0):
                break
            time.sleep(_POLL_S)
        else:
            where = f"http://{part.host}:{part.port}"
            raise InfrastructureError(
                f"{part.name} at {where} does not answer; `everloop up` starts it, `everloop status` shows it"
            )


def declare_base_replica(settings: Settings) -> None:
    """Declare a serving replica of the base model, unless one is declared for serving already."""
    if any(spec.role is Role.SERVING for spec in list_replicas(settings)):
        return
    model_dir = prepare_base_model(settings)
    name = served_name(settings.registered_model, model_dir)
    declare_replica(settings, name=BASE_REPLICA, model_dir=model_dir, served_name=name, role=Role.SERVING)


def _bring_up(settings: Settings, supervisor: ProcessId, *, serve: bool, watch: Watch) -> StackState:
    if serve:
        # While the servers start: converting the base model takes a while the first time.
        declare_base_replica(settings)
    return _wait_until_up(settings, supervisor, watch)


def _end_stack(settings: Settings, state: StackState) -> StackStop:
    was_running = is_alive(state.supervisor)
    if was_running:
        os.kill(state.supervisor.pid, signal.SIGTERM)
        _wait_for_end(state.supervisor, timeout_s=3 * STOP_GRACE_S)
    reap(state.supervisor.pid)
    leaders = [part.process for part in state.parts.values() if part.process is not None]
    num_leftovers = end_processes(state.stack_id, [state.supervisor, *leaders], grace_s=STOP_GRACE_S)
    current = read_state(settings)
    if current is not None and current.stack_id == state.stack_id:
        forget_state(settings)
    return StackStop(was_running=was_running or num_leftovers > 0, num_leftovers=num_leftovers)


@contextmanager
def _one_start_at_a_time(settings: Settings) -> Iterator[None]:
    settings.root.mkdir(parents=True, exist_ok=True)
    with (settings.root / "up.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _without_supervisor(part: PartState) -> PartState:
    if part.process is not None and is_alive(part.process):
        return replace(part, detail="runs without a supervisor; `everloop down` ends it")
    return replace(part, status=Status.GONE, process=None, detail="its supervisor is gone; `everloop up` starts anew")


def _check_ports(settings: Settings) -> None:
    for part in server_parts(settings):
        if part.port is not None and not port_is_free(part.host, part.port):
            raise InfrastructureError(f"{part.name}: {describe_taken_port(part)}")


def _spawn_supervisor(settings: Settings, stack_id: str) -> ProcessId:
    """Start it in its own session, so that it survives this process and its terminal."""
    log = settings.root / "logs" / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for old in log.parent.glob("*.log"):
        old.replace(old.with_suffix(".log.previous"))
    environment = part_environment(settings, {STACK_ID: stack_id})
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # posix_spawn rather than subprocess: the child is meant to outlive this process, and nobody waits for it.
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "infra.stack.supervisor"],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
    )
    os.close(output)
    supervisor = identify(pid)
    if supervisor is None:
        raise InfrastructureError(f"the supervisor ended at once\n{log_tail(log)}")
    return supervisor


def _wait_until_up(settings: Settings, supervisor: ProcessId, watch: Watch) -> StackState:
    """Wait for every part and every declared replica; each has its own time limit in the supervisor."""
    last = None
    while True:
        if not is_alive(supervisor):
            reap(supervisor.pid)
            raise InfrastructureError(f"the supervisor ended\n{log_tail(settings.root / 'logs' / 'supervisor.log')}")
        state = read_state(settings)
        if state is not None and state.supervisor.pid == supervisor.pid:
            if state != last:
                watch(state)
                last = state
            if failed := [part for part in state.parts.values() if part.status is Status.FAILED]:
                raise InfrastructureError("\n".join(f"{part.name}: {part.detail}\n{log_tail(Path(part.log))}" for part in failed))
            declared = {spec.part_name for spec in list_replicas(settings)}
            if declared <= state.parts.keys() and all(part.status is Status.UP for part in state.parts.values()):
                return state
        time.sleep(_POLL_S)


def _wait_for_end(process: ProcessId, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(_POLL_S)

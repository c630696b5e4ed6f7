"""The supervisor: one process that starts the parts, watches them, restarts what dies and follows the replica declarations.

`python -m infra.stack.supervisor` is started by `lifecycle.start_stack`, detached from the terminal, with its settings in the
environment. It writes `<home>/stack.json` whenever something changed and ends everything on SIGTERM or SIGINT. Refuses to
decide what should run (`parts`, `infra.inference.replicas`).
"""

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from infra.inference.replicas import ReplicaSpec, list_replicas
from infra.settings import Settings
from infra.stack.environment import REPOSITORY
from infra.stack.parts import Part, replica_part, server_parts
from infra.stack.processes import STACK_ID, end_processes, identify
from infra.stack.running import STOP_GRACE_S, RunningPart
from infra.stack.state import ProcessId, StackState, Status, forget_state, write_state
from pipelines.errors import EverloopError

TICK_S = 0.5


class Supervisor:
    """Holds the running parts; `tick` moves each one step."""

    def __init__(self, settings: Settings, *, stack_id: str, process: ProcessId, parts: Sequence[Part]) -> None:
        self._settings = settings
        self._stack_id = stack_id
        self._process = process
        self._running = {part.name: self._run(part) for part in parts}
        self._replicas: dict[str, ReplicaSpec] = {}
        self._written: StackState | None = None
        self._complaint = ""

    def tick(self) -> None:
        """Follow the declarations, move every part one step, and write the state when it changed."""
        self._reconcile()
        up = {name for name, running in self._running.items() if running.status is Status.UP}
        for running in self._running.values():
            running.step(time.monotonic(), ready=not running.part.needs or running.part.needs in up)
        self._running = {name: running for name, running in self._running.items() if not running.stopped}
        self._write()

    def stop(self) -> None:
        """End every part and whatever it left behind; of the stack, nothing but this process remains."""
        for running in self._running.values():
            running.retire(time.monotonic())
        self._write()
        leaders = [running.leader for running in self._running.values() if running.leader is not None]
        end_processes(self._stack_id, leaders, grace_s=STOP_GRACE_S)
        for running in self._running.values():
            running.collect()

    def _reconcile(self) -> None:
        """Retire what is no longer declared as it runs; start what is newly declared once its name is free."""
        wanted = self._declared()
        for name in [name for name, spec in self._replicas.items() if wanted.get(name) != spec]:
            self._running[name].retire(time.monotonic())
            del self._replicas[name]
        for name, spec in wanted.items():
            if name not in self._running:
                self._replicas[name] = spec
                self._running[name] = self._run(replica_part(self._settings, spec))

    def _declared(self) -> dict[str, ReplicaSpec]:
        try:
            return {spec.part_name: spec for spec in list_replicas(self._settings)}
        except EverloopError as error:
            self._complain(str(error))
            return dict(self._replicas)

    def _run(self, part: Part) -> RunningPart:
        return RunningPart(
            part,
            log=self._settings.root / "logs" / f"{part.name}.log",
            cwd=REPOSITORY,
            startup_timeout_s=self._settings.startup_timeout_s,
        )

    def _write(self) -> None:
        parts = {name: running.state() for name, running in self._running.items()}
        state = StackState(stack_id=self._stack_id, supervisor=self._process, parts=parts)
        if state == self._written:
            return
        try:
            write_state(self._settings, state)
            self._written = state
        except OSError as error:
            # A full disk must not take the servers down; the next tick tries again.
            self._complain(f"cannot write the state: {error}")

    def _complain(self, message: str) -> None:
        if message != self._complaint:
            self._complaint = message
            print(message, file=sys.stderr, flush=True)


def main() -> int:
    """Run until a signal comes; 0 after an orderly end, 1 when another supervisor holds this home."""
    settings = Settings()
    settings.root.mkdir(parents=True, exist_ok=True)
    process = identify(os.getpid())
    with (settings.root / "stack.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another supervisor already runs under {settings.root}", file=sys.stderr)
            return 1
        assert process is not None, "this process runs"
        _supervise(settings, process)
    return 0


def _supervise(settings: Settings, process: ProcessId) -> None:
    asked_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_stop.set())
    supervisor = Supervisor(settings, stack_id=os.environ[STACK_ID], process=process, parts=server_parts(settings))
    try:
        while not asked_to_stop.is_set():
            supervisor.tick()
            asked_to_stop.wait(TICK_S)
    finally:
        supervisor.stop()
    forget_state(settings)


if __name__ == "__main__":
    sys.exit(main())

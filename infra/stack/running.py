"""One part through its life: waiting, starting, up, restarting, stopping or failed. Refuses to know about the other parts."""

import signal
import subprocess
from pathlib import Path

from infra.stack.parts import Part
from infra.stack.processes import group_is_alive, identify, port_is_free, port_owner, signal_group, spawn
from infra.stack.state import PartState, ProcessId, Status
from pipelines.errors import EverloopError

MAX_RESTARTS = 3
RESTART_WINDOW_S = 300.0
"""More than MAX_RESTARTS deaths within this time and the part stays down."""
STOP_GRACE_S = 10.0
"""From SIGTERM to SIGKILL."""


class RunningPart:
    """A part and its process. `step` never blocks for longer than the part's own probe."""

    def __init__(self, part: Part, *, log: Path, cwd: Path, startup_timeout_s: float) -> None:
        self.part = part
        self.status = Status.WAITING
        self.leader: ProcessId | None = None
        self.stopped = False
        """True once a retired part has no process left."""
        self._log = log
        self._cwd = cwd
        self._startup_timeout_s = startup_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._was_up = False
        self._deaths_s: list[float] = []
        self._num_restarts = 0
        self._next_s = 0.0
        """When the current status ends: deadline of a start or a stop, end of the pause before a restart."""
        self._detail = ""

    def step(self, now_s: float, *, ready: bool) -> None:
        """Move on by one step; `ready` says whether the part it needs is up. `now_s` is a monotonic clock."""
        match self.status:
            case Status.WAITING if ready:
                self._start(now_s)
            case Status.RESTARTING if ready and now_s >= self._next_s:
                self._num_restarts += 1
                self._start(now_s)
            case Status.STARTING:
                self._watch_start(now_s)
            case Status.UP if self._exit_code() is not None:
                self._died(now_s)
            case Status.STOPPING:
                self._watch_stop(now_s)

    def retire(self, now_s: float) -> None:
        """Begin to stop it for good; `stopped` becomes True at a later step."""
        if self.status is not Status.STOPPING:
            self.status, self._next_s = Status.STOPPING, now_s + STOP_GRACE_S
            self._signal(signal.SIGTERM)

    def collect(self) -> None:
        """Take the exit status of a process that was ended from outside."""
        if self._process is not None:
            self._process.wait()

    def state(self) -> PartState:
        """What stands in the state file."""
        return PartState(
            name=self.part.name,
            status=self.status,
            port=self.part.port,
            log=str(self._log),
            process=self.leader,
            restarts=self._num_restarts,
            detail=self._detail,
        )

    def _start(self, now_s: float) -> None:
        part = self.part
        if part.port is not None and not port_is_free(part.host, part.port):
            self._fail(describe_taken_port(part))
            return
        try:
            launch = part.launch()
            self._process = spawn(launch.command, launch.environment, log=self._log, cwd=self._cwd)
        except EverloopError as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"cannot be started: {error}")
        else:
            self.leader = identify(self._process.pid)
            self.status, self._next_s = Status.STARTING, now_s + self._startup_timeout_s

    def _watch_start(self, now_s: float) -> None:
        if self._exit_code() is not None:
            self._died(now_s)
        elif self.leader is not None and self.part.answers(self.leader.started_s):
            self.status, self._was_up, self._detail = Status.UP, True, ""
        elif now_s >= self._next_s:
            self._signal(signal.SIGKILL)
            self._fail(f"did not answer within {self._startup_timeout_s:.0f} s; EVERLOOP_STARTUP_TIMEOUT_S gives it longer")

    def _watch_stop(self, now_s: float) -> None:
        exited = self._process is None or self._exit_code() is not None
        if exited and (self.leader is None or not group_is_alive(self.leader)):
            self.stopped = True
        elif now_s >= self._next_s:
            self._signal(signal.SIGKILL)

    def _died(self, now_s: float) -> None:
        # Its children would keep the port.
        self._signal(signal.SIGKILL)
        self.leader = None
        self._detail = _describe_exit(self._exit_code())
        self._deaths_s = [death_s for death_s in self._deaths_s if now_s - death_s < RESTART_WINDOW_S] + [now_s]
        if not self._was_up:
            self._fail(f"{self._detail} during start")
        elif len(self._deaths_s) > MAX_RESTARTS:
            self._fail(f"died {len(self._deaths_s)} times in {RESTART_WINDOW_S / 60:.0f} minutes, the last time: {self._detail}")
        else:
            self.status, self._next_s = Status.RESTARTING, now_s + 2.0 ** len(self._deaths_s) - 1.0

    def _fail(self, detail: str) -> None:
        self.status, self._detail = Status.FAILED, detail

    def _signal(self, number: signal.Signals) -> None:
        if self.leader is not None:
            signal_group(self.leader, number)

    def _exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None


def describe_taken_port(part: Part) -> str:
    """Who holds the part's port, and what to do."""
    owner = "nobody" if part.port is None else port_owner(part.port)
    return f"port {part.port} is in use by {owner}; end it, or set {part.port_setting} to a free port"


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"

"""What runs now, as the supervisor writes it to `<home>/stack.json`. Owns the file's shape; refuses to start or stop anything."""

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from infra.settings import Settings
from pipelines.artifacts import from_json, to_json
from pipelines.errors import InfrastructureError


class Status(StrEnum):
    """Where a part stands."""

    WAITING = "waiting"
    """Another part has to answer first."""
    STARTING = "starting"
    UP = "up"
    """Its process runs and it has answered."""
    RESTARTING = "restarting"
    """It died after it had answered, and will be started again after a pause."""
    STOPPING = "stopping"
    FAILED = "failed"
    """It died during start, did not answer in time, or died too often; `detail` says which."""
    GONE = "gone"
    """Recorded as running, but its process no longer exists (the supervisor was killed)."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that can be told from a later one with the same number."""

    pid: int
    started_s: float
    """Creation time, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as the supervisor last saw it."""

    name: str
    status: Status
    port: int | None
    """None: the part listens nowhere (the Prefect worker)."""
    log: str
    """Absolute path of its log file."""
    process: ProcessId | None = None
    """Leader of its process group; None while nothing runs."""
    restarts: int = 0
    detail: str = ""
    """Why it is not up, for people."""


@dataclass(frozen=True, slots=True)
class StackState:
    """The whole stack."""

    stack_id: str
    """Stands as EVERLOOP_STACK_ID in the environment of every process that the supervisor starts, so that none is missed."""
    supervisor: ProcessId
    parts: dict[str, PartState] = field(default_factory=dict)


def state_path(settings: Settings) -> Path:
    return settings.root / "stack.json"


def read_state(settings: Settings) -> StackState | None:
    """The recorded state; None when no stack runs here. Raises InfrastructureError when it is unreadable."""
    path = state_path(settings)
    try:
        return from_json(StackState, path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise InfrastructureError(f"{path}: not a stack state; end its processes and delete the file") from error


def write_state(settings: Settings, state: StackState) -> None:
    write_atomically(state_path(settings), to_json(state))


def forget_state(settings: Settings) -> None:
    """Nothing of the stack runs any more."""
    state_path(settings).unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Readers see the old content or the new, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)

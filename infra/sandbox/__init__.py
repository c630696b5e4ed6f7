"""Sandboxes: where code that a model wrote runs, and nowhere else.

Owns the protocol and the words Command, Limits, Mount and SandboxResult. Refuses to judge a result: what a failing test or a
reached limit means is for the caller. One module per sandbox; one that cannot isolate raises, it never runs anything without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pipelines.errors import InfrastructureError

MIB = 1 << 20


class SandboxUnavailable(InfrastructureError):
    """This machine cannot isolate code, or the sandbox broke before or around the command. Never a score."""


class KilledBy(StrEnum):
    """The limit that ended the run."""

    WALL_TIME = "wall_time"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Limits:
    wall_s: float = 60.0
    """Seconds until the whole process tree is killed."""
    memory_bytes: int = 1024 * MIB
    """For the tree together, by control group; per process (RLIMIT_AS) where no control group can be written."""
    num_processes: int = 64
    """Processes and threads alive at once."""
    file_bytes: int = 64 * MIB
    """Size of one file."""
    disk_bytes: int = 256 * MIB
    """What the run may write under its working directory; /tmp and /dev/shm get a quarter each, in memory."""
    output_bytes: int = MIB
    """Standard output and standard error together."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder or file shown read-only inside."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class SandboxResult:
    exit_code: int | None
    """Of the command; 128 + signal when a signal ended it; None when a limit ended it first."""
    stdout: str
    """Undecodable bytes are replaced."""
    stderr: str
    killed_by: KilledBy | None
    duration_s: float

    @property
    def timed_out(self) -> bool:
        return self.killed_by is KilledBy.WALL_TIME


@dataclass(frozen=True, slots=True)
class Command:
    """What to run and what it sees."""

    arguments: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    """Shown beside the minimal host toolchain."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables every run has; the host's own are never passed on."""
    stdin: bytes = b""
    """At most 64 000 bytes, readable once."""


class Sandbox(Protocol):
    """Runs one command in a fresh, isolated view of a folder."""

    def run(self, command: Command, *, workdir: str, lower: Sequence[Path], limits: Limits) -> SandboxResult:
        """Run `command` in `workdir`, where the folders of `lower` are stacked (the last on top) under a throwaway layer.

        No network, no host files beyond the mounts, nothing written outlives the call, and no process does. Raises
        SandboxUnavailable when the sandbox itself failed.
        """
        ...

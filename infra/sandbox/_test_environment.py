"""The Python environment that tests run in: the host's interpreter, pytest and what pytest needs, nothing else of ours.

Owns building it once under a content key. Code under test therefore sees no package of the control environment.
"""

import compileall
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from infra.sandbox import Mount, SandboxUnavailable
from pipelines.artifacts import digest, digest_bytes

TARGET = "/opt/testbed"
"""Where the environment is shown inside a sandbox."""
VARIABLES = {
    "PATH": f"{TARGET}/bin:/usr/local/bin:/usr/bin:/bin",
    "VIRTUAL_ENV": TARGET,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTEST_ADDOPTS": "-p no:cacheprovider",
}
REPORT_VARIABLES = {"PYTEST_PLUGINS": "outcome_report"}
"""Added for runs that must be reported with a key on standard input."""


def prepare_test_environment(root: Path) -> Mount:
    """Build the environment under `root` when it is not there yet, and say how to mount it."""
    distributions = sorted(set(_with_requirements("pytest")))
    plugin = Path(__file__).with_name("_outcome_report.py")
    installed = [[name, distribution(name).version] for name in distributions]
    key = digest([sys.version, sys.base_prefix, installed, digest_bytes(plugin.read_bytes())])[:16]
    target = root.absolute() / f"pytest-{key}"
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pytest-", dir=root) as folder:
            built = Path(folder, "environment")
            _build(built, distributions, plugin)
            try:
                built.rename(target)
            except OSError:  # another worker was first
                if not target.exists():
                    raise
    return Mount(target, TARGET)


def _with_requirements(name: str) -> Iterator[str]:
    """A distribution and what it needs here, by the markers of the installed metadata that name no extra."""
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise SandboxUnavailable(f"{name} is not installed and sandboxed tests need it; run make to install it") from error
    yield name
    for requirement in found.requires or ():
        needed, _, marker = requirement.partition(";")
        if any(word in marker for word in ("extra", "win32", "python_version <", "python_full_version <")):
            continue
        yield from _with_requirements(re.split(r"[^A-Za-z0-9._-]", needed.strip())[0])


def _build(target: Path, distributions: list[str], plugin: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site, scripts = target / "lib" / version / "site-packages", target / "bin"
    site.mkdir(parents=True)
    scripts.mkdir()
    interpreter = Path(sys.base_prefix, "bin", version)
    (target / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (scripts / name).symlink_to(interpreter)
    script = scripts / "pytest"
    script.write_text(f"#!{TARGET}/bin/python\nimport sys\nimport pytest\nsys.exit(pytest.main())\n")
    script.chmod(0o755)
    for name in distributions:
        _copy(distribution(name), site)
    shutil.copyfile(plugin, site / "outcome_report.py")
    compileall.compile_dir(str(site), quiet=2)


def _copy(source: Distribution, site: Path) -> None:
    for file in source.files or ():
        if file.parts[0] == ".." or "__pycache__" in file.parts or file.suffix == ".pth":
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(source.locate_file(file)), target)

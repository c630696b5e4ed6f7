"""Which files a patch may not touch, because they decide how it is graded.

None of the 800 reference patches of SWE-bench Verified and Lite touches tests, conftest, sitecustomize or *.pth and one touches
configuration, so the ban costs next to nothing.
"""

import re
from pathlib import PurePosixPath

from pipelines.evaluation.swebench.patches import touched_paths

NAMES = {
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "noxfile.py", ".coveragerc"),
}
FOLDERS = {"test", "tests", "testing", ".git", "site-packages"}
SHADOWS = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "outcome_report"}
"""Modules of the test runner: a folder or file of that name at the root would be imported instead of it."""
TEST_FILE = re.compile(r"test_.*\.py|.*_tests?\.py|.*\.pth|.*\.so|.*\.pyc", re.S)


def refusal(patch: str) -> str | None:
    """Why the patch is refused, naming the path; None when it is allowed. Raises PatchError when it is not a readable diff."""
    return next((reason for path in touched_paths(patch) if (reason := _refused(path))), None)


def _refused(path: str) -> str | None:
    pure = PurePosixPath(path)
    parts = [part.lower() for part in pure.parts]
    if not parts or pure.is_absolute() or ".." in parts or "\\" in path or any(ord(c) < 32 for c in path):
        return f"{path!r} leaves the repository"
    if FOLDERS.intersection(parts[:-1]) or TEST_FILE.fullmatch(parts[-1]):
        return f"{path!r} is a test or is loaded by the interpreter"
    if parts[-1] in NAMES:
        return f"{path!r} configures the test run"
    if parts[0].removesuffix(".py") in SHADOWS:
        return f"{path!r} would replace the test runner"
    return None

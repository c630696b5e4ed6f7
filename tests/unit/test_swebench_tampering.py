import pytest

from infra.benchmarks._task_repository import load_tasks
from pipelines.evaluation.swebench.patches import make_patch
from pipelines.evaluation.swebench.tampering import refusal


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "pkg/conftest.py", "sitecustomize.py", "usercustomize.py", "x.pth", "lib/x.pth"),
        *("tests/test_a.py", "tests/data.json", "pkg/Tests/a.py", "test_a.py", "pkg/a_test.py"),
        *("pytest.ini", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml"),
        *("pytest.py", "_pytest/runner.py", "pluggy/__init__.py", "outcome_report.py"),
        *("../outside.py", "/etc/passwd", "pkg/../../x.py", ".git/hooks/pre-commit", "fast.so"),
    ],
)
def test_a_patch_may_not_touch_what_decides_its_grade(path: str) -> None:
    assert refusal(make_patch(path, None, "x\n")) is not None


@pytest.mark.parametrize("path", ["calc.py", "pkg/attest.py", "pkg/contest.py", "docs/testing.md", "pkg/latest/a.py"])
def test_ordinary_files_are_allowed(path: str) -> None:
    assert refusal(make_patch(path, None, "x\n")) is None


def test_one_forbidden_file_among_others_refuses_the_patch() -> None:
    patch = make_patch("calc.py", None, "x\n") + make_patch("conftest.py", None, "x\n")
    assert "conftest.py" in str(refusal(patch))


def test_moving_a_test_away_is_refused() -> None:
    patch = "diff --git a/tests/test_a.py b/a.py\n--- a/tests/test_a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert refusal(patch) is not None


def test_no_bundled_reference_patch_is_refused() -> None:
    assert [task.id for task in load_tasks() if refusal(task.instance.patch)] == []

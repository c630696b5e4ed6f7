import pytest

from infra.benchmarks._task_repository import load_tasks
from pipelines.evaluation.predictions import format_predictions
from pipelines.evaluation.swebench.answer import extract_patch
from pipelines.evaluation.swebench.patches import apply_patch, make_patch
from pipelines.evaluation.swebench.prompt import build_prompt, editable_files

ONE = {"calc.py": "def f(a):\n    return a - 1\n", "tests/test_calc.py": "def test(): pass\n", "pyproject.toml": "[x]\n"}
TWO = {"p/__init__.py": "", "p/a.py": "A = 1\n", "p/b.py": "B = 1\n"}
FIXED = "def f(a):\n    return a + 1\n"


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{FIXED}```",
        f"Here is the fix:\n\n```python\n{FIXED}\n\n```\nIt adds one.",
        f"```\n{FIXED}```",
        f"```python\n# calc.py\n{FIXED}```",
        f"```python calc.py\n{FIXED}```",
        f"`calc.py`:\n```py\n{FIXED}```",
        f"```python\n{FIXED}",
        f"```python\ndef f(a): return 0\n```\nbetter:\n```python\n{FIXED}```",
        "```diff\n" + make_patch("calc.py", ONE["calc.py"], FIXED) + "```",
    ],
)
def test_the_corrected_file_is_found_in_the_answer(answer: str) -> None:
    assert apply_patch(ONE, extract_patch(answer, ONE).patch) == {"calc.py": FIXED}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no fenced block"),
        ("I would change the sign.", "no fenced block"),
        (f"```python\n{ONE['calc.py']}```", "changes nothing"),
    ],
)
def test_an_answer_without_a_patch_says_why(answer: str, reason: str) -> None:
    extraction = extract_patch(answer, ONE)
    assert extraction.patch == ""
    assert reason in extraction.reason


def test_a_block_must_name_its_file_when_several_could_be_meant() -> None:
    assert "names none of the files p/a.py, p/b.py" in extract_patch("```python\nA = 2\n```", TWO).reason
    named = extract_patch("```python\n# p/a.py\nA = 2\n```\n```python\n# b.py\nB = 2\n```", TWO)
    assert apply_patch(TWO, named.patch) == {"p/a.py": "A = 2\n", "p/b.py": "B = 2\n"}


def test_a_first_comment_of_the_file_itself_is_kept() -> None:
    files = {"calc.py": "# calc.py\nA = 1\n"}
    assert apply_patch(files, extract_patch("```python\n# calc.py\nA = 2\n```", files).patch) == {"calc.py": "# calc.py\nA = 2\n"}


def test_tests_and_settings_are_not_shown_to_the_model() -> None:
    assert editable_files(ONE) == ["calc.py"]
    assert editable_files(TWO) == ["p/a.py", "p/b.py"]


def test_bundled_prompts_fit_a_small_context_and_do_not_hold_the_fix() -> None:
    tasks = load_tasks()
    assert len(tasks) >= 12
    for task in tasks:
        text = "".join(m.content or "" for m in build_prompt(task.instance, task.files))
        assert len(text) < 2500, task.id
        added = [line[1:] for line in task.instance.patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
        assert not all(line in text for line in added), task.id


def test_predictions_are_ascii_lines_in_the_official_format() -> None:
    text = format_predictions("m", {"b": "+ \u2028é\n", "a": ""})
    assert text.isascii()
    assert text.splitlines()[0] == '{"instance_id": "a", "model_name_or_path": "m", "model_patch": ""}'
    assert len(text.splitlines()) == 2

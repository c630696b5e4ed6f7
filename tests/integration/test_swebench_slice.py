from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from infra.benchmarks._test_bed import LIMITS, TestBed, grade_patch, prepare_test_bed
from infra.benchmarks.swebench_slice import Task, evaluate_patches, evaluate_slice, load_tasks
from infra.inference.client import Completion, Sampling
from infra.sandbox import MIB, Command, Limits, SandboxResult, SandboxUnavailable
from pipelines.errors import InfrastructureError, InputError
from pipelines.evaluation.predictions import format_predictions
from pipelines.evaluation.report import EvaluationReport
from pipelines.evaluation.swebench.patches import apply_patch, make_patch
from pipelines.rewards.model import FailureReason
from pipelines.traces.model import Message, Role, ToolSpec

TASKS = load_tasks()
PAGER = next(task for task in TASKS if task.id == "everloop__pager-3")
PASSING = "\n".join(f"PASSED {name}" for name in (*PAGER.instance.fail_to_pass, *PAGER.instance.pass_to_pass))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> TestBed:
    return prepare_test_bed(tmp_path_factory.mktemp("bed"))


class Scripted:
    """A model that says what a function of the prompt says."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, *, token_ids: bool = False
    ) -> list[Completion]:
        text = self.answer(messages[-1].content or "")
        return [Completion(Message(Role.ASSISTANT, text), "stop", "scripted", input_tokens=100, output_tokens=50, duration_s=0.1)]


def fixed_files(task: Task) -> str:
    changes = apply_patch(task.files, task.instance.patch)
    return "\n".join(f"```python\n# {path}\n{content}```" for path, content in changes.items())


def pager_with(prologue: str) -> str:
    """A patch that leaves the bug in and puts code at the top of the module under test."""
    return make_patch("pager.py", PAGER.files["pager.py"], prologue + PAGER.files["pager.py"])


async def evaluate(bed: TestBed, answer: Callable[[str], str], tasks: Sequence[Task]) -> EvaluationReport:
    return await evaluate_slice(
        Scripted(answer), model="m", model_digest="d", tasks=tasks, seeds=[0], max_tokens=400, test_bed=bed
    )


def test_every_reference_patch_resolves_its_instance_three_times(bed: TestBed) -> None:
    for _ in range(3):
        report = evaluate_patches(TASKS, {t.id: t.instance.patch for t in TASKS}, test_bed=bed, name="gold")
        assert [(o.task_id, o.evidence) for o in report.outcomes if not o.passed] == []
    assert len(TASKS) >= 12


def test_doing_nothing_resolves_no_instance_and_breaks_no_kept_test(bed: TestBed) -> None:
    for task in TASKS:
        grade = grade_patch(bed, task, "")
        assert not grade.resolved
        assert not grade.tampered
        assert not any(grade.fail_to_pass.values()), task.id
        assert all(grade.pass_to_pass.values()), task.id


def test_a_patch_that_only_adds_a_comment_resolves_nothing(bed: TestBed) -> None:
    patches = {}
    for task in TASKS:
        path = next(iter(apply_patch(task.files, task.instance.patch)))
        patches[task.id] = make_patch(path, task.files[path], task.files[path] + "# fixed\n")
    report = evaluate_patches(TASKS, patches, test_bed=bed, name="wrong")
    assert report.pass_rate == 0.0
    assert report.num_failures == 0


def test_a_patch_that_breaks_a_kept_test_is_unresolved(bed: TestBed) -> None:
    fixed = apply_patch(PAGER.files, PAGER.instance.patch)["pager.py"]
    assert fixed is not None
    patch = make_patch("pager.py", PAGER.files["pager.py"], fixed.replace("(page + 1)", "(page + 2)"))
    grade = grade_patch(bed, PAGER, patch)
    assert all(grade.fail_to_pass.values())
    assert not grade.resolved
    assert "test_bounds" in grade.reason


def test_a_patch_may_add_and_delete_files(bed: TestBed) -> None:
    fixed = apply_patch(PAGER.files, PAGER.instance.patch)["pager.py"]
    assert fixed is not None
    add = make_patch("pagination.py", None, fixed)
    moved = make_patch("pager.py", PAGER.files["pager.py"], "from pagination import *\n")
    assert grade_patch(bed, PAGER, add + moved).resolved
    delete = make_patch("pager.py", PAGER.files["pager.py"], "").replace("+++ b/pager.py", "+++ /dev/null")
    assert not grade_patch(bed, PAGER, delete).resolved


def test_a_forging_conftest_is_refused(bed: TestBed) -> None:
    forged = f"import os\nos.write(1, {PASSING.encode()!r})\nos._exit(0)\n"
    grade = grade_patch(bed, PAGER, make_patch("conftest.py", None, forged))
    assert (grade.resolved, grade.tampered) == (False, True)
    assert "conftest.py" in grade.reason
    outcome = evaluate_patches(
        [PAGER], {PAGER.id: make_patch("conftest.py", None, forged)}, test_bed=bed, name="forger"
    ).outcomes[0]
    assert (outcome.passed, outcome.tampered) == (False, True)


@pytest.mark.parametrize(
    "prologue",
    [
        f"import os\nos.write(1, {chr(10) + PASSING + chr(10)!r}.encode())\nos._exit(0)\n",
        f"import atexit\natexit.register(lambda: print({PASSING!r}))\n",
        "import os, re\ntext = open('/harness/eval.sh').read()\n"
        f"os.write(1, ({PASSING!r} + re.search('>>>>> End.*', text)[0]).encode())\nos._exit(0)\n",
        f"import os\nos.write(1, b'\\n>>>>> Outcomes {'0' * 64} {{}}\\n')\n",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
        "import sys\nsys.stdout.flush()\nsys.exit(0)\n",
    ],
    ids=["prints and exits", "prints at exit", "repeats the marker", "forges a report", "kills the shell", "exits"],
)
def test_a_module_that_forges_the_result_is_unresolved(bed: TestBed, prologue: str) -> None:
    assert not grade_patch(bed, PAGER, pager_with(prologue)).resolved


@pytest.mark.parametrize(
    ("prologue", "limit", "name"),
    [
        ("while True: pass\n", Limits(wall_s=2), "wall_time"),
        ("while True: print('x' * 1000, file=__import__('sys').__stderr__)\n", replace(LIMITS, output_bytes=MIB), "output"),
    ],
)
def test_code_that_reaches_a_limit_is_unresolved_and_the_limit_is_named(
    bed: TestBed, prologue: str, limit: Limits, name: str
) -> None:
    grade = grade_patch(replace(bed, limits=limit), PAGER, pager_with(prologue.replace("file=", "flush=True, file=")))
    assert not grade.resolved
    if name == "wall_time":
        assert grade.reason == "the tests were ended by the limit on wall_time"


def test_tests_run_with_the_network_cut(bed: TestBed) -> None:
    probe = (
        "import socket\ntry:\n    socket.create_connection(('1.1.1.1', 443), 2)\nexcept OSError:\n    raise SystemError('cut')\n"
    )
    grade = grade_patch(bed, PAGER, pager_with(probe))
    assert not any(grade.pass_to_pass.values())  # every test failed on import: the connection raised


async def test_a_model_that_writes_the_fixed_files_resolves_everything(bed: TestBed) -> None:
    by_problem = {task.instance.problem_statement.strip(): task for task in TASKS}
    report = await evaluate(
        bed, lambda prompt: fixed_files(next(t for p, t in by_problem.items() if prompt.startswith(p))), TASKS
    )
    assert report.pass_rate == 1.0
    assert (report.benchmark, report.model, report.model_digest) == ("swebench-tiny", "m", "d")
    assert report.output_tokens == 50 * len(TASKS)
    assert "diff --git" in format_predictions("m", {o.task_id: o.answer for o in report.outcomes})


async def test_an_answer_without_code_is_unresolved_and_says_why(bed: TestBed) -> None:
    report = await evaluate(bed, lambda _: "Just round up.", [PAGER])
    assert [(o.passed, o.failure, o.answer) for o in report.outcomes] == [(False, None, "")]
    assert report.outcomes[0].evidence == "no fenced block in the answer: Just round up."


async def test_a_server_that_fails_is_a_failure_and_not_unresolved(bed: TestBed) -> None:
    def broken(prompt: str) -> str:
        raise InfrastructureError("connection refused")

    report = await evaluate(bed, broken, [PAGER])
    assert [(o.passed, o.failure) for o in report.outcomes] == [(None, FailureReason.SERVER)]
    assert report.pass_rate is None


class BrokenSandbox:
    def run(self, command: Command, *, workdir: str, lower: Sequence[object], limits: Limits) -> SandboxResult:
        raise SandboxUnavailable("bwrap ended with 1 before the command did")


async def test_a_sandbox_that_fails_is_a_failure_and_not_unresolved(bed: TestBed) -> None:
    report = await evaluate(replace(bed, sandbox=BrokenSandbox()), lambda _: fixed_files(PAGER), [PAGER])
    assert [(o.passed, o.failure) for o in report.outcomes] == [(None, FailureReason.SANDBOX)]


def test_an_environment_without_pytest_is_a_failure_and_not_unresolved(
    bed: TestBed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = replace(bed.environment, source=tmp_path_factory.mktemp("empty"))
    report = evaluate_patches([PAGER], {PAGER.id: PAGER.instance.patch}, test_bed=replace(bed, environment=empty), name="gold")
    assert [(o.passed, o.failure) for o in report.outcomes] == [(None, FailureReason.SANDBOX)]


def test_an_unknown_task_is_an_input_error() -> None:
    with pytest.raises(InputError, match="nope__nope-1"):
        load_tasks(ids=["nope__nope-1"])

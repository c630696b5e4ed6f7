"""SWE-bench-format instances, solved in one shot: the model answers, its patch is applied and tested in the sandbox.

Owns the run of this benchmark. Refuses to turn a broken server or sandbox into "unresolved": those outcomes carry their failure.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from infra.benchmarks import ChatModel
from infra.benchmarks._task_repository import BUNDLED, Task, load_tasks
from infra.benchmarks._test_bed import TestBed, grade_patch, prepare_test_bed
from infra.inference.client import Completion, Sampling
from pipelines.errors import InfrastructureError
from pipelines.evaluation.report import EvaluationReport, TaskOutcome
from pipelines.evaluation.swebench.answer import extract_patch
from pipelines.evaluation.swebench.prompt import build_prompt
from pipelines.rewards.model import FailureReason

__all__ = ["BENCHMARK", "BUNDLED", "Task", "TestBed", "evaluate_patches", "evaluate_slice", "load_tasks", "prepare_test_bed"]

BENCHMARK = "swebench-tiny"
EXCERPT_CHARS = 300


async def evaluate_slice(
    client: ChatModel,
    *,
    model: str,
    model_digest: str,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    max_tokens: int,
    test_bed: TestBed,
    temperature: float = 0.0,
    concurrency: int = 2,
    benchmark: str = BENCHMARK,
) -> EvaluationReport:
    """Let the model answer every task once per seed and grade what it wrote; `concurrency` sandboxes run at once.

    The outcome's `answer` is the patch, empty when the answer held none.
    """
    started = time.perf_counter()
    slots = asyncio.Semaphore(concurrency)

    async def attempt(task: Task, seed: int) -> TaskOutcome:
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
        try:
            completion = (await client.complete(build_prompt(task.instance, task.files), (), sampling))[0]
        except InfrastructureError as error:
            return _failed(task, seed, FailureReason.SERVER, error)
        async with slots:
            return await asyncio.to_thread(_grade_answer, test_bed, task, seed, completion)

    outcomes = await asyncio.gather(*(attempt(task, seed) for task in tasks for seed in seeds))
    return EvaluationReport(benchmark, model, model_digest, tuple(outcomes), time.perf_counter() - started)


def evaluate_patches(
    tasks: Sequence[Task], patches: Mapping[str, str], *, test_bed: TestBed, name: str, concurrency: int = 2
) -> EvaluationReport:
    """Grade given patches, by task id: the reference patches, empty ones, or predictions from a file."""
    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        outcomes = tuple(pool.map(lambda task: _grade(test_bed, task, 0, patches[task.id]), tasks))
    return EvaluationReport(BENCHMARK, name, "", outcomes, time.perf_counter() - started)


def _grade_answer(bed: TestBed, task: Task, seed: int, completion: Completion) -> TaskOutcome:
    text = completion.message.content or ""
    extraction = extract_patch(text, task.files)
    tokens = (completion.input_tokens, completion.output_tokens, completion.duration_s)
    if not extraction.patch:
        cut = " (cut off)" if completion.truncated else ""
        return TaskOutcome(
            task_id=task.id,
            seed=seed,
            passed=False,
            score=0.0,
            evidence=f"{extraction.reason}{cut}: {text[:EXCERPT_CHARS]}",
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            duration_s=tokens[2],
        )
    return _grade(bed, task, seed, extraction.patch, tokens)


def _grade(
    bed: TestBed, task: Task, seed: int, patch: str, tokens: tuple[int | None, int | None, float] = (None, None, 0.0)
) -> TaskOutcome:
    started = time.perf_counter()
    try:
        grade = grade_patch(bed, task, patch)
    except InfrastructureError as error:
        return _failed(task, seed, FailureReason.SANDBOX, error, patch)
    duration_s = tokens[2] + time.perf_counter() - started
    return TaskOutcome(
        task_id=task.id,
        seed=seed,
        passed=grade.resolved,
        score=float(grade.resolved),
        answer=patch,
        evidence=grade.reason,
        tampered=grade.tampered,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        duration_s=duration_s,
    )


def _failed(task: Task, seed: int, reason: FailureReason, error: InfrastructureError, patch: str = "") -> TaskOutcome:
    return TaskOutcome(task.id, seed, None, None, reason, patch, str(error))

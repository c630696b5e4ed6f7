"""Reward tasks answered by a served model and checked by their verifier: hold-out and regression suite.

Owns the run of this benchmark. A server that gives no answer is an outcome with a failure, never a score.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from infra.benchmarks import ChatModel
from infra.inference.client import Sampling
from pipelines.errors import InfrastructureError
from pipelines.evaluation.report import EvaluationReport, TaskOutcome
from pipelines.rewards.model import FailureReason, RewardTask
from pipelines.rewards.verifiers import verify
from pipelines.traces.model import Message

SHOWN_CHARS = 300


async def evaluate_tasks(
    client: ChatModel,
    tasks: Sequence[RewardTask],
    *,
    benchmark: str,
    model: str,
    model_digest: str,
    seeds: Sequence[int],
    temperature: float,
    max_tokens: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> EvaluationReport:
    """Answer every task once per seed; outcomes come in the order of tasks, then seeds. `on_progress` gets done and total."""
    started = time.perf_counter()
    total, done = len(tasks) * len(seeds), 0

    async def attempt(task: RewardTask, seed: int) -> TaskOutcome:
        nonlocal done
        outcome = await _attempt(client, task, Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed), seed)
        done += 1
        if on_progress:
            on_progress(done, total)
        return outcome

    outcomes = await asyncio.gather(*(attempt(task, seed) for task in tasks for seed in seeds))
    return EvaluationReport(benchmark, model, model_digest, tuple(outcomes), time.perf_counter() - started)


async def _attempt(client: ChatModel, task: RewardTask, sampling: Sampling, seed: int) -> TaskOutcome:
    try:
        completion = (await client.complete(task.prompt, task.tools, sampling))[0]
    except InfrastructureError as error:
        return TaskOutcome(task.id, seed, None, None, FailureReason.SERVER, evidence=str(error))
    verdict = verify(task, completion.message)
    return TaskOutcome(
        task_id=task.id,
        seed=seed,
        passed=verdict.passed,
        score=verdict.score,
        failure=verdict.failure,
        answer=_shown(completion.message),
        evidence=verdict.evidence,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        duration_s=completion.duration_s,
    )


def _shown(answer: Message) -> str:
    calls = "; ".join(f"{call.name}({call.raw_arguments})" for call in answer.tool_calls)
    return (calls or answer.content or "")[:SHOWN_CHARS]

"""Stage 4: candidate against champion, pair by pair."""

from prefect import flow

from pipelines.artifacts import StageRecord
from pipelines.config import EvaluationConfig
from tasks.evaluation import evaluate
from tasks.stage import CycleRef


@flow(name="evaluate_candidate")
async def evaluate_candidate(
    cycle: CycleRef,
    dataset: StageRecord,
    candidate: StageRecord,
    config: EvaluationConfig = EvaluationConfig(),
    seed: int = 0,
) -> StageRecord:
    """Hold-out, regression suite and the SWE-bench-format slice; the record names the reports."""
    return await evaluate(cycle, dataset, candidate, config, seed)

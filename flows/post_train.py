"""Stage 3: a candidate from the champion and the dataset's training split."""

from prefect import flow

from pipelines.artifacts import StageRecord
from pipelines.training.recipe import Recipe
from tasks.stage import CycleRef
from tasks.training import train


@flow(name="post_train")
async def post_train(cycle: CycleRef, dataset: StageRecord, recipe: Recipe = Recipe(), seed: int = 0) -> StageRecord:
    """SFT warm start, then GRPO with rollouts from vLLM; the record names the candidate's weights."""
    return await train(cycle, dataset, recipe, seed)

"""Stage 5: promote, hold or reject."""

from prefect import flow

from pipelines.artifacts import StageRecord
from pipelines.config import EconomicsConfig
from pipelines.promotion.policy import PromotionPolicy
from tasks.promotion import promote
from tasks.stage import CycleRef


@flow(name="promote_model")
async def promote_model(
    cycle: CycleRef,
    dataset: StageRecord,
    candidate: StageRecord,
    evaluation: StageRecord,
    policy: PromotionPolicy = PromotionPolicy(),
    economics: EconomicsConfig = EconomicsConfig(),
) -> StageRecord:
    """Decide from the evidence, with reasons; on promote, move the registry alias and production's traffic, and read back."""
    return await promote(cycle, dataset, candidate, evaluation, policy, economics)

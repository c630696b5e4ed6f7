"""Stage 2: a batch of traces into verifiable tasks and SFT rows."""

from prefect import flow

from pipelines.artifacts import StageRecord
from pipelines.config import RewardsConfig
from tasks.rewards import build_rewards
from tasks.stage import CycleRef


@flow(name="build_reward_dataset")
async def build_reward_dataset(cycle: CycleRef, traces: StageRecord, config: RewardsConfig = RewardsConfig()) -> StageRecord:
    """Signals, edge cases, tasks, splits, validation; the record names the dataset version."""
    return await build_rewards(cycle, traces, config)

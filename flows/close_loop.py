"""The loop, once: read this first. Each line of `close_loop` is a stage; each stage is a flow of its own."""

import asyncio
import time

from prefect import flow
from pydantic import JsonValue

from flows.build_reward_dataset import build_reward_dataset
from flows.evaluate_candidate import evaluate_candidate
from flows.ingest_traces import ingest_traces
from flows.post_train import post_train
from flows.promote_model import promote_model
from infra.cycles import cycle_lock
from infra.settings import Settings
from infra.stack.lifecycle import require_servers
from pipelines.artifacts import StageRecord
from pipelines.config import RunConfig
from tasks.cycle import begin, finish
from tasks.stage import CycleRef
from tasks.training import prepare_rollouts


@flow(name="close_loop")
async def close_loop(config: RunConfig = RunConfig()) -> dict[str, JsonValue]:
    """Run or resume one cycle; returns its record."""
    started = time.monotonic()
    cycle, record = await begin(config)
    if record is not None:
        return record
    stages = await run_stages(cycle, config)
    return await finish(cycle, config, stages, time.monotonic() - started)


async def run_stages(cycle: CycleRef, config: RunConfig) -> list[StageRecord]:
    """The stages of a cycle, each handing its record to the next; fewer when there is nothing to learn from."""
    traces = await ingest_traces(cycle, config.ingest)
    dataset = await build_reward_dataset(cycle, traces, config.rewards)
    if not is_worth_training(dataset, config):
        return [traces, dataset]
    await prepare_rollouts()
    candidate = await post_train(cycle, dataset, config.training, config.seed)
    evaluation = await evaluate_candidate(cycle, dataset, candidate, config.evaluation, config.seed)
    promotion = await promote_model(cycle, dataset, candidate, evaluation, config.promotion, config.economics)
    return [traces, dataset, candidate, evaluation, promotion]


def is_worth_training(dataset: StageRecord, config: RunConfig) -> bool:
    """Whether the dataset has the tasks that training and a paired comparison need."""
    enough = dataset.counts["train_tasks"] >= config.rewards.min_train_tasks
    return enough and dataset.counts["holdout_tasks"] >= config.rewards.min_holdout_tasks


def run_cycle(settings: Settings, config: RunConfig) -> dict[str, JsonValue]:
    """`everloop run`: one cycle in this process, one at a time on this machine."""
    require_servers(settings)
    with cycle_lock(settings):
        return asyncio.run(close_loop(config))

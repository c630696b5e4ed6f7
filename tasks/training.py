"""Post-training: the reward dataset's training split into a candidate, by a worker process with rollouts from vLLM."""

import asyncio
from pathlib import Path

from prefect import task
from pydantic import JsonValue

from infra.champion import declare_rollout_replica, ensure_champion, wait_for_rollout_replica
from infra.plots import Curve, plot_curves
from infra.trainers.launch import run_training
from infra.trainers.request import TrainingProgress, TrainingRequest, TrainingResult
from pipelines.artifacts import StageRecord, from_json
from pipelines.rewards.dataset_table import to_json_lines
from pipelines.rewards.model import RewardTask, SftRow, Split
from pipelines.training.recipe import Recipe
from tasks.stage import CycleRef, Product, Stage, may_retry, run_stage


@task(name="train", retries=1, retry_delay_seconds=5, retry_condition_fn=may_retry, tags=["training"])
async def train(cycle: CycleRef, dataset: StageRecord, recipe: Recipe, seed: int) -> StageRecord:
    """Train a candidate from the champion; a killed run resumes from its last checkpoint."""

    def work(stage: Stage) -> Product:
        return _train(stage, dataset, recipe, seed)

    return await asyncio.to_thread(run_stage, "post_train", cycle, {"recipe": recipe, "seed": seed}, (dataset,), work)


@task(name="warm up rollouts", tags=["inference"])
async def prepare_rollouts() -> str:
    """Ask for the rollout replica early, so that it starts while the dataset is built; returns the champion's name."""
    from infra.lake import open_lake
    from infra.settings import Settings

    settings = Settings()
    champion = await asyncio.to_thread(ensure_champion, settings, open_lake(settings))
    await asyncio.to_thread(declare_rollout_replica, settings, champion.model_dir)
    return champion.served_name


def _train(stage: Stage, dataset: StageRecord, recipe: Recipe, seed: int) -> Product:
    champion = ensure_champion(stage.settings, stage.lake)
    declare_rollout_replica(stage.settings, champion.model_dir)
    replica = wait_for_rollout_replica(stage.settings)
    request = TrainingRequest(
        base_model=str(champion.model_dir),
        dataset=str(_training_split(stage, dataset)),
        work_dir=str(stage.work_dir / "training"),
        recipe=recipe,
        rollout_url=replica.base_url,
        rollout_model=replica.served_name,
        seed=seed,
        mlflow_url=stage.settings.mlflow_url,
        run_id=stage.run_id,
    )
    result = run_training(request, on_progress=lambda progress: stage.say(describe(progress)))
    warm = stage.lake.write_artifact("model", Path(result.warm_start_dir), parents=(dataset.digest, champion.manifest_digest))
    model = stage.lake.write_artifact("model", Path(result.model_dir), parents=(dataset.digest, champion.manifest_digest))
    stage.tracking.log_figure(stage.run_id, plot_curves(_curves(result)), "training.png")
    counts = {"train_tasks": result.num_tasks, "sft_rows": result.num_sft_rows, "too_long": result.num_too_long}
    return Product(
        model.uri, model.manifest.digest, counts | _rollout_counts(result), _facts(result) | {"warm_start_uri": warm.uri}
    )


def describe(progress: TrainingProgress) -> str:
    """One line for people: phase, bar, step and the numbers that matter."""
    if progress.message:
        return progress.message
    filled = round(20 * progress.step / max(1, progress.of))
    shown = [f"{name} {progress.metrics[name]:.3f}" for name in ("loss", "reward", "truncated_share") if name in progress.metrics]
    return f"{progress.phase:<4} [{'#' * filled}{'.' * (20 - filled)}] {progress.step}/{progress.of}  {'  '.join(shown)}"


def _training_split(stage: Stage, dataset: StageRecord) -> Path:
    """The training rows alone, as the worker reads them: held-out tasks are not within its reach."""
    source = stage.lake.open_artifact(dataset.uri)
    target = stage.work_dir / "dataset"
    target.mkdir(exist_ok=True)
    tasks = [from_json(RewardTask, line) for line in (source / "tasks.jsonl").read_bytes().split(b"\n") if line]
    rows = [from_json(SftRow, line) for line in (source / "sft.jsonl").read_bytes().split(b"\n") if line]
    (target / "tasks.jsonl").write_bytes(to_json_lines([t for t in tasks if t.split is Split.TRAIN]))
    (target / "sft.jsonl").write_bytes(to_json_lines(rows))
    return target


def _rollout_counts(result: TrainingResult) -> dict[str, int]:
    steps = result.facts.rollouts
    return {
        "sft_steps": result.facts.sft_steps,
        "grpo_steps": result.facts.grpo_steps,
        "rollouts": sum(s.num_rollouts for s in steps),
        "rollout_output_tokens": sum(s.output_tokens for s in steps),
        "rollout_input_tokens": sum(s.input_tokens for s in steps),
    }


def _facts(result: TrainingResult) -> dict[str, JsonValue]:
    steps = result.facts.rollouts
    return {
        "mean_reward_first": steps[0].mean_reward if steps else None,
        "mean_reward_last": steps[-1].mean_reward if steps else None,
        "masked_share": result.facts.share("masked"),
        "truncated_share": result.facts.share("truncated"),
        "zero_variance_share": result.facts.share("zero_variance"),
        "logprob_gap": result.facts.logprob_gap,
        "sft_loss_first": result.facts.sft_losses[0] if result.facts.sft_losses else None,
        "sft_loss_last": result.facts.sft_losses[-1] if result.facts.sft_losses else None,
        "sft_wall_s": result.sft_wall_s,
        "grpo_wall_s": result.grpo_wall_s,
        "resumed_from": dict(result.resumed_from),
        "weight_versions": [s.version for s in steps],
    }


def _curves(result: TrainingResult) -> list[Curve]:
    losses = result.facts.sft_losses
    steps = [s for s in result.facts.rollouts if s.mean_reward is not None]
    curves = [Curve("SFT loss", range(1, len(losses) + 1), losses, "SFT loss")]
    rewards = [s.mean_reward or 0.0 for s in steps]
    curves.append(Curve("mean reward", [s.step for s in steps], rewards, "GRPO mean reward"))
    return [c for c in curves if len(c.steps)]

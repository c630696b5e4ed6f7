"""A candidate with damaged weights, served and evaluated for real, is rejected and production keeps what it had."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import JsonValue
from safetensors.torch import load_file, save_file

from flows.evaluate_candidate import evaluate_candidate
from flows.promote_model import promote_model
from infra import gateway, registry
from infra.champion import ensure_champion
from infra.inference.replicas import list_replicas
from infra.lake import Lake, open_lake
from infra.settings import Settings
from infra.stack.environment import settings_environment
from infra.stack.lifecycle import start_stack, stop_stack
from infra.tracking import Tracking
from infra.trainers.launch import run_training
from infra.trainers.request import TrainingRequest
from pipelines.artifacts import StageRecord
from pipelines.config import EvaluationConfig
from pipelines.rewards.dataset_table import to_json_lines
from pipelines.rewards.model import RewardTask, SftRow, Split
from pipelines.traces.model import Message, Role, ToolCall
from pipelines.training.recipe import GrpoRecipe, Recipe, SftRecipe
from tasks.stage import EXPERIMENT, CycleRef
from tests.integration.engine_fixtures import make_tiny_model
from tests.integration.stack_fixtures import stack_settings
from tests.integration.test_training import TOOL

NUM_TASKS = 40


def write_dataset(folder: Path) -> Path:
    """Many ways to ask about one order, so that a tiny model can learn the answer in a minute."""
    folder.mkdir()
    tasks, rows = [], []
    arguments: dict[str, JsonValue] = {"order_id": 7}
    answer = Message(Role.ASSISTANT, None, (ToolCall(TOOL.name, arguments, '{"order_id": 7}'),))
    for number in range(NUM_TASKS):
        prompt = (Message(Role.USER, f"Request {number}: where is my order 7?"),)
        own = (f"task-{number}", f"group-{number}", (f"trace-{number}",))
        verifier: dict[str, JsonValue] = {"name": TOOL.name, "arguments": arguments}
        tasks.append(
            RewardTask(
                id=own[0],
                kind="tool_call",
                prompt=prompt,
                tools=(TOOL,),
                verifier="tool_call",
                arguments=verifier,
                split=Split.HOLDOUT,
                group=own[1],
                cluster="lost",
                provenance=own[2],
            )
        )
        rows.append(SftRow(prompt, (TOOL,), answer, own[0], "correction", own[2]))
    (folder / "tasks.jsonl").write_bytes(to_json_lines(tasks))
    (folder / "sft.jsonl").write_bytes(to_json_lines(rows))
    return folder


def teach(base: Path, dataset: Path, work: Path) -> Path:
    """A tiny model that knows the tasks by heart: the champion of this test."""
    recipe = Recipe(
        sft=SftRecipe(steps=60, batch_size=8, learning_rate=3e-3, save_every=60),
        grpo=GrpoRecipe(steps=0),
        trainable_layers=None,
    )
    request = TrainingRequest(
        base_model=str(base), dataset=str(dataset), work_dir=str(work), recipe=recipe, rollout_url="", rollout_model=""
    )
    return Path(run_training(request, on_progress=lambda _: None).model_dir)


def damage(model: Path, target: Path) -> Path:
    """The same model with noise on its weights."""
    shutil.copytree(model, target)
    noise = torch.Generator().manual_seed(0)
    weights = load_file(model / "model.safetensors")
    spoilt = {k: (v.float() + 0.5 * torch.randn(v.shape, generator=noise)).to(v.dtype) for k, v in weights.items()}
    save_file(spoilt, target / "model.safetensors", metadata={"format": "pt"})
    return target


def record(stage: str, uri: str, digest: str, counts: dict[str, int], **facts: Any) -> StageRecord:
    return StageRecord(stage, f"test-{stage}", uri, digest, (), counts, 0.0, "", facts)


def store_dataset(lake: Lake, folder: Path) -> StageRecord:
    artifact = lake.write_artifact("dataset", folder)
    return record("build_reward_dataset", artifact.uri, artifact.manifest.digest, {"regression_tasks": 0})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_damaged_candidate_is_rejected_and_serving_is_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write_dataset(tmp_path / "dataset")
    good = teach(make_tiny_model(tmp_path / "base", 1), dataset, tmp_path / "work")
    settings: Settings = stack_settings(tmp_path / "home", base_model=good)
    for name, value in settings_environment(settings).items():
        monkeypatch.setenv(name, value)
    lake = open_lake(settings)
    start_stack(settings)
    try:
        champion = ensure_champion(settings, lake)
        before = gateway.read_endpoint(settings, settings.endpoint)
        spoilt = lake.write_artifact("model", damage(good, tmp_path / "damaged"))
        candidate = record("post_train", spoilt.uri, spoilt.manifest.digest, {}, warm_start_uri=spoilt.uri)
        with temporary_settings({PREFECT_API_URL: settings.prefect_api_url}):
            facts = asyncio.run(evaluate_and_decide(settings, store_dataset(lake, dataset), candidate))

        assert facts["pass_rates"]["champion/holdout"] > 0.5
        assert facts["pass_rates"]["candidate/holdout"] < 0.1
        assert facts["decision"]["verdict"] == "reject"
        assert facts["served_model"] == champion.served_name
        assert gateway.read_endpoint(settings, settings.endpoint) == before
        assert gateway.warm(settings, settings.endpoint) == champion.served_name
        kept = registry.champion(settings)
        assert kept is not None
        assert kept.version == champion.version
        assert [r.served_name for r in list_replicas(settings)] == [champion.served_name]
    finally:
        stop_stack(settings)


async def evaluate_and_decide(settings: Settings, dataset: StageRecord, candidate: StageRecord) -> dict[str, Any]:
    cycle = CycleRef("c-damaged", Tracking(settings.mlflow_url).start_cycle(EXPERIMENT, "c-damaged"))
    config = EvaluationConfig(evaluate_warm_start=False, max_tokens=32, swebench_max_tokens=8)
    evaluation = await evaluate_candidate(cycle, dataset, candidate, config)
    promotion = await promote_model(cycle, dataset, candidate, evaluation)
    return {**evaluation.facts, **promotion.facts}

"""Training for real at small size: SFT and GRPO with rollouts from a real vLLM, killed and resumed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from pydantic import JsonValue

from infra.inference.base_model import check_model_folder
from infra.inference.replicas import ReplicaSpec
from infra.inference.weights import served_version, weights_version
from infra.trainers.checkpoints import MARKER, newest_checkpoint
from infra.trainers.launch import ROOT, run_training
from infra.trainers.request import TrainingProgress, TrainingRequest
from pipelines.artifacts import to_json
from pipelines.errors import TrainingError
from pipelines.rewards.dataset_table import to_json_lines
from pipelines.rewards.model import RewardTask, SftRow, Split
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec
from pipelines.training.recipe import GrpoRecipe, HealthLimits, Recipe, SftRecipe
from tests.integration.engine_fixtures import TinyModels

TOOL = ToolSpec("look_up_order", "Find an order.", {"type": "object", "properties": {"order_id": {"type": "integer"}}})
# A random model answers noise: every group scores 0 and runs to the limit, which the default limits rightly refuse.
LENIENT = HealthLimits(max_truncated_share=1.0, max_zero_variance_share=1.0)


def write_dataset(folder: Path, num_tasks: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tasks, rows = [], []
    for number in range(num_tasks):
        prompt = (Message(Role.USER, f"Where is my order {4000 + number}?"),)
        arguments: dict[str, JsonValue] = {"order_id": 4000 + number}
        tasks.append(
            RewardTask(
                f"task-{number}",
                "tool_call",
                prompt,
                (TOOL,),
                "tool_call",
                {"name": TOOL.name, "arguments": arguments},
                Split.TRAIN,
                f"g{number}",
                "c",
                (f"t{number}",),
            )
        )
        answer = Message(Role.ASSISTANT, None, (ToolCall(TOOL.name, dict(arguments), orjson.dumps(arguments).decode()),))
        rows.append(SftRow(prompt, (TOOL,), answer, f"task-{number}", "correction", (f"t{number}",)))
    (folder / "tasks.jsonl").write_bytes(to_json_lines(tasks))
    (folder / "sft.jsonl").write_bytes(to_json_lines(rows))
    return folder


def make_request(tmp_path: Path, model: Path, replica: ReplicaSpec, *, sft: int, grpo: int) -> TrainingRequest:
    recipe = Recipe(
        sft=SftRecipe(steps=sft, batch_size=2, save_every=1, warmup_steps=0, learning_rate=1e-3),
        grpo=GrpoRecipe(steps=grpo, prompts_per_step=2, group_size=2, max_completion_tokens=8, save_every=1, learning_rate=1e-3),
        health=LENIENT,
        trainable_layers=1,
    )
    return TrainingRequest(
        base_model=str(model),
        dataset=str(write_dataset(tmp_path / "dataset")),
        work_dir=str(tmp_path / "work"),
        recipe=recipe,
        rollout_url=replica.base_url,
        rollout_model=replica.served_name,
    )


def test_sft_then_grpo_makes_new_weights_that_the_replica_took_each_step(
    tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec
) -> None:
    seen: list[TrainingProgress] = []
    result = run_training(make_request(tmp_path, tiny_models.one, rollout_replica, sft=2, grpo=2), on_progress=seen.append)

    assert (result.facts.sft_steps, result.facts.grpo_steps) == (2, 2)
    assert [s.num_rollouts for s in result.facts.rollouts] == [4, 4]
    warm, final = check_model_folder(Path(result.warm_start_dir)), check_model_folder(Path(result.model_dir))
    assert weights_version(tiny_models.one) != weights_version(warm)
    # The replica's first rollouts came from the warm start, the next from other weights, or the same when nothing scored.
    assert served_version(rollout_replica.base_url) == result.facts.rollouts[-1].version
    assert result.facts.logprob_gap is not None
    assert result.facts.logprob_gap < 0.2
    assert {p.phase for p in seen} == {"sft", "grpo"}
    assert final.name == "model"


def test_a_killed_worker_resumes_at_its_last_checkpoint_and_takes_only_the_steps_that_are_left(
    tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec
) -> None:
    request = make_request(tmp_path, tiny_models.one, rollout_replica, sft=40, grpo=0)
    work = Path(request.work_dir)
    work.mkdir(parents=True)
    (work / "request.json").write_bytes(to_json(request))
    worker = subprocess.Popen(
        [sys.executable, "-m", "infra.trainers.worker", str(work / "request.json")], cwd=ROOT, start_new_session=True
    )
    deadline = time.monotonic() + 200
    while not list(work.glob(f"sft/checkpoint-*/{MARKER}")):
        assert worker.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    found = newest_checkpoint(work / "sft")
    assert found is not None

    seen: list[TrainingProgress] = []
    result = run_training(request, on_progress=seen.append)

    assert result.resumed_from == {"sft": found[1]}
    assert result.facts.sft_steps == 40
    assert [p.step for p in seen if not p.message] == list(range(found[1] + 1, 41))
    assert any("resumes at step" in p.message for p in seen)


def test_a_worker_killed_after_its_last_step_only_writes_the_model(
    tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec
) -> None:
    request = make_request(tmp_path, tiny_models.one, rollout_replica, sft=3, grpo=0)
    first = run_training(request, on_progress=lambda _: None)
    trained = weights_version(Path(first.warm_start_dir))
    work = Path(request.work_dir)
    shutil.rmtree(work / "warm_start")
    (work / "sft.json").unlink()

    seen: list[TrainingProgress] = []
    second = run_training(request, on_progress=seen.append)

    assert [p.step for p in seen if not p.message] == []
    assert weights_version(Path(second.warm_start_dir)) == trained
    assert second.facts.sft_losses == first.facts.sft_losses
    assert second.facts.sft_steps == 3


def test_a_loss_that_is_not_a_number_fails_training(
    tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec
) -> None:
    request = make_request(tmp_path, tiny_models.one, rollout_replica, sft=3, grpo=0)
    recipe = request.recipe.model_copy(update={"sft": request.recipe.sft.model_copy(update={"learning_rate": 1e30})})

    with pytest.raises(TrainingError, match="sft_loss: not finite"):
        run_training(replace(request, recipe=recipe), on_progress=lambda _: None)


def test_a_checkpoint_that_was_not_finished_is_deleted_and_the_one_before_it_counts(tmp_path: Path) -> None:
    for step, complete in ((1, True), (2, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if complete:
            (tmp_path / f"checkpoint-{step}" / MARKER).touch()

    assert newest_checkpoint(tmp_path) == (tmp_path / "checkpoint-1", 1)
    assert not (tmp_path / "checkpoint-2").exists()


def test_a_finished_training_is_not_trained_again(tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec) -> None:
    request = make_request(tmp_path, tiny_models.one, rollout_replica, sft=1, grpo=0)
    first = run_training(request, on_progress=lambda _: None)
    seen: list[TrainingProgress] = []
    second = run_training(request, on_progress=seen.append)

    assert seen == []
    assert second == first


def test_a_dead_rollout_server_fails_training_and_is_never_a_reward_of_zero(
    tmp_path: Path, tiny_models: TinyModels, rollout_replica: ReplicaSpec
) -> None:
    request = make_request(tmp_path, tiny_models.one, rollout_replica, sft=0, grpo=1)
    nobody = replace(request, rollout_url="http://127.0.0.1:9/v1")

    with pytest.raises(TrainingError, match=r"127\.0\.0\.1:9"):
        run_training(nobody, on_progress=lambda _: None)
    assert not (tmp_path / "work" / "result.json").exists()

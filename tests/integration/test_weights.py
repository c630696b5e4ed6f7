"""A rollout replica takes new weights while it runs; a serving replica has no route for it."""

import asyncio
from pathlib import Path

import pytest

from infra.inference.client import ChatClient, Completion, Sampling
from infra.inference.replicas import ReplicaSpec, Role
from infra.inference.vllm_server import server_environment
from infra.inference.weights import check_version, served_version, sync_weights, weights_version
from infra.settings import Settings
from pipelines.errors import InfrastructureError
from pipelines.traces.model import Message
from pipelines.traces.model import Role as MessageRole
from tests.integration.engine_fixtures import TinyModels

PROMPT = (Message(MessageRole.USER, "Where is my order 4711?"),)


def ask(replica: ReplicaSpec) -> Completion:
    async def complete() -> list[Completion]:
        async with ChatClient(replica.base_url, replica.served_name) as client:
            return await client.complete(PROMPT, (), Sampling(max_tokens=12), token_ids=True)

    return asyncio.run(complete())[0]


def test_new_weights_change_what_is_served_and_their_version_reads_back(
    rollout_replica: ReplicaSpec, tiny_models: TinyModels
) -> None:
    for model in (tiny_models.one, tiny_models.other, tiny_models.one):
        sync_weights(rollout_replica.base_url, model, weights_version(model))
        assert served_version(rollout_replica.base_url) == weights_version(model)
    first = ask(rollout_replica)
    sync_weights(rollout_replica.base_url, tiny_models.other, weights_version(tiny_models.other))
    second = ask(rollout_replica)
    sync_weights(rollout_replica.base_url, tiny_models.one, weights_version(tiny_models.one))

    assert first.token_ids != second.token_ids
    assert ask(rollout_replica).token_ids == first.token_ids


def test_weights_that_somebody_else_loaded_are_noticed(rollout_replica: ReplicaSpec, tiny_models: TinyModels) -> None:
    ours, theirs = weights_version(tiny_models.one), weights_version(tiny_models.other)
    sync_weights(rollout_replica.base_url, tiny_models.one, ours)
    check_version(rollout_replica.base_url, ours)
    sync_weights(rollout_replica.base_url, tiny_models.other, theirs)

    with pytest.raises(InfrastructureError, match="does another trainer use it"):
        check_version(rollout_replica.base_url, ours)


def test_a_completion_carries_the_tokens_and_log_probabilities_it_was_drawn_with(rollout_replica: ReplicaSpec) -> None:
    completion = ask(rollout_replica)

    assert len(completion.prompt_token_ids) == completion.input_tokens
    assert len(completion.token_ids) == len(completion.logprobs) == completion.output_tokens
    assert all(logprob <= 0.0 for logprob in completion.logprobs)


def test_a_missing_weights_folder_is_refused_and_the_old_version_stays(
    rollout_replica: ReplicaSpec, tiny_models: TinyModels, tmp_path: Path
) -> None:
    sync_weights(rollout_replica.base_url, tiny_models.one, weights_version(tiny_models.one))

    with pytest.raises(InfrastructureError, match=r"no \*\.safetensors"):
        weights_version(tmp_path)
    assert served_version(rollout_replica.base_url) == weights_version(tiny_models.one)


def test_a_replica_that_serves_production_never_gets_development_routes() -> None:
    spec = ReplicaSpec("policy", "model", "policy-1", 8000, Role.SERVING)

    assert "VLLM_SERVER_DEV_MODE" not in server_environment(spec, Settings())

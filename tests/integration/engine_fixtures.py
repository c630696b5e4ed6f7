"""A tiny model made here (two-layer Llama, real tokenizer and chat template) and a real vLLM replica that serves it."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from infra.inference.convert_base import CHAT_TEMPLATE, bundled_gguf
from infra.inference.replicas import ReplicaSpec, Role
from infra.inference.vllm_server import server_command, server_environment
from infra.settings import Settings
from tests.integration.stack_fixtures import free_ports

START_TIMEOUT_S = 280.0


@dataclass(frozen=True, slots=True)
class TinyModels:
    """Two models of the same shape with different weights."""

    one: Path
    other: Path


def make_tiny_model(folder: Path, seed: int) -> Path:
    """Write a two-layer Llama with random weights and the real tokenizer to a folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedModel

    source = bundled_gguf()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    root = tmp_path_factory.mktemp("models")
    return TinyModels(make_tiny_model(root / "one", 1), make_tiny_model(root / "other", 2))


@pytest.fixture(scope="session")
def rollout_replica(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSpec]:
    """A vLLM process of role rollout that serves the first tiny model as `rollout`."""
    folder = tmp_path_factory.mktemp("vllm")
    spec = ReplicaSpec("rollout", str(tiny_models.one), "rollout", free_ports(1)[0], Role.ROLLOUT)
    settings = Settings(home=folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(server_command(spec, settings), env=server_environment(spec, settings), stdout=log, stderr=log)
    try:
        _wait(spec, process, folder / "log")
        yield spec
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # vLLM ends slowly on a busy machine; it must not outlive the session
            process.kill()
            process.wait()


def _wait(spec: ReplicaSpec, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    url = spec.base_url.removesuffix("/v1") + "/health"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"vLLM did not answer within {START_TIMEOUT_S:.0f} s:\n{log.read_text(errors='replace')[-3000:]}")

"""The model under training: loading it with only its top layers trainable, and writing it as vLLM loads it."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.errors import ConfigError

IGNORED = -100
"""Label of a position that is not scored, as in transformers and TRL."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)


def load_policy(folder: Path, trainable_layers: int | None) -> Any:
    """The model in float32 with the top `trainable_layers` and the final norm trainable; raises ConfigError when it has fewer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.use_cache = False
    if trainable_layers is None:
        return model
    layers = model.model.layers
    if trainable_layers > len(layers):
        raise ConfigError(
            f"training.trainable_layers {trainable_layers}: {folder} has {len(layers)} layers; ask for at most that"
        )
    model.requires_grad_(False)
    for layer in layers[len(layers) - trainable_layers :]:
        layer.requires_grad_(True)
    model.model.norm.requires_grad_(True)
    return model


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer; raises ConfigError when it has no chat template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        raise ConfigError(f"base model {folder}: its tokenizer has no chat template; save one with it")
    return tokenizer


def save_weights(model: Any, folder: Path) -> None:
    """Write bfloat16 weights alone as `model.safetensors`; a tied output embedding is left out, as in save_pretrained."""
    from safetensors.torch import save_file

    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    state = {
        name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items() if name not in tied
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def export_model(model: Any, source: Path, target: Path) -> None:
    """Write a complete model folder under a temporary name, then rename it: it exists whole or not at all."""
    work = target.with_name(f".{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    save_weights(model, work)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["dtype"] = "bfloat16"
    (work / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)

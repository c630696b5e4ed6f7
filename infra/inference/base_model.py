"""The first champion's weights: a folder in Hugging Face layout with a tool-calling chat template.

Owns the cache of the bundled model (SmolLM2-135M-Instruct, converted once by `convert_base`) and the check of a user's own base
model. Refuses to download anything.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.inference.convert_base import bundled_gguf
from infra.settings import Settings
from pipelines.errors import ConfigError, InfrastructureError

REPOSITORY = Path(__file__).resolve().parents[2]
CONVERSION_TIMEOUT_S = 600
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
        raise InfrastructureError(f"base model: cannot write {target} ({error.strerror})") from error
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
    bundled_gguf()
    command = [sys.executable, "-m", "infra.inference.convert_base", str(target)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=CONVERSION_TIMEOUT_S)
    if done.returncode != 0:
        last = done.stderr.strip().rsplit("\n", 1)[-1] or f"exit code {done.returncode}"
        raise InfrastructureError(
            f"base model: cannot write {target.parent / MODEL_NAME} ({last}); it takes about 300 MB of disk"
        )

"""Environment variables of everything Everloop starts: settings passed on, addresses of the servers, no telemetry, no model hub.

Owns names and values. Refuses to change this process's environment (the command line does, before it imports a flow).
"""

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import infra
from infra.settings import Settings

REPOSITORY = Path(infra.__file__).absolute().parent.parent
"""Root of the checkout: deployments import flows from here."""

QUIET: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
}


def settings_environment(settings: Settings) -> dict[str, str]:
    """The settings as EVERLOOP_* variables, paths made absolute, so that a child started elsewhere reads the same ones."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    values |= {"home": settings.root, "serving_python": serving_python(settings)}
    return {f"EVERLOOP_{name.upper()}": _as_text(value) for name, value in values.items() if value is not None}


def serving_python(settings: Settings) -> Path:
    """Interpreter of the serving environment, absolute: from the working folder, else from the checkout.

    Links are not followed: an interpreter finds its environment by the path it was started under.
    """
    path = settings.serving_python.expanduser()
    return path.absolute() if path.exists() else REPOSITORY / path


def client_environment(settings: Settings) -> dict[str, str]:
    """What a process needs to run flows against the local stack."""
    return {
        **QUIET,
        **settings_environment(settings),
        # Where deployed flows run: `prefect deploy` puts it into the deployments of prefect.yaml.
        "EVERLOOP_ROOT": str(REPOSITORY),
        "HF_HOME": str(settings.root / "cache" / "huggingface"),
        "MLFLOW_TRACKING_URI": settings.mlflow_url,
        "PREFECT_API_URL": settings.prefect_api_url,
        "PREFECT_HOME": str(settings.root / "prefect"),
    }


def part_environment(settings: Settings, extra: Mapping[str, str]) -> dict[str, str]:
    """Environment of one part: the caller's, without Prefect and MLflow settings that would point the stack elsewhere."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    return {**inherited, **client_environment(settings), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **extra}


def mlflow_secrets(settings: Settings) -> dict[str, str]:
    """Keys under which MLflow encrypts gateway and webhook secrets; made once, readable by the owner only.

    Losing them makes the stored secrets unreadable, so they live beside the database.
    """
    folder = settings.root / "mlflow"
    return {
        "MLFLOW_CRYPTO_KEK_PASSPHRASE": _kept_secret(folder / "gateway-passphrase"),
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": _kept_secret(folder / "webhook-key"),
    }


def _kept_secret(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # 32 random bytes in URL-safe base64: also the form of a Fernet key, which the webhook store needs.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.touch(mode=0o600)
        temporary.write_bytes(urlsafe_b64encode(secrets.token_bytes(32)))
        temporary.replace(path)
    return path.read_text()


def _as_text(value: object) -> str:
    return str(value.expanduser().absolute()) if isinstance(value, Path) else str(value)

"""Where things run: settings from the environment (`EVERLOOP_*`, or `.env`). What changes a result is a run config instead."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once at the entry point and passed on. Every field can be set as EVERLOOP_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", env_file=".env", extra="ignore", frozen=True)

    home: Path = Path(".everloop")
    """State of the local stack: databases, logs, the converted base model, the local lake."""
    lake: str = ""
    """Root URL of the lake: a folder or s3://bucket/prefix. Empty: `<home>/lake`."""
    s3_endpoint_url: str = ""
    """S3 API server when it is not AWS, as http(s)://host:port. Empty: the AWS default. Credentials come from the usual AWS variables."""
    host: str = "127.0.0.1"
    """Address the local parts listen on."""
    prefect_port: int = Field(4200, ge=1, le=65535)
    mlflow_port: int = Field(5000, ge=1, le=65535)
    serving_port: int = Field(8000, ge=1, le=65535)
    """First vLLM replica; further replicas take the next free ports above it."""
    max_replicas: int = Field(4, ge=2, le=64)
    """How many ports above serving_port replicas may use."""
    base_model: Path | None = None
    """Folder of the first champion in Hugging Face layout. None: SmolLM2-135M-Instruct, converted once under home."""
    serving_python: Path = Path(".venv-serving/bin/python")
    """Interpreter of the environment that holds vLLM."""
    vllm_kv_cache_gib: float = Field(0.5, gt=0)
    """KV cache of each replica, GiB. SmolLM2-135M takes 23 KB a token (30 layers, 3 KV heads of 64, bfloat16): 0.5 holds 23,000."""
    endpoint: str = "support-agent"
    """AI Gateway endpoint that production calls."""
    registered_model: str = "everloop-policy"
    """Name in the MLflow model registry."""
    startup_timeout_s: float = Field(300.0, gt=0)
    """How long `everloop up` and a promotion wait for a part to answer."""

    @property
    def root(self) -> Path:
        """`home`, absolute."""
        return self.home.expanduser().absolute()

    @property
    def lake_url(self) -> str:
        return self.lake or str(self.root / "lake")

    @property
    def prefect_api_url(self) -> str:
        return f"http://{self.host}:{self.prefect_port}/api"

    @property
    def mlflow_url(self) -> str:
        return f"http://{self.host}:{self.mlflow_port}"

    @property
    def gateway_url(self) -> str:
        """OpenAI-compatible passthrough of the AI Gateway, without /chat/completions."""
        return f"{self.mlflow_url}/gateway/openai/v1"

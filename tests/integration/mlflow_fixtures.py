"""A real MLflow server (SQLite, AI Gateway) for the session, and settings that point to it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from infra.inference.replicas import ReplicaSpec
from infra.settings import Settings

_START_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running vLLM that the gateway can point to."""

    base_url: str
    model: str


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that lives as long as the test session."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    process = _start(_command(folder, port), _environment(), log)
    try:
        _wait(url, process, log)
        yield url
    finally:
        _stop(process)


@pytest.fixture(scope="session")
def upstream(rollout_replica: ReplicaSpec) -> Upstream:
    """The session's vLLM (`engine_fixtures`): a second one would cost another minute and 2 GB."""
    return Upstream(rollout_replica.base_url, rollout_replica.served_name)


@pytest.fixture
def mlflow_settings(mlflow_url: str, tmp_path: Path) -> Settings:
    """Settings of this server, with a registered model and an endpoint of the test's own."""
    port = int(mlflow_url.rsplit(":", 1)[1])
    own = uuid4().hex[:8]
    return Settings(home=tmp_path, mlflow_port=port, registered_model=f"policy-{own}", endpoint=f"endpoint-{own}")


@pytest.fixture
def dead_settings(tmp_path: Path) -> Settings:
    """Settings that point to a port where nothing listens."""
    return Settings(home=tmp_path, mlflow_port=free_port())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(folder: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]


def _environment() -> dict[str, str]:
    return os.environ | {
        "MLFLOW_GATEWAY_API_BASE_ALLOWED_SCHEMES": "https,http",
        "MLFLOW_GATEWAY_API_BASE_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_CRYPTO_KEK_PASSPHRASE": "only-for-tests",
    }


def _start(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and all it started: a server killed while it imports leaves its workers behind."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    pytest.fail(f"the server at {url} did not start:\n{log.read_text(errors='replace')[-3000:]}")

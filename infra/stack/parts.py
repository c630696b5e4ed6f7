"""What the stack runs: command, environment, port and sign of life of each part. Refuses to start them (`supervisor` does)."""

import http.client
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

import orjson

from infra.inference.replicas import ReplicaSpec, served_models
from infra.inference.vllm_server import server_command, server_environment
from infra.settings import Settings
from infra.stack.environment import mlflow_secrets, part_environment
from infra.stack.processes import STACK_ID

PREFECT = "prefect"
WORKER = "prefect-worker"
MLFLOW = "mlflow"
WORK_POOL = "everloop"
WORKER_NAME = "local"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command with its whole environment (which holds secrets: never printed)."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """One process that should run."""

    name: str
    host: str
    port: int | None
    """Port it listens on; None when it listens nowhere."""
    port_setting: str
    """Setting to change when the port is taken."""
    launch: Callable[[], Launch]
    """How to start it, asked at every start. Raises an EverloopError when something it needs is missing."""
    answers: Callable[[float], bool]
    """Whether it is ready, given when its process started (seconds since the epoch). Returns within about two seconds."""
    needs: str = ""
    """Part that has to be up before this one starts."""


def server_parts(settings: Settings) -> tuple[Part, ...]:
    """Prefect server and worker, MLflow server."""
    return _prefect_server(settings), _mlflow_server(settings), _prefect_worker(settings)


def replica_part(settings: Settings, spec: ReplicaSpec) -> Part:
    """A declared vLLM replica."""
    return Part(
        name=spec.part_name,
        host=spec.host,
        port=spec.port,
        port_setting="EVERLOOP_SERVING_PORT",
        launch=lambda: Launch(
            command=tuple(server_command(spec, settings)),
            environment={**server_environment(spec, settings), STACK_ID: os.environ.get(STACK_ID, "")},
        ),
        answers=lambda _: spec.served_name in served_models(spec),
    )


def _prefect_server(settings: Settings) -> Part:
    host, port = settings.host, settings.prefect_port
    extra = {"PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false"}
    return Part(
        name=PREFECT,
        host=host,
        port=port,
        port_setting="EVERLOOP_PREFECT_PORT",
        launch=lambda: Launch(
            command=(*_python("prefect"), "server", "start", "--host", host, "--port", str(port)),
            environment=part_environment(settings, extra),
        ),
        answers=lambda _: _request(host, port, "GET", "/api/health") is not None,
    )


def _prefect_worker(settings: Settings) -> Part:
    extra = {"PREFECT_WORKER_QUERY_SECONDS": "3", "PREFECT_WORKER_HEARTBEAT_SECONDS": "10"}
    options = ("--pool", WORK_POOL, "--type", "process", "--name", WORKER_NAME, "--install-policy", "never")
    return Part(
        name=WORKER,
        host=settings.host,
        port=None,
        port_setting="",
        launch=lambda: Launch((*_python("prefect"), "worker", "start", *options), part_environment(settings, extra)),
        answers=lambda started_s: _worker_heartbeats(settings, started_s),
        needs=PREFECT,
    )


def _mlflow_server(settings: Settings) -> Part:
    host, port, folder = settings.host, settings.mlflow_port, settings.root / "mlflow"
    options = {
        "--host": host,
        "--port": str(port),
        "--workers": "1",
        "--backend-store-uri": f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination": str(folder / "artifacts"),
        "--uvicorn-opts": "--no-access-log",
    }
    extra = {
        # The gateway's upstream is vLLM on this machine: plain http on a private address.
        "MLFLOW_GATEWAY_API_BASE_ALLOWED_SCHEMES": "https,http",
        "MLFLOW_GATEWAY_API_BASE_ALLOW_PRIVATE_IPS": "true",
        # Judges and scorers as server jobs are not used here, and would cost 1.5 GB in eight more processes.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    return Part(
        name=MLFLOW,
        host=host,
        port=port,
        port_setting="EVERLOOP_MLFLOW_PORT",
        launch=lambda: Launch(
            command=(*_python("mlflow"), "server", *chain.from_iterable(options.items())),
            environment=part_environment(settings, {**mlflow_secrets(settings), **extra}),
        ),
        answers=lambda _: _request(host, port, "GET", "/health") is not None,
    )


def _python(module: str) -> tuple[str, ...]:
    # Not the console script: its first line cannot name an interpreter whose path has a space everywhere.
    return sys.executable, "-m", module


def _worker_heartbeats(settings: Settings, started_s: float) -> bool:
    """Whether the worker has reported since it started; an earlier one of the same name may still count as online."""
    path = f"/api/work_pools/{WORK_POOL}/workers/filter"
    workers = orjson.loads(_request(settings.host, settings.prefect_port, "POST", path, body=b"{}") or b"[]")
    beats = [datetime.fromisoformat(w["last_heartbeat_time"]).timestamp() for w in workers if w["name"] == WORKER_NAME]
    return any(beat >= started_s for beat in beats)


def _request(host: str, port: int, method: str, path: str, *, body: bytes | None = None) -> bytes | None:
    """Body of a 2xx answer, None for anything else. http.client: no proxy variable applies to the local stack."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request(method, path, body=body, headers={"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        answer = response.read()
        return answer if 200 <= response.status < 300 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()

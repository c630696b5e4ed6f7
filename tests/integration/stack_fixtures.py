"""A running local stack for integration tests: real Prefect server, worker and MLflow server on free ports, started once."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.settings import Settings
from infra.stack.lifecycle import start_stack, stop_stack


@dataclass(frozen=True, slots=True)
class RunningStack:
    """The stack that the tests of this session share. Tests may add runs, models and replicas, under names of their own."""

    settings: Settings

    @property
    def mlflow_url(self) -> str:
        return self.settings.mlflow_url

    @property
    def prefect_api_url(self) -> str:
        return self.settings.prefect_api_url


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in sockets]


def stack_settings(home: Path, **changes: object) -> Settings:
    """Settings of a stack of its own: its state under `home`, its ports free."""
    prefect, mlflow, serving = free_ports(3)
    values = {"home": home, "prefect_port": prefect, "mlflow_port": mlflow, "serving_port": serving, **changes}
    return Settings.model_validate(values)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Prefect, its worker and MLflow, without a replica; declare one with `infra.inference.replicas` where a model is needed."""
    settings = stack_settings(tmp_path_factory.mktemp("stack"))
    start_stack(settings, serve=False)
    yield RunningStack(settings)
    stop_stack(settings)

"""One way to reach MLflow: explicit URL, a quick check that it answers, and one kind of error.

Owns the clients and the translation of MLflow's failures into InfrastructureError. Refuses the ambient tracking URI and active
run: both are process-wide state that a task on another thread would pick up by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import httpx

from pipelines.errors import InfrastructureError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.tracking.rest_store import RestStore

_PROBE_TIMEOUT_S = 20.0
"""A busy two-core machine answers /health late; a dead server refuses at once."""


def connect(url: str) -> MlflowClient:
    """Client of the tracking server and registry at `url`; raises InfrastructureError when nothing answers there."""
    from mlflow import MlflowClient

    probe(url)
    return MlflowClient(tracking_uri=url, registry_uri=url)


def open_store(url: str) -> RestStore:
    """The REST store under the client, for what MlflowClient lacks: gateway administration and batches of traces."""
    from mlflow.store.tracking.rest_store import RestStore
    from mlflow.utils.credentials import get_default_host_creds

    probe(url)
    return RestStore(partial(get_default_host_creds, url))  # type: ignore[no-untyped-call]  # mlflow leaves it unannotated


def probe(url: str) -> None:
    """Raise InfrastructureError unless an MLflow server answers at `url` (MLflow's own clients retry for minutes)."""
    try:
        healthy = httpx.get(f"{url}/health", timeout=_PROBE_TIMEOUT_S).is_success
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InfrastructureError(f"MLflow at {url} does not answer ({error}); start it with `everloop up`") from error
    if not healthy:
        raise InfrastructureError(f"{url} answers, but is no healthy MLflow server; check EVERLOOP_MLFLOW_PORT and its log")


@contextmanager
def mlflow_errors(url: str, doing: str) -> Iterator[None]:
    """Turn what MLflow raises inside the block into one InfrastructureError saying what was being done."""
    import requests
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, requests.RequestException) as error:
        raise InfrastructureError(f"MLflow at {url} could not {doing}: {str(error).strip()[:500]}") from error

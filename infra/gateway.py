"""The MLflow AI Gateway in front of the model: one endpoint that production calls, moved from model to model.

Owns the endpoint, what it points to, and the proof of what it really serves. Every call of the endpoint becomes a trace in the
experiment `gateway/<endpoint>`. Production uses the OpenAI passthrough (`Settings.gateway_url`): it hands the answer back as vLLM
gave it and keeps the whole of it in the trace (tool calls, token ids, log-probabilities), where the unified route drops fields it
does not know. Refuses to start or stop model servers (`infra.inference` does).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from infra.mlflow_connection import mlflow_errors, open_store
from infra.settings import Settings
from pipelines.errors import InfrastructureError

if TYPE_CHECKING:
    from mlflow.entities import GatewayEndpoint
    from mlflow.store.tracking.rest_store import RestStore

CALLER_HEADER = "X-MLflow-Gateway-Caller"
"""Request header by which a caller names itself; MLflow keeps it in the trace's metadata as `mlflow.gateway.caller`."""
PROBE_CALLER = "everloop-probe"

_PROVIDER = "openai"
_POLL_S = 0.5
_CALL_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint as the gateway has it stored."""

    name: str
    model: str
    """Served name of the upstream model; names its content."""
    base_url: str
    """OpenAI API of the replica, ending in /v1."""
    experiment_id: str
    """Experiment that receives its traces."""


def ensure_endpoint(settings: Settings, endpoint: str, *, base_url: str, model: str) -> EndpointState:
    """The endpoint, created with this model if it does not exist; an existing one keeps the model it has."""
    return read_endpoint(settings, endpoint) or point_endpoint(settings, endpoint, base_url=base_url, model=model)


def point_endpoint(settings: Settings, endpoint: str, *, base_url: str, model: str) -> EndpointState:
    """Send the endpoint's traffic to this model, creating the endpoint if needed, and return what was read back.

    Doing it twice changes nothing. Raises InfrastructureError when MLflow fails or the read-back differs. Other worker processes
    of the server may serve the old model until their configuration cache expires: `wait_until_served` says when all have moved.
    """
    state = read_endpoint(settings, endpoint)
    if state is None or (state.model, state.base_url) != (model, base_url):
        store = open_store(settings.mlflow_url)
        with mlflow_errors(settings.mlflow_url, f"point gateway endpoint {endpoint!r} at {model}"):
            _write_endpoint(store, endpoint, model, base_url)
        state = read_endpoint(settings, endpoint)
    if state is None or (state.model, state.base_url) != (model, base_url):
        raise InfrastructureError(f"gateway endpoint {endpoint!r}: wrote {model} at {base_url}, read back {state}")
    return state


def read_endpoint(settings: Settings, endpoint: str) -> EndpointState | None:
    """The endpoint as stored, or None when there is none; raises InfrastructureError when MLflow cannot say."""
    store = open_store(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"read gateway endpoint {endpoint!r}"):
        found = _find_endpoint(store, endpoint)
        if found is None:
            return None
        definition = found.model_mappings[0].model_definition if found.model_mappings else None
        if definition is None:
            return EndpointState(endpoint, "", "", found.experiment_id or "")
        secrets = {secret.secret_id: secret.auth_config or {} for secret in store.list_secret_infos()}
        base_url = secrets.get(definition.secret_id or "", {}).get("api_base", "")
        return EndpointState(endpoint, definition.model_name, str(base_url), found.experiment_id or "")


def warm(settings: Settings, endpoint: str) -> str:
    """One tiny call, so that the first customer does not pay for the server's imports (7-10 s); returns the model that answered.

    The call is recorded like any other, under the caller name `PROBE_CALLER`, by which readers of traces leave it out.
    """
    body = {"model": endpoint, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1, "temperature": 0}
    headers = {CALLER_HEADER: PROBE_CALLER}
    try:
        response = httpx.post(f"{settings.gateway_url}/chat/completions", json=body, headers=headers, timeout=_CALL_TIMEOUT_S)
    except httpx.HTTPError as error:
        raise InfrastructureError(f"gateway endpoint {endpoint!r} at {settings.gateway_url}: no answer ({error!r})") from error
    if not response.is_success:
        raise InfrastructureError(
            f"gateway endpoint {endpoint!r} answered {response.status_code}: {response.text[:300]}; is its vLLM replica running?"
        )
    return str(response.json().get("model", ""))


def wait_until_served(settings: Settings, endpoint: str, model: str, *, timeout_s: float, in_a_row: int = 2) -> None:
    """Call the endpoint until `in_a_row` answers in a row come from `model`; only then may the old replica go.

    Use at least twice the number of MLflow worker processes for `in_a_row`. Raises InfrastructureError naming what still answers.
    """
    deadline = time.monotonic() + timeout_s
    answered = 0
    while True:
        seen = warm(settings, endpoint)
        answered = answered + 1 if seen == model else 0
        if answered >= in_a_row:
            return
        if time.monotonic() > deadline:
            waited = f"after {timeout_s:.0f} s {seen!r} still answers"
            raise InfrastructureError(f"gateway endpoint {endpoint!r}: {waited}, expected {model!r}; see the MLflow log")
        if seen != model:
            time.sleep(_POLL_S)


def _find_endpoint(store: RestStore, endpoint: str) -> GatewayEndpoint | None:
    return next((found for found in store.list_gateway_endpoints() if found.name == endpoint), None)


def _write_endpoint(store: RestStore, endpoint: str, model: str, base_url: str) -> None:
    from mlflow.entities import GatewayEndpointModelConfig, GatewayModelLinkageType

    configs = [GatewayEndpointModelConfig(_model_definition(store, model, base_url), GatewayModelLinkageType.PRIMARY)]
    found = _find_endpoint(store, endpoint)
    if found is None:
        store.create_gateway_endpoint(endpoint, configs, usage_tracking=True)
    else:
        store.update_gateway_endpoint(found.endpoint_id, model_configs=configs, usage_tracking=True)


def _model_definition(store: RestStore, model: str, base_url: str) -> str:
    """Id of the definition of this model at this address; names say the content, so an existing one is the same one."""
    name = f"{model}@{urlsplit(base_url).netloc}"
    for definition in store.list_gateway_model_definitions():
        if definition.name == name:
            return str(definition.model_definition_id)
    secret_id = _secret(store, base_url)
    made = store.create_gateway_model_definition(name=name, secret_id=secret_id, provider=_PROVIDER, model_name=model)
    return str(made.model_definition_id)


def _secret(store: RestStore, base_url: str) -> str:
    """Id of the connection of a replica. The gateway wants a key; our vLLM has none and ignores it."""
    name = f"vllm {base_url}"
    for secret in store.list_secret_infos():
        if secret.secret_name == name:
            return str(secret.secret_id)
    made = store.create_gateway_secret(name, {"api_key": "unused"}, provider=_PROVIDER, auth_config={"api_base": base_url})
    return str(made.secret_id)

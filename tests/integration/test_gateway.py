"""The AI Gateway of a real MLflow server, in front of a real vLLM: the endpoint, the demo's agent and its operator."""

import asyncio

import orjson
import pytest

from infra import gateway
from infra.demo import operator
from infra.demo.agent import drive
from infra.demo.requests import make_requests
from infra.demo.shop import open_shop
from infra.demo.tools import TOOLS
from infra.mlflow_traces import search
from infra.settings import Settings
from pipelines.errors import InfrastructureError
from tests.integration.mlflow_fixtures import Upstream, free_port

NOWHERE = "http://127.0.0.1:9/v1"


def test_an_endpoint_that_was_never_made_is_none(mlflow_settings: Settings) -> None:
    assert gateway.read_endpoint(mlflow_settings, "nobody") is None


def test_an_outage_is_an_error_and_never_no_endpoint(dead_settings: Settings) -> None:
    with pytest.raises(InfrastructureError, match="does not answer"):
        gateway.read_endpoint(dead_settings, "agent")


def test_an_endpoint_moves_between_models_and_keeps_its_experiment(mlflow_settings: Settings) -> None:
    name = mlflow_settings.endpoint
    made = gateway.ensure_endpoint(mlflow_settings, name, base_url=NOWHERE, model="policy-aa11")
    assert (made.model, made.base_url) == ("policy-aa11", NOWHERE)
    other = f"http://127.0.0.1:{free_port()}/v1"
    moved = gateway.point_endpoint(mlflow_settings, name, base_url=other, model="policy-bb22")
    assert (moved.model, moved.base_url, moved.experiment_id) == ("policy-bb22", other, made.experiment_id)
    assert gateway.point_endpoint(mlflow_settings, name, base_url=other, model="policy-bb22") == moved
    assert gateway.ensure_endpoint(mlflow_settings, name, base_url=NOWHERE, model="policy-aa11") == moved
    assert gateway.point_endpoint(mlflow_settings, name, base_url=NOWHERE, model="policy-aa11") == made
    assert gateway.read_endpoint(mlflow_settings, name) == made


def test_a_replica_that_is_down_is_one_clear_error(mlflow_settings: Settings) -> None:
    name = mlflow_settings.endpoint
    gateway.point_endpoint(mlflow_settings, name, base_url=NOWHERE, model="policy-aa11")
    with pytest.raises(InfrastructureError, match=r"answered 5\d\d.*is its vLLM replica running"):
        gateway.warm(mlflow_settings, name)


def test_the_answer_says_which_model_serves_and_a_move_is_seen_at_once(mlflow_settings: Settings, upstream: Upstream) -> None:
    name = mlflow_settings.endpoint
    gateway.point_endpoint(mlflow_settings, name, base_url=upstream.base_url, model=upstream.model)
    assert gateway.warm(mlflow_settings, name) == upstream.model
    gateway.wait_until_served(mlflow_settings, name, upstream.model, timeout_s=60)
    with pytest.raises(InfrastructureError, match=f"'{upstream.model}' still answers, expected 'policy-other'"):
        gateway.wait_until_served(mlflow_settings, name, "policy-other", timeout_s=0.1)


def test_probes_are_not_production_traffic(mlflow_settings: Settings, upstream: Upstream) -> None:
    state = gateway.point_endpoint(mlflow_settings, mlflow_settings.endpoint, base_url=upstream.base_url, model=upstream.model)
    gateway.warm(mlflow_settings, mlflow_settings.endpoint)
    assert list(search(mlflow_settings.mlflow_url, [state.experiment_id])) == []


def test_the_agents_traffic_becomes_traces_with_feedback_and_later_corrections(
    mlflow_settings: Settings, upstream: Upstream
) -> None:
    settings, seen = mlflow_settings, list[tuple[int, int]]()
    gateway.point_endpoint(settings, settings.endpoint, base_url=upstream.base_url, model=upstream.model)
    traffic = make_requests(1, num_training=8, num_holdout=6, num_after=6)
    shop = open_shop(settings.root / "shop.db", traffic.stock)
    report = asyncio.run(drive(settings, traffic.training, shop, progress=lambda done, total: seen.append((done, total))))
    assert (report.num_requests, sum(report.outcomes.values())) == (8, 8)
    assert sorted(seen) == [(done, 8) for done in range(1, 9)]
    assert report.failure_rate == report.failures / 8

    traces = list(search(settings.mlflow_url, [f"gateway/{settings.endpoint}"]))
    by_id = {trace.raw["info"]["trace_id"]: trace.raw for trace in traces}
    assert by_id.keys() == {interaction.trace_id for interaction in report.interactions}
    for interaction in report.interactions:
        raw = by_id[interaction.trace_id]
        root = next(span for span in raw["data"]["spans"] if span["parent_span_id"] is None)
        asked = orjson.loads(root["attributes"]["mlflow.spanInputs"])
        assert asked["messages"][-1]["content"] == interaction.request.text
        assert asked["user"] == interaction.request.user
        assert [tool["function"]["name"] for tool in asked["tools"]] == [tool.name for tool in TOOLS]
        (feedback,) = raw["info"]["assessments"]
        assert feedback["feedback"]["value"] == interaction.result.code.value

    # A model of random weights gets nothing right, so every run can be corrected.
    assert report.failures == 8
    assert operator.correct(settings, report.interactions, share=0.75, seed=1) == 6
    corrected = list(search(settings.mlflow_url, [f"gateway/{settings.endpoint}"], after=traces[-1].cursor))
    expected = {i.trace_id: i.request.expected for i in report.interactions}
    assert len(corrected) == 6
    for trace in corrected:
        (value,) = [a["expectation"]["serialized_value"]["value"] for a in trace.raw["info"]["assessments"] if "expectation" in a]
        call = expected[trace.raw["info"]["trace_id"]]
        assert orjson.loads(value) == {"name": call.name, "arguments": call.arguments}


def test_an_agent_without_a_gateway_stops_with_one_clear_error(dead_settings: Settings) -> None:
    traffic = make_requests(1, num_training=1, num_holdout=1, num_after=1)
    with pytest.raises(InfrastructureError, match="gateway endpoint 'support-agent'"):
        asyncio.run(drive(dead_settings, traffic.training, open_shop(None, traffic.stock)))

"""Reading and judging traces on a real MLflow server."""

import json
import time
from datetime import timedelta
from uuid import uuid4

import httpx
import orjson
import pytest
from mlflow import MlflowClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from infra.mlflow_traces import Annotation, RawTrace, TraceCursor, annotate, newest, search
from pipelines.errors import InfrastructureError, InputError
from pipelines.traces.model import Expectation, Feedback

CORRECTION = Expectation("expected_tool_call", {"name": "cancel_order", "arguments": {"order_id": 1}})


@pytest.fixture
def experiment(mlflow_url: str) -> str:
    name = f"gateway/agent-{uuid4().hex[:8]}"
    MlflowClient(mlflow_url).create_experiment(name)
    return name


def _run_agent(url: str, experiment: str, answer: str) -> str:
    """A finished trace, sent the way any OpenTelemetry exporter sends one."""
    found = MlflowClient(url).get_experiment_by_name(experiment)
    assert found is not None
    trace_id, now_ns = uuid4().bytes, time.time_ns()
    outputs = AnyValue(string_value=json.dumps({"id": answer, "choices": []}))
    span = Span(
        trace_id=trace_id,
        span_id=trace_id[:8],
        name="agent",
        start_time_unix_nano=now_ns - 5_000_000,
        end_time_unix_nano=now_ns,
        attributes=[KeyValue(key="mlflow.spanOutputs", value=outputs)],
    )
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=[span])])])
    headers = {"x-mlflow-experiment-id": found.experiment_id, "content-type": "application/x-protobuf"}
    httpx.post(f"{url}/v1/traces", content=request.SerializeToString(), headers=headers).raise_for_status()
    return f"tr-{trace_id.hex()}"


def _ids(traces: list[RawTrace]) -> list[str]:
    return [trace.raw["info"]["trace_id"] for trace in traces]


def test_an_empty_source_gives_nothing(mlflow_url: str, experiment: str) -> None:
    assert list(search(mlflow_url, [experiment])) == []
    assert newest(mlflow_url, [experiment]) == TraceCursor()


def test_an_unknown_experiment_is_an_input_error(mlflow_url: str) -> None:
    with pytest.raises(InputError, match="'gateway/nobody'"):
        list(search(mlflow_url, ["gateway/nobody"]))


def test_an_outage_is_an_error_and_not_an_empty_source() -> None:
    with pytest.raises(InfrastructureError, match="does not answer"):
        list(search("http://127.0.0.1:1", ["gateway/agent"]))


def test_a_second_read_sees_only_what_came_since(mlflow_url: str, experiment: str) -> None:
    made = [_run_agent(mlflow_url, experiment, f"chatcmpl-{i}") for i in range(45)]
    first = list(search(mlflow_url, [experiment]))
    assert sorted(_ids(first)) == sorted(made)
    assert [trace.cursor for trace in first] == sorted(trace.cursor for trace in first)
    assert first[0].raw["data"]["spans"]
    orjson.dumps([trace.raw for trace in first])
    assert list(search(mlflow_url, [experiment], after=first[-1].cursor)) == []
    later = _run_agent(mlflow_url, experiment, "chatcmpl-later")
    assert _ids(list(search(mlflow_url, [experiment], after=first[-1].cursor))) == [later]
    assert newest(mlflow_url, [experiment]).trace_id == later


def test_a_read_cut_short_goes_on_where_it_stopped(mlflow_url: str, experiment: str) -> None:
    made = {_run_agent(mlflow_url, experiment, f"chatcmpl-{i}") for i in range(5)}
    stream = search(mlflow_url, [experiment])
    head = [next(stream), next(stream)]
    rest = list(search(mlflow_url, [experiment], after=head[-1].cursor))
    assert len(rest) == 3
    assert set(_ids(head + rest)) == made


def test_a_late_correction_brings_an_old_trace_back_whole(mlflow_url: str, experiment: str) -> None:
    old, *_ = [_run_agent(mlflow_url, experiment, f"chatcmpl-{i}") for i in range(3)]
    cursor = list(search(mlflow_url, [experiment]))[-1].cursor
    annotate(mlflow_url, [Annotation(old, CORRECTION, "operator@shop.example")])
    (again,) = search(mlflow_url, [experiment], after=cursor)
    assert again.raw["info"]["trace_id"] == old
    (assessment,) = again.raw["info"]["assessments"]
    assert assessment["assessment_name"] == "expected_tool_call"
    assert orjson.loads(assessment["expectation"]["serialized_value"]["value"]) == CORRECTION.value
    assert assessment["source"] == {"source_type": "HUMAN", "source_id": "operator@shop.example"}
    assert list(search(mlflow_url, [experiment], after=again.cursor)) == []


def test_an_overlap_repeats_what_lies_in_it(mlflow_url: str, experiment: str) -> None:
    made = _run_agent(mlflow_url, experiment, "chatcmpl-1")
    cursor = list(search(mlflow_url, [experiment]))[-1].cursor
    assert _ids(list(search(mlflow_url, [experiment], after=cursor, overlap=timedelta(minutes=1)))) == [made]


def test_feedback_keeps_its_value_source_and_rationale(mlflow_url: str, experiment: str) -> None:
    trace_id = _run_agent(mlflow_url, experiment, "chatcmpl-1")
    feedback = Feedback("tool_result", "unknown_order", "code", "order 7: no such order")
    annotate(mlflow_url, [Annotation(trace_id, feedback, "agent")])
    (trace,) = search(mlflow_url, [experiment])
    (assessment,) = trace.raw["info"]["assessments"]
    assert assessment["feedback"] == {"value": "unknown_order"}
    assert assessment["rationale"] == "order 7: no such order"
    assert assessment["source"]["source_type"] == "CODE"


def test_feedback_on_a_trace_that_does_not_exist_is_an_error(mlflow_url: str) -> None:
    with pytest.raises(InfrastructureError, match="could not write feedback"):
        annotate(mlflow_url, [Annotation("tr-" + "0" * 32, Feedback("thumb", True, "human"), "someone")])

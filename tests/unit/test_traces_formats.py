import gzip
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.formats import detect, parse_file
from pipelines.traces.model import Outcome, Rejection, RejectionReason, Role, Trace, trace_digest
from pipelines.traces.table import rejection_from_row, rejection_to_row, trace_from_row, trace_to_row
from tests.unit.samples import sample_files

ASK: dict[str, JsonValue] = {"role": "user", "content": "refund order 7"}


def parse(data: bytes) -> list[Trace | Rejection]:
    return list(parse_file(data, location="somewhere"))


def only(data: bytes) -> Trace:
    (trace,) = parse(data)
    assert isinstance(trace, Trace), trace
    return trace


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def mlflow_trace(outputs: object = None, **info: object) -> dict[str, object]:
    """A gateway trace: the endpoint's span holds request and response, the provider's span below it holds usage."""
    request = {
        "model": "support-agent",
        "messages": [ASK],
        "tools": [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}],
    }
    call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": "7"}'}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    response = outputs or {
        "model": "smol@1",
        "choices": [{"finish_reason": "tool_calls", "message": answer}],
        "usage": {"prompt_tokens": 3},
    }
    root = {
        "trace_id": "AAAA",
        "span_id": "BBBB",
        "parent_span_id": None,
        "name": "gateway/support-agent",
        "start_time_unix_nano": "1796072424404858908",
        "end_time_unix_nano": 1796072424504858908,
        "status": {"code": "STATUS_CODE_OK"},
        "attributes": {
            "endpoint_name": '"support-agent"',
            "mlflow.spanInputs": json.dumps(request),
            "mlflow.spanOutputs": json.dumps(response),
        },
    }
    usage = {"input_tokens": 90, "output_tokens": 12, "total_tokens": 102}
    provider = {**root, "span_id": "CCCC", "parent_span_id": "BBBB", "name": "provider/openai/smol@1"}
    provider["attributes"] = {"mlflow.spanType": '"LLM"', "mlflow.chat.tokenUsage": json.dumps(usage)}
    base = {"trace_id": "tr-1", "request_time": "2026-11-30T21:00:24.404Z", "state": "OK", "execution_duration_ms": "211"}
    return {"info": {**base, **info}, "data": {"spans": [provider, root]}}


@pytest.mark.parametrize("folder", ["mlflow", "openai-chat", "mini-swe-agent"])
def test_every_sample_of_a_supported_format_loads_without_a_rejection(folder: str) -> None:
    for file in sample_files(folder):
        results = parse(file.read_bytes())
        assert results
        for trace in results:
            assert isinstance(trace, Trace), f"{file.name}: {trace}"
            assert trace.source.format == folder.replace("-", "_")
            assert trace_from_row(trace_to_row(trace)) == trace


def test_samples_of_formats_nobody_reads_yet_are_rejected_and_never_raise() -> None:
    for folder in ("langfuse", "otlp", "openhands-v1", "claude-code", "swe-agent-traj", "inspect-ai"):
        for file in sample_files(folder):
            for result in parse(file.read_bytes()):
                assert isinstance(result, Trace) or result.reason in set(RejectionReason)


def test_the_mlflow_sample_keeps_user_session_usage_and_the_call_that_was_cut_off() -> None:
    trace = only(sample_files("mlflow")[0].read_bytes())
    assert (trace.user, trace.conversation_id, trace.usage.cached_input_tokens) == ("u1", "conv-1", 192)
    broken = [call for message in trace.messages for call in message.tool_calls if call.arguments is None]
    assert [call.raw_arguments for call in broken] == ['{"command": "sed -i \'s/a/b']
    assert trace.messages[-1].content == "Fixed the \U0001f41b in café.py"


def test_a_gateway_trace_gives_request_answer_tools_and_the_model_that_was_served() -> None:
    trace = only(json.dumps(mlflow_trace()).encode())
    assert [message.role for message in trace.messages] == [Role.USER, Role.ASSISTANT]
    assert trace.messages[1].tool_calls[0].arguments == {"order_id": "7"}
    assert [tool.name for tool in trace.tools] == ["refund"]
    assert (trace.model, trace.attributes["endpoint"], trace.attributes["finish_reason"]) == (
        "smol@1",
        "support-agent",
        "tool_calls",
    )
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.duration_s) == (90, 12, 0.211)
    assert trace.started_at == datetime(2026, 11, 30, 21, 0, 24, 404000, UTC)


def test_feedback_and_expectations_of_an_mlflow_trace_are_read_and_overridden_ones_left_out() -> None:
    source = {"source_type": "HUMAN", "source_id": "ann"}
    serialised = {"serialization_format": "JSON_FORMAT", "value": '{"name": "refund", "arguments": {"order_id": "8"}}'}
    trace = only(
        json.dumps(
            mlflow_trace(
                assessments=[
                    {"assessment_name": "thumbs", "source": source, "feedback": {"value": False}, "rationale": "wrong order"},
                    {"assessment_name": "thumbs", "source": source, "feedback": {"value": True}, "valid": False},
                    {"assessment_name": "judge", "source": {"source_type": 2}, "feedback": {"error": {"error_code": "X"}}},
                    {"assessment_name": "expected_tool_call", "source": source, "expectation": {"serialized_value": serialised}},
                ]
            )
        ).encode()
    )
    assert [(f.name, f.value, f.source, f.rationale) for f in trace.feedback] == [("thumbs", False, "human", "wrong order")]
    assert [(e.name, e.value, e.author) for e in trace.expectations] == [
        ("expected_tool_call", {"name": "refund", "arguments": {"order_id": "8"}}, "ann")
    ]


def test_a_failed_mlflow_trace_says_why() -> None:
    record = mlflow_trace(state="ERROR")
    record["data"]["spans"][0]["status"] = {"code": "STATUS_CODE_ERROR", "message": "429 too many requests"}  # type: ignore[index]
    trace = only(json.dumps(record).encode())
    assert (trace.outcome, trace.error) == (Outcome.FAILURE, "429 too many requests")


def test_an_mlflow_trace_without_a_chat_span_falls_back_on_its_inputs_and_outputs() -> None:
    attributes = {"mlflow.spanInputs": '{"task": "fix"}', "mlflow.spanOutputs": '"done"'}
    trace = only(json.dumps({"info": {"trace_id": "t"}, "data": {"spans": [{"name": "r", "attributes": attributes}]}}).encode())
    assert [message.content for message in trace.messages] == ['{"task":"fix"}', "done"]


def test_a_mini_swe_agent_run_keeps_its_submission_and_leaves_the_exit_message_out() -> None:
    trace = next(t for f in sample_files("mini-swe-agent") if "real" in f.name for t in [only(f.read_bytes())])
    assert trace.attributes["exit_status"] == "Submitted"
    assert trace.attributes["submission"].startswith("diff --git")
    assert (len(trace.messages), trace.usage.input_tokens, trace.outcome) == (11, 500, Outcome.UNKNOWN)


def test_streamed_chunks_become_one_answer_with_usage_counted_once() -> None:
    (file,) = (f for f in sample_files("openai-chat") if "chunks" in f.name)
    trace = only(file.read_bytes())
    assert trace.messages[0].tool_calls[0].arguments == {"answer": "Boston"}
    assert (trace.usage.input_tokens, trace.usage.output_tokens) == (57, 17)


def test_chunks_of_two_interleaved_streams_are_told_apart() -> None:
    def chunk(stream: str, text: str) -> dict[str, object]:
        return {"object": "chat.completion.chunk", "id": stream, "choices": [{"delta": {"content": text}}]}

    results = parse(lines(chunk("a", "Hel"), chunk("b", "Good "), {"messages": [ASK]}, chunk("a", "lo"), chunk("b", "bye")))
    contents = [result.messages[0].content for result in results if isinstance(result, Trace)]
    assert contents == ["Hello", "Good bye", "refund order 7"]


def test_a_truncated_last_line_is_quarantined_and_the_rest_is_kept() -> None:
    data = lines({"messages": [ASK]}, {"messages": [{"role": "user", "content": "two"}]})[:-15]
    first, second = parse(data)
    assert isinstance(first, Trace)
    assert isinstance(second, Rejection)
    assert (second.reason, second.source.position) == (RejectionReason.UNREADABLE, len(lines({"messages": [ASK]})))
    assert second.raw.startswith('{"messages"')


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\u2029"])
def test_unicode_line_separators_inside_a_string_do_not_cut_a_line(separator: str) -> None:
    text = f"one{separator}two"
    rows = [json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False) for _ in range(2)]
    results = parse("\r\n".join(rows).encode())
    assert [r.messages[0].content for r in results if isinstance(r, Trace)] == [text, text]


def test_gzip_is_read_and_a_cut_off_gzip_keeps_what_came_before() -> None:
    rows = lines(*[{"messages": [{"role": "user", "content": f"request {i} {i * 7919}"}]} for i in range(500)])
    assert len(parse(gzip.compress(rows))) == 500
    cut = parse(gzip.compress(rows)[:-200])
    assert sum(isinstance(result, Trace) for result in cut) > 10
    assert isinstance(cut[-1], Rejection)
    assert "gzip" in cut[-1].detail


def test_a_pretty_printed_document_cut_in_the_middle_is_one_rejection() -> None:
    text = json.dumps([{"messages": [ASK], "meta": {}} for _ in range(3)], indent=1)
    (rejection,) = parse(text[:-30].encode())
    assert isinstance(rejection, Rejection)
    assert rejection.reason is RejectionReason.UNREADABLE


@pytest.mark.parametrize("line", [b'"just text"', b"[1, 2]", b"{}", b"null", b"42"])
def test_a_line_that_is_no_trace_is_rejected_beside_good_ones(line: bytes) -> None:
    results = parse(lines({"messages": [ASK]}) + line + b"\n")
    assert [type(result) for result in results] == [Trace, Rejection]
    assert isinstance(results[1], Rejection)
    assert results[1].reason is RejectionReason.UNKNOWN_FORMAT


def test_empty_files_and_empty_conversations_are_rejected_as_empty() -> None:
    for data in (b"", b" \n\n", lines({"messages": []})):
        (rejection,) = parse(data)
        assert isinstance(rejection, Rejection)
        assert rejection.reason is RejectionReason.EMPTY


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1', None),
        ("[1]", None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('"{\\"a\\": 1}"', None),
        ("", {}),
        (None, {}),
        ('{"a": 123456789012345678901234567890}', None),
    ],
)
def test_arguments_are_parsed_strictly_and_kept_raw(arguments: object, expected: object) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    trace = only(lines({"request": {"messages": [ASK]}, "response": {"choices": [{"message": answer}]}}))
    read = trace.messages[1].tool_calls[0]
    assert read.arguments == expected
    if isinstance(arguments, str):
        assert read.raw_arguments == arguments
    to_json(trace)


def test_content_parts_keep_their_text_and_never_the_bytes_of_an_image() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}]
    trace = only(lines({"messages": [{"role": "user", "content": parts}]}))
    assert trace.messages[0].content == "look\n[image_url]"


def test_lone_surrogates_nan_and_huge_integers_can_be_stored() -> None:
    data = (
        b'{"messages": [{"role": "user", "content": "a\\ud800b"}], "metadata": {"x": NaN, "y": 1e999, "z": ' + b"9" * 30 + b"}}"
    )
    trace = only(data)
    assert trace.messages[0].content == "a\ufffdb"
    assert trace_from_row(trace_to_row(trace)) == trace


def test_feedback_and_expectations_may_stand_in_a_chat_log_row() -> None:
    call = {"name": "refund", "arguments": {"order_id": "7"}}
    row = {
        "messages": [ASK],
        "user": "u",
        "session_id": "s",
        "timestamp": 1796072424404,
        "feedback": [{"name": "thumbs", "value": False}],
        "expectations": [{"name": "expected_tool_call", "value": call, "author": "ann"}],
    }
    trace = only(lines(row))
    assert (trace.user, trace.conversation_id, trace.feedback[0].value, trace.expectations[0].value) == ("u", "s", False, call)
    assert trace.started_at is not None
    assert trace.started_at.year == 2026


def test_an_error_response_is_a_failed_run() -> None:
    trace = only(lines({"request": {"messages": [ASK]}, "response": {"error": {"message": "overloaded"}}}))
    assert (trace.outcome, trace.error) == (Outcome.FAILURE, "overloaded")


def test_the_same_rows_read_again_have_the_same_ids_and_digests() -> None:
    data = lines({"messages": [ASK]}, mlflow_trace())
    first, second = parse(data), list(parse_file(data, location="elsewhere"))
    assert [(t.id, trace_digest(t)) for t in first if isinstance(t, Trace)] == [
        (t.id, trace_digest(t)) for t in second if isinstance(t, Trace)
    ]


def test_an_unknown_role_is_an_invalid_record_that_names_it() -> None:
    (rejection,) = parse(lines({"messages": [{"role": "wizard", "content": "x"}]}))
    assert isinstance(rejection, Rejection)
    assert rejection.reason is RejectionReason.INVALID_RECORD
    assert "wizard" in rejection.detail


def test_deep_nesting_is_a_rejection_and_no_crash() -> None:
    (rejection,) = parse(b"[" * 100_000 + b"]" * 100_000)
    assert isinstance(rejection, Rejection)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "info",
        "data",
        "spans",
        "attributes",
        "trace_id",
        "messages",
        "role",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "request",
        "response",
        "choices",
        "message",
        "tools",
        "usage",
        "assessments",
        "feedback",
        "extra",
        "trajectory_format",
        "timestamp",
        "object",
    ]
)
LIKELY = st.recursive(
    JSON_VALUES | st.sampled_from(["user", "assistant", "exit", "mini-swe-agent-1.1", "chat.completion.chunk", "{}", "1e999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    assert parse(data)


@settings(max_examples=300, deadline=None)
@given(st.lists(LIKELY, min_size=1, max_size=4))
def test_records_that_look_like_a_format_never_raise_and_can_always_be_stored(records: list[object]) -> None:
    data = "\n".join(json.dumps(record) for record in records).encode()
    for result in parse(data):
        if isinstance(result, Trace):
            assert trace_from_row(trace_to_row(result)) == result
        else:
            assert rejection_from_row(rejection_to_row(result)) == result


def test_detection_looks_at_the_content_only() -> None:
    assert detect({"messages": [ASK]}) == "openai_chat"
    assert detect(json.loads(json.dumps(mlflow_trace()))) == "mlflow"
    assert detect({"info": {"mini_version": "2"}, "messages": [ASK]}) == "mini_swe_agent"
    assert detect({"info": {}, "data": {}}) is None

import json
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.traces.formats import detect, parse_file
from pipelines.traces.model import Outcome, Rejection, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Fields = dict[str, object]
ASK: dict[str, JsonValue] = {"role": "user", "content": "refund order 7"}
CALL: JsonValue = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": "7"}'}}
ANSWER: JsonValue = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESPONSE: dict[str, JsonValue] = {"model": "gpt-4o-2024", "choices": [{"finish_reason": "tool_calls", "message": ANSWER}]}
PAYLOAD: Fields = {
    "id": "chatcmpl-1",
    "trace_id": "t1",
    "call_type": "acompletion",
    "response_cost": 0.25,
    "status": "success",
    "custom_llm_provider": "openai",
    "total_tokens": 12,
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "startTime": 1757015025.5,
    "endTime": 1757015027.0,
    "model": "gpt-4o",
    "metadata": {"requester_metadata": {"session_id": "s1"}, "user_api_key_team_alias": "support"},
    "end_user": "ann",
    "request_tags": ["prod", "v2"],
    "messages": [ASK],
    "response": RESPONSE,
    "error_str": None,
    "model_parameters": {"tools": [{"type": "function", "function": {"name": "refund"}}]},
}
OPENHANDS: Fields = {
    "messages": [ASK],
    "kwargs": {},
    "context_window": 9,
    "cost": 0.0,
    "timestamp": 1757015025.0,
    "latency_sec": 5.0,
}


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(record: object) -> Trace:
    (trace,) = parse(record)
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "litellm"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def sample(name: str) -> Trace:
    (path,) = [path for path in sample_files("litellm-log") if path.name == name]
    return only(json.loads(path.read_bytes()))


def test_an_openhands_call_keeps_tools_usage_cost_and_when_it_began() -> None:
    trace = sample("openhands_llm_call.json")
    assert [message.role for message in trace.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT]
    (call,) = trace.messages[2].tool_calls
    assert (call.name, call.id) == ("str_replace_editor", "toolu_01AaHKJphyeTw3GFp4Xgiekv")
    assert call.raw_arguments.startswith('{"command": "create", "path": "/workspace/hello.py"')
    assert [tool.name for tool in trace.tools] == ["terminal", "str_replace_editor", "finish"]
    assert (trace.id, trace.model) == ("chatcmpl-74b71e01-2a61-4926-beed-1cb3c2d7f486", "litellm_proxy/claude-sonnet-4-20250514")
    assert (trace.usage, trace.outcome) == (Usage(4812, 146, 0), Outcome.UNKNOWN)
    assert trace.duration_s == 4.65870213508606
    assert trace.started_at == datetime(2025, 9, 4, 19, 43, 41, 313621, UTC)
    assert trace.attributes["cost_usd"] == "0.016626000000000002"
    assert "openhands_version:1.0.0" in trace.attributes["tags"]


def test_a_damaged_raw_answer_does_not_hide_the_calls_it_made() -> None:
    trace = sample("openhands_llm_call_nonfn.json")
    assert [message.role for message in trace.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT]
    assert (trace.messages[1].content or "").startswith("Here's a running example of how to perform a task")
    (call,) = trace.messages[2].tool_calls
    assert (call.name, call.arguments) == ("terminal", {"command": "pwd && ls -la", "security_risk": "LOW"})
    assert (trace.usage, len(trace.tools)) == (Usage(7911, 59, 7872), 3)


def test_calls_written_as_text_stay_text_and_no_tools_were_offered() -> None:
    text = "look\n<function=terminal>\n<parameter=command>ls</parameter>\n</function>"
    record = {
        **OPENHANDS,
        "tools": [{"type": "function", "function": {"name": "terminal"}}],
        "response": {"id": "r", "choices": [{"message": ANSWER}], "usage": {"prompt_tokens": 4}},
        "raw_response": {"choices": [{"message": {"role": "assistant", "content": text}}]},
    }
    trace = only(record)
    assert (trace.messages[1].content, trace.messages[1].tool_calls, trace.tools) == (text, (), ())
    assert (trace.id, trace.usage.input_tokens, "cost_usd" in trace.attributes) == ("r", 4, False)


def test_a_failed_openhands_call_says_why() -> None:
    trace = only({**OPENHANDS, "error": {"type": "RateLimitError", "message": "429"}})
    assert (trace.outcome, trace.error, trace.attributes["error_class"]) == (Outcome.FAILURE, "429", "RateLimitError")


def test_a_logging_payload_is_one_call_with_user_session_cost_and_times() -> None:
    trace = only(PAYLOAD)
    assert [message.role for message in trace.messages] == [Role.USER, Role.ASSISTANT]
    assert trace.messages[1].tool_calls[0].arguments == {"order_id": "7"}
    assert [tool.name for tool in trace.tools] == ["refund"]
    assert (trace.id, trace.model, trace.conversation_id, trace.user) == ("chatcmpl-1", "gpt-4o-2024", "s1", "ann")
    assert (trace.usage, trace.duration_s, trace.outcome) == (Usage(9, 3), 1.5, Outcome.UNKNOWN)
    assert trace.started_at == datetime(2025, 9, 4, 19, 43, 45, 500000, UTC)
    assert trace.attributes == {
        "cost_usd": "0.25",
        "trace_id": "t1",
        "call_type": "acompletion",
        "provider": "openai",
        "team": "support",
        "tags": "prod, v2",
        "finish_reason": "tool_calls",
    }


def test_a_failed_call_has_its_error_and_no_counts() -> None:
    told = {"error_class": "ContextWindowExceededError", "error_code": "400", "error_message": "too long"}
    zero = {"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0, "response_cost": 0.0}
    trace = only({**PAYLOAD, **zero, "status": "failure", "response": {}, "error_information": told})
    assert (trace.outcome, trace.error, trace.usage) == (Outcome.FAILURE, "too long", Usage())
    assert (len(trace.messages), trace.attributes["error_code"], "cost_usd" in trace.attributes) == (1, "400", False)
    assert only({**PAYLOAD, "status": "failure", "error_str": "boom"}).error == "boom"


def test_usage_of_the_response_is_not_added_to_the_payloads_own() -> None:
    counted = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    response = {**RESPONSE, "usage": counted}
    assert only({**PAYLOAD, "response": response}).usage == Usage(9, 3, 8)


def test_payloads_in_callback_arguments_and_bodies_in_strings_are_read() -> None:
    wrapped = only({"standard_logging_object": PAYLOAD, "litellm_params": {}})
    strings = {name: json.dumps(PAYLOAD[name]) for name in ("messages", "response", "metadata", "request_tags")}
    row = {**PAYLOAD, **strings, "id": None, "request_id": "chatcmpl-1", "response_cost": None, "spend": 0.25}
    assert wrapped == only(PAYLOAD)
    assert (only(row).messages, only(row).conversation_id, only(row).id) == (wrapped.messages, "s1", wrapped.id)
    assert only(row).attributes == wrapped.attributes


def test_completions_of_text_are_read_and_calls_without_a_chat_are_refused() -> None:
    text = {**PAYLOAD, "call_type": "atext_completion", "messages": "Once", "response": {"choices": [{"text": " upon"}]}}
    assert [message.content for message in only(text).messages] == ["Once", " upon"]
    (rejection,) = parse({**PAYLOAD, "call_type": "aembedding", "messages": "x", "response": {"data": [{"embedding": [0.1]}]}})
    assert isinstance(rejection, Rejection)
    assert "aembedding" in rejection.detail


def test_plain_chat_logs_are_left_to_their_format() -> None:
    assert detect({"messages": [ASK], "response": RESPONSE, "metadata": {}}) == "openai_chat"


def test_nesting_that_cannot_be_stored_is_refused() -> None:
    (rejection,) = parse(
        {**PAYLOAD, "response": {"choices": [{"message": {"content": {"deep": json.loads("[" * 300 + "]" * 300)}}}]}}
    )
    assert isinstance(rejection, Rejection)
    assert rejection.detail == "no JSON: nested too deeply: more than 100 levels"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["user", "{", "[]", "failure", "refund"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "choices", "message", "tools", "text", "session_id", "messages"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*PAYLOAD, "error_information"]), VALUES, max_size=3),
    st.dictionaries(st.sampled_from([*OPENHANDS, "response", "raw_response", "error", "tools"]), VALUES, max_size=3),
)
def test_mangled_calls_are_traces_or_rejections(payload: Fields, call: Fields) -> None:
    for result in parse({**PAYLOAD, **payload}, {**OPENHANDS, **call}):
        assert isinstance(result, Rejection) or trace_from_row(trace_to_row(result)) == result

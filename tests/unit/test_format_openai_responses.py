import json
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.traces.deduplication import drop_exact_duplicates
from pipelines.traces.formats import openai_responses, parse_file
from pipelines.traces.model import Message, Outcome, Rejection, Role, Source, Trace, Usage
from pipelines.traces.records import Record, split_records
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Fields = dict[str, object]
SOURCE = Source("file", "somewhere", "openai_responses")
TEXT: Fields = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "On it."}]}
CALL: Fields = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "refund", "arguments": '{"order": 7}'}
RESULT: Fields = {"type": "function_call_output", "call_id": "call_1", "output": "refunded"}


def parse(record: object) -> Trace:
    value = cast(JsonValue, record)
    assert openai_responses.match(value)
    return openai_responses.parse(value, SOURCE)


def results(*records: object) -> list[Trace | Rejection]:
    return list(parse_file(b"".join(json.dumps(record).encode() + b"\n" for record in records), location="somewhere"))


def traces(*records: object) -> list[Trace]:
    """As ingestion keeps them: exact duplicates once."""
    return drop_exact_duplicates([result for result in results(*records) if isinstance(result, Trace)])[0]


def response(*output: Fields, name: str = "resp_1", **more: object) -> Fields:
    return {"object": "response", "id": name, "status": "completed", "model": "gpt-5", "output": list(output), **more}


def outline(trace: Trace) -> list[tuple[str, str | None, list[str]]]:
    return [(message.role.value, message.content, [call.name for call in message.tool_calls]) for message in trace.messages]


def test_pairs_out_of_a_real_agents_trace_are_read_flat() -> None:
    (file,) = (path for path in sample_files("langfuse") if "openai-agents" in path.name)
    observations = json.loads(file.read_bytes())["observations"]
    pairs = [{"input": o["input"], "output": o["output"]} for o in observations if o["type"] == "GENERATION"]
    last, first = map(parse, pairs)
    assert outline(first) == [
        ("system", "You are a helpful agent.", []),
        ("user", "What's the weather in Tokyo?", []),
        ("assistant", None, ["get_weather"]),
    ]
    assert outline(last)[:3] == outline(first)
    assert last.messages[3] == Message(Role.TOOL, "The weather in Tokyo is sunny.", tool_call_id="call_Kud0j0DxWSmLzv9W5m6qVqXn")
    assert (len(last.messages), [tool.name for tool in last.tools]) == (5, ["get_weather"])
    assert (first.usage, last.usage) == (Usage(55, 15, 0), Usage(85, 29, 0))
    assert (last.id, last.model) == ("resp_0f00ca5b7e22bb4c0068db9d0110d8819da676bd1f2dd03a40", "gpt-4.1-2025-04-14")


@pytest.mark.parametrize(
    "folder", ["openai-chat", "mlflow", "mini-swe-agent", "langfuse", "langsmith", "claude-code", "litellm-log"]
)
def test_other_formats_samples_are_not_claimed(folder: str) -> None:
    records = [
        item.value for path in sample_files(folder) for item in split_records(path.read_bytes()) if isinstance(item, Record)
    ]
    assert [openai_responses.match(record) for record in records] == [0] * len(records)


REQUEST: Fields = {
    "model": "gpt-5",
    "instructions": "Be kind.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "refund order 7"}, {"type": "input_image"}]}],
    "tools": [{"type": "function", "name": "refund", "parameters": {"type": "object"}}],
    "conversation": {"id": "conv_1"},
    "user": "ann",
}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda ask, answer: {"request": ask, "response": answer},
        lambda ask, answer: {"request": {"body": ask}, "response": {"status_code": 200, "body": answer}},
        lambda ask, answer: {"request": json.dumps(ask), "response": json.dumps(json.dumps(answer))},
        lambda ask, answer: {"input": ask, "output": answer},
        lambda ask, answer: {"kwargs": ask, "response": {"type": "response.completed", "response": answer}},
        lambda ask, answer: {**ask, "response": answer},
        lambda ask, answer: {**ask, "input": json.dumps(ask["input"]), "output": json.dumps(answer)},
    ],
)
def test_a_pair_is_read_however_it_is_wrapped(wrap: object) -> None:
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}
    answer = response(
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        TEXT,
        CALL,
        usage=usage,
        created_at=1767323045,
        completed_at=1767323047,
    )
    trace = parse(wrap(REQUEST, answer))  # type: ignore[operator]
    assert outline(trace) == [
        ("system", "Be kind.", []),
        ("user", "refund order 7\n[input_image]", []),
        ("assistant", "On it.", ["refund"]),
    ]
    (call,) = trace.messages[-1].tool_calls
    assert (call.id, call.arguments, call.raw_arguments) == ("call_1", {"order": 7}, '{"order": 7}')
    assert (trace.usage, trace.conversation_id, trace.user) == (Usage(9, 2, 4), "conv_1", "ann")
    assert (trace.started_at, trace.duration_s) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), 2.0)
    assert (trace.outcome, trace.attributes) == (Outcome.UNKNOWN, {"status": "completed"})


def test_a_users_json_stays_text_and_a_refusal_is_what_the_assistant_said() -> None:
    refusal: Fields = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    trace = parse({"request": {"model": "m", "input": '["type", 1]'}, "response": response(refusal)})
    assert outline(trace) == [("user", '["type", 1]', []), ("assistant", "I cannot.", [])]


def test_output_that_the_client_appended_to_the_logged_input_is_not_counted_again() -> None:
    sent: list[Fields] = [{"role": "user", "content": "refund order 7"}]
    expected = [("user", "refund order 7", []), ("assistant", "On it.", ["refund"])]
    without_ids = [{key: value for key, value in item.items() if key != "id"} for item in (TEXT, CALL)]
    for logged in (sent, [*sent, TEXT, CALL], [*sent, *without_ids]):
        assert outline(parse({"request": {"model": "m", "input": logged}, "response": response(TEXT, CALL)})) == expected
    for repeated in ([TEXT, CALL], without_ids):
        later = parse({"request": {"model": "m", "input": [*sent, *repeated, RESULT]}, "response": response(TEXT, CALL)})
        assert outline(later) == [*expected, ("tool", "refunded", [])]
    again = {**CALL, "id": "fc_2", "arguments": '{"order": 8}'}  # servers that number calls from 0 in every turn
    other = parse({"request": {"model": "m", "input": [*sent, TEXT, CALL, RESULT]}, "response": response(again)})
    assert len(other.messages) == 4


def test_turns_that_the_server_keeps_are_named_and_not_invented() -> None:
    request = {
        "model": "m",
        "previous_response_id": "resp_0",
        "input": [{"type": "item_reference", "id": "msg_0"}, {"id": "rs"}, RESULT],
    }
    trace = parse({"request": request, "response": response(TEXT)})
    assert outline(trace) == [("tool", "refunded", []), ("assistant", "On it.", [])]
    assert trace.attributes == {"status": "completed", "previous_response_id": "resp_0", "num_item_references": "2"}


def test_custom_and_hosted_tools_are_calls_with_what_their_items_show() -> None:
    output: list[Fields] = [
        {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "lookup", "input_schema": {"type": "object"}}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "mcp_call", "id": "mcp_1", "name": "lookup", "arguments": '{"id": 1}', "error": "no such id"},
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "1+1",
            "outputs": [{"type": "logs", "logs": "2"}, {"type": "image"}],
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "failed", "result": "iVBOR" * 99},
        {"type": "custom_tool_call", "call_id": "c_1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "shell_call_output", "call_id": "c_2", "output": [{"stdout": "ok", "outcome": {"type": "exit"}}]},
        {
            "type": "computer_call_output",
            "call_id": "c_3",
            "output": {"type": "computer_screenshot", "image_url": "data:" + "A" * 999},
        },
    ]
    tools = [{"type": "custom", "name": "apply_patch"}, {"type": "web_search_preview"}, {"type": "mcp", "server_label": "s"}]
    trace = parse(response(*output, tools=tools))
    assert outline(trace) == [
        ("assistant", None, ["web_search", "lookup"]),
        ("tool", "no such id", []),
        ("assistant", None, ["code_interpreter"]),
        ("tool", "2\n[image]", []),
        ("assistant", None, ["image_generation", "apply_patch"]),
        ("tool", '[{"stdout":"ok","outcome":{"type":"exit"}}]', []),
        ("tool", "[computer_screenshot]", []),
    ]
    patch = trace.messages[4].tool_calls[1]
    assert (patch.raw_arguments, patch.arguments, patch.id) == ("*** Begin", {"input": "*** Begin"}, "c_1")
    assert trace.messages[0].tool_calls[0].arguments == {"type": "search", "query": "x"}
    assert [tool.name for tool in trace.tools] == ["apply_patch", "lookup", "web_search", "code_interpreter", "image_generation"]
    assert trace.attributes["failed_tools"] == "lookup: no such id; image_generation: failed"


def test_errors_are_failures_and_an_answer_cut_at_its_limit_is_marked() -> None:
    error = {"code": "server_error", "message": "overloaded"}
    failed = parse({"request": REQUEST, "response": response(status="failed", error=error)})
    assert (failed.outcome, failed.error, len(failed.messages)) == (Outcome.FAILURE, "overloaded", 2)
    refused = parse({"request": REQUEST, "error": {"message": "bad tool"}})
    assert (refused.outcome, refused.error) == (Outcome.FAILURE, "bad tool")
    cut = parse(response(TEXT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert (cut.outcome, cut.attributes) == (Outcome.UNKNOWN, {"status": "incomplete", "finish_reason": "length"})


def test_feedback_and_expectations_may_stand_in_a_row() -> None:
    judged = {
        "feedback": [{"name": "thumbs", "value": False}],
        "expectations": [{"name": "answer", "value": "no"}],
        "id": "row-1",
    }
    trace = parse({"request": REQUEST, "response": response(TEXT), **judged})
    assert (trace.id, trace.feedback[0].value, trace.expectations[0].value) == ("row-1", False, "no")


def stream(name: str, *, end: Fields | None = None) -> list[Fields]:
    """Events of a streamed text and call; without an end event when none is given."""
    text, call = f"msg_{name}", f"fc_{name}"
    added = {"type": "function_call", "id": call, "call_id": f"call_{name}", "name": "refund", "arguments": ""}
    events: list[Fields] = [
        {"type": "response.created", "response": response(name=name, status="in_progress", instructions="Be kind.")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": text, "role": "assistant", "content": []},
        },
        {"type": "response.output_text.delta", "output_index": 0, "item_id": text, "content_index": 0, "delta": "On "},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": text, "content_index": 0, "delta": "it."},
        {"type": "response.output_item.added", "output_index": 1, "item": added},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": call, "delta": '{"order": '},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": call, "delta": "7}"},
    ]
    if end is not None:
        events.append(end)
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def completed(name: str) -> Fields:
    text, call = TEXT | {"id": f"msg_{name}"}, CALL | {"id": f"fc_{name}", "call_id": f"call_{name}"}
    whole = response(text, call, name=name, instructions="Be kind.", usage={"input_tokens": 5, "output_tokens": 3})
    return {"type": "response.completed", "response": whole}


STREAMED = [("system", "Be kind.", []), ("assistant", "On it.", ["refund"])]


def test_a_finished_stream_is_the_response_of_its_end_event_with_usage_counted_once() -> None:
    (trace,) = traces(*stream("resp_1", end=completed("resp_1")))
    assert (trace.id, outline(trace), trace.usage) == ("resp_1", STREAMED, Usage(5, 3))
    found = results(*stream("resp_1", end=completed("resp_1")))
    assert len(found) == 1, "the run of all events adds nothing to a response that is whole"


def test_a_stream_that_was_cut_off_is_put_together_from_its_pieces() -> None:
    (trace,) = traces(*stream("resp_1"))
    assert (trace.id, outline(trace), trace.attributes) == ("resp_1", STREAMED, {"status": "in_progress"})
    assert trace.messages[1].tool_calls[0].arguments == {"order": 7}
    (half,) = traces(*stream("resp_1")[:6])
    assert (half.messages[1].tool_calls[0].raw_arguments, half.messages[1].tool_calls[0].arguments) == ('{"order": ', None)


def test_an_error_event_and_an_end_event_without_output_complete_what_was_streamed() -> None:
    error: Fields = {"type": "error", "code": "server_error", "message": "overloaded", "param": None}
    (failed,) = traces(*stream("resp_1", end=error))
    assert (failed.outcome, failed.error, outline(failed)) == (Outcome.FAILURE, "overloaded", STREAMED)
    bare: Fields = {"type": "response.completed", "response": {"id": "resp_1", "usage": {"input_tokens": 5}}}
    (trace,) = traces(*stream("resp_1", end=bare))
    assert (outline(trace), trace.usage.input_tokens) == (STREAMED, 5)


def test_streams_that_are_mixed_in_one_file_are_told_apart() -> None:
    one, two = stream("resp_1", end=completed("resp_1")), stream("resp_2", end=completed("resp_2"))
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    assert sorted(trace.id for trace in traces(*mixed)) == ["resp_1", "resp_2"]
    cut = [event for pair in zip(one, two, strict=True) for event in pair][:-1]
    assert {trace.id: outline(trace) for trace in traces(*cut)} == {"resp_1": STREAMED, "resp_2": STREAMED}
    ends = [completed(f"resp_{number}") for number in range(3)]
    assert [trace.id for trace in traces(*ends)] == ["resp_0", "resp_1", "resp_2"]


def test_two_unfinished_streams_in_a_file_are_refused_by_name() -> None:
    (rejection,) = results(*stream("resp_1"), *stream("resp_2"))
    assert isinstance(rejection, Rejection)
    assert "resp_1, resp_2" in rejection.detail


def test_repeated_and_shuffled_events_change_nothing() -> None:
    events = stream("resp_1")
    assert [outline(trace) for trace in traces(*events, *events)] == [STREAMED]
    assert [outline(trace) for trace in traces(events[0], *reversed(events[1:]))] == [STREAMED]


def test_events_may_come_as_server_sent_ones_or_as_a_list() -> None:
    events = stream("resp_1")
    (trace,) = traces(*({"event": event["type"], "data": json.dumps(event)} for event in events))
    assert outline(trace) == STREAMED
    lines = results(events, stream("resp_2"))
    assert [(line.id, outline(line)) for line in lines if isinstance(line, Trace)] == [("resp_1", STREAMED), ("resp_2", STREAMED)]
    assert outline(parse({"request": REQUEST, "response": events}))[-1] == STREAMED[-1]


@pytest.mark.parametrize(
    "record",
    [
        {"type": "response.created", "event_id": "e", "response": {"object": "realtime.response"}},
        {"type": "response.text.delta", "event_id": "e", "response_id": "r", "delta": "x"},
        {"type": "response_item", "payload": {"type": "message"}},
        {"type": "error", "error": {"type": "overloaded_error"}},
        {"model": "text-embedding-3", "input": "some text"},
        {"model": "text-embedding-3", "input": ["some text"]},
        {"input": "question", "output": "answer"},
        {"request": {"messages": []}, "response": {"choices": []}},
    ],
)
def test_records_of_neighbouring_shapes_are_not_claimed(record: object) -> None:
    assert openai_responses.match(cast(JsonValue, record)) == 0


def test_content_of_a_wrong_shape_is_refused_with_the_reason() -> None:
    deep: object = "x"
    for _ in range(300):
        deep = [deep]
    for output in (["text"], [{"type": "message", "role": "wizard"}], [{"type": "function_call_output", "output": deep}]):
        with pytest.raises(ValueError, match=r"expected|stored"):
            parse({"request": {"model": "m", "input": "x"}, "response": response(output=output)})


NAMES = [
    *(
        "type",
        "id",
        "object",
        "output",
        "input",
        "request",
        "response",
        "item",
        "item_id",
        "output_index",
        "content_index",
        "delta",
    ),
    *(
        "sequence_number",
        "role",
        "content",
        "text",
        "name",
        "arguments",
        "call_id",
        "usage",
        "error",
        "status",
        "tools",
        "event",
        "data",
    ),
    *("conversation", "metadata", "instructions", "incomplete_details", "created_at", "action", "model", "body", "outputs"),
]
WORDS = [
    *("response", "message", "assistant", "user", "function_call", "function_call_output", "custom_tool_call", "web_search_call"),
    *("response.created", "response.completed", "response.output_item.added", "response.output_item.done", "mcp_call", "error"),
    *(
        "response.output_text.delta",
        "response.function_call_arguments.done",
        "output_text",
        "refusal",
        "failed",
        '["type"]',
        "{}",
    ),
]
LIKELY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=25,
)


@st.composite
def mangled(draw: st.DrawFn) -> object:
    """A good record in which one value, at any depth, was replaced or left out."""
    good: list[object] = [
        {"request": REQUEST, "response": response(TEXT, CALL)},
        response(TEXT),
        *stream("r", end=completed("r")),
    ]
    record = json.loads(json.dumps(draw(st.sampled_from(good))))
    place = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        place[key] = draw(LIKELY)
        return record


@settings(max_examples=300, deadline=None)
@given(st.lists(LIKELY | mangled(), min_size=1, max_size=5))
def test_mangled_records_never_raise_and_can_always_be_stored(records: list[object]) -> None:
    for record in records:
        value = next((item.value for item in split_records(json.dumps([[record]]).encode()) if isinstance(item, Record)), None)
        value = value[0] if isinstance(value, list) else None
        openai_responses.match(value)
        for action in (openai_responses.parse, openai_responses.parse_parts):
            try:
                trace = action([value] if action is openai_responses.parse_parts else value, SOURCE)  # type: ignore[arg-type]
            except ValueError:
                continue
            if trace is not None:
                assert trace_from_row(trace_to_row(trace)) == trace
    assert results(*records)

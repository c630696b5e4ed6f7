import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from pipelines.traces.containers import Damage, Row
from pipelines.traces.formats import otlp, parse_file
from pipelines.traces.formats.otlp import match, parts
from pipelines.traces.model import Outcome, Rejection, Role, Source, Trace, Usage
from pipelines.traces.otlp_protobuf import protobuf_rows
from pipelines.traces.otlp_spans import read_id
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

TRACE_ID = "a4c80157eea66a754320e437e27d029d"
ASK = {"role": "user", "content": "refund order 7"}
CALL = {"type": "tool_call", "id": "c1", "name": "refund", "arguments": '{"order_id": "7"'}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund"}


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(*records: object) -> Trace:
    (trace,) = parse(*records)
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "otlp"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def sample(name: str, folder: str = "otlp") -> Trace:
    (file,) = (file for file in sample_files(folder) if file.name == name)
    (trace,) = parse_file(file.read_bytes(), location="somewhere")
    assert isinstance(trace, Trace), trace
    return trace


def any_value(value: object) -> dict[str, object]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def attributes(values: Mapping[str, object]) -> list[object]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(number: int, values: Mapping[str, object], parent: int | None = None, **fields: object) -> dict[str, object]:
    """A span whose number is its id and the second it started in."""
    start = 1796072400 + number
    return {
        "traceId": TRACE_ID,
        "spanId": f"{number:016x}",
        **({} if parent is None else {"parentSpanId": f"{parent:016x}"}),
        "name": f"span {number}",
        "startTimeUnixNano": f"{start}000000000",
        "endTimeUnixNano": f"{start}500000000",
        "attributes": attributes(values),
        **fields,
    }


def event(name: str, **values: object) -> dict[str, object]:
    return {"name": name, "attributes": attributes({key.replace("__", "."): value for key, value in values.items()})}


def document(*spans: object, **resource: object) -> dict[str, object]:
    held = {"attributes": attributes({key.replace("__", "."): value for key, value in resource.items()})}
    return {"resourceSpans": [{"resource": held, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def said(trace: Trace) -> list[tuple[str, str | None]]:
    return [(message.role.value, message.content) for message in trace.messages]


def messages(*items: Mapping[str, object]) -> str:
    return json.dumps(items)


def text(role: str, content: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def chat(asked: str, answered: str, **usage: int) -> dict[str, object]:
    counts = {f"gen_ai.usage.{name}": count for name, count in usage.items()}
    return {
        **CHAT,
        "gen_ai.input.messages": messages(text("user", asked)),
        "gen_ai.output.messages": messages(text("assistant", answered)),
        **counts,
    }


@pytest.mark.parametrize(
    ("folder", "name", "raw"),
    [
        ("otlp", "genai_openai.json", '{"command":"pytest -q"}'),
        ("otlp", "genai_openai.official.jsonl", '{"command":"pytest -q"}'),
        ("otlp", "genai_openai.protobuf-mapping.json", '{"command":"pytest -q"}'),
        ("openinference", "openinference_openai.json", '{"command": "pytest -q"}'),
    ],
)
def test_a_sample_tells_one_conversation_with_usage_of_its_three_model_calls(folder: str, name: str, raw: str) -> None:
    trace = sample(name, folder)
    assert [message.role.value for message in trace.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    calls = [call for message in trace.messages for call in message.tool_calls]
    assert [(call.id, call.name, call.raw_arguments) for call in calls] == [
        ("call_abc1", "bash", raw),
        ("call_abc2", "bash", '{"command": "sed -i \'s/a/b'),
    ]
    assert calls[1].arguments is None
    assert trace.messages[1].content == "Tests fail on café.py\n[image]"
    assert [message.tool_call_id for message in trace.messages if message.role is Role.TOOL] == ["call_abc1", "call_abc2"]
    assert trace.messages[-1].content == "Fixed the \U0001f41b in café.py"
    assert trace.usage == Usage(363, 60, 192)
    assert [tool.name for tool in trace.tools] == ["bash"]
    assert (trace.model, trace.conversation_id, trace.outcome) == ("qwen3-8b", "conv-1", Outcome.UNKNOWN)
    assert trace.attributes["service_name"] == "coder"
    assert (trace.attributes["finish_reason"], trace.attributes["num_truncated_turns"]) == ("stop", "1")
    assert trace.duration_s is not None
    assert 0.1 < trace.duration_s < 0.3


def test_the_three_encodings_of_one_trace_are_one_trace() -> None:
    files = [file for file in sample_files("otlp") if file.name.startswith("genai_openai")]
    lines = b"\n".join(json.dumps(json.loads(file.read_bytes())).encode() for file in files)
    (trace,) = parse_file(lines, location="somewhere")
    assert isinstance(trace, Trace)
    assert (trace.id, len(trace.messages), trace.usage.input_tokens) == (TRACE_ID, 7, 363)


def test_spans_without_anything_of_genai_are_a_rejection() -> None:
    (file,) = (file for file in sample_files("otlp") if file.name == "proto_example_trace.json")
    (rejection,) = parse_file(file.read_bytes(), location="somewhere")
    assert isinstance(rejection, Rejection)
    assert "no GenAI span" in rejection.detail


def test_no_record_of_another_format_is_taken() -> None:
    folders = {file.parent for file in sample_files("otlp")[0].parents[1].glob("*/*")} - {sample_files("otlp")[0].parent}
    for file in (file for folder in folders if folder.name != "openinference" for file in folder.iterdir()):
        for result in parse_file(file.read_bytes(), location="somewhere"):
            assert result.source.format != "otlp", file
    assert only(document(span(1, chat("a", "b")))).source.format == "otlp"
    assert match({"traceId": "t", "id": "o", "parentObservationId": None}) == match([]) == match(None) == 0


def test_spans_come_one_by_one_out_of_order_and_twice_and_the_last_complete_one_counts() -> None:
    half = span(1, {**CHAT, "gen_ai.usage.input_tokens": 1}, 9, endTimeUnixNano="0")
    whole = span(1, chat("fix", "done", input_tokens=5, output_tokens=2), 9)
    other = {**span(3, chat("other", "run")), "traceId": "b" * 32}
    first, second = parse(half, other, whole, [half], document(span(9, {"gen_ai.agent.name": "coder"}, 77)))
    assert isinstance(first, Trace)
    assert isinstance(second, Trace)
    assert (said(first), first.usage.input_tokens) == ([("user", "fix"), ("assistant", "done")], 5)
    assert first.attributes["agent"] == "coder"
    assert second.id == "b" * 32


def test_one_array_of_spans_is_a_trace_and_a_circle_of_parents_does_no_harm() -> None:
    first, second = chat("a", "b", input_tokens=3), chat("a", "b", input_tokens=3)
    trace = only([span(1, first, 2), span(2, second, 1), span(3, {}, 3)])
    assert (said(trace), trace.usage.input_tokens) == ([("user", "a"), ("assistant", "b")], 3)


def test_usage_that_a_parent_repeats_counts_once_and_a_sent_history_is_no_second_conversation() -> None:
    second = {**chat("", "done", input_tokens=20, output_tokens=2)}
    second["gen_ai.input.messages"] = messages(text("user", "a"), text("assistant", "b"), text("user", "c"))
    trace = only(
        document(
            span(1, {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30}),
            span(2, chat("a", "b", input_tokens=30, output_tokens=4), 1),
            span(3, chat("a", "b", input_tokens=10, output_tokens=2), 2),
            span(4, second, 1),
        )
    )
    assert [content for _, content in said(trace)] == ["a", "b", "c", "done"]
    assert trace.usage == Usage(30, 4, None)


@pytest.mark.parametrize("has_id", [True, False])
def test_a_tool_span_gives_the_result_that_the_conversation_lacks_and_none_that_it_has(has_id: bool) -> None:
    turn = {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, CALL], "finish_reason": "tool_call"}
    first = {**CHAT, "gen_ai.input.messages": messages(text("user", "go")), "gen_ai.output.messages": messages(turn)}
    result = {**TOOL, "gen_ai.tool.call.result": "refunded", **({"gen_ai.tool.call.id": "c1"} if has_id else {})}
    failed: dict[str, Any] = {"status": {"code": 2}, "events": [event("exception", exception__message="no such order")]}
    asking, tool = span(1, first), span(2, result)
    trace = only(document(asking, tool))
    assert said(trace) == [("user", "go"), ("assistant", None), ("tool", "refunded")]
    assert trace.messages[1].tool_calls[0].raw_arguments == CALL["arguments"]
    assert trace.messages[2].tool_call_id == "c1"
    assert said(only(document(asking, span(2, TOOL, **failed))))[2] == ("tool", "no such order")
    answer = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"ok": False}}]}
    last = {**chat("", "done"), "gen_ai.input.messages": messages(text("user", "go"), turn, answer)}
    trace = only(document(asking, tool, span(3, last)))
    assert [content for _, content in said(trace)] == ["go", None, '{"ok":false}', "done"]


def test_system_instructions_and_structured_attributes_are_read() -> None:
    values = {
        **CHAT,
        "gen_ai.system_instructions": [{"type": "text", "content": "be brief"}],
        "gen_ai.input.messages": [text("user", "hi")],
        "gen_ai.output.messages": [text("assistant", "one"), text("assistant", "two")],
        "gen_ai.request.choice.count": 2,
        "gen_ai.tool.definitions": messages({"type": "function", "name": "refund", "parameters": {"type": "object"}}),
        "user.id": 42,
    }
    trace = only(document(span(1, values), vcs__ref__head__revision="abc", process__working_directory="/src"))
    assert said(trace) == [("system", "be brief"), ("user", "hi"), ("assistant", "one")]
    assert (trace.user, trace.tools[0].name) == ("42", "refund")
    assert (trace.attributes["base_commit"], trace.attributes["cwd"]) == ("abc", "/src")


def test_indexed_attributes_are_read_by_their_numbers() -> None:
    values: dict[str, object] = {"llm.request.type": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m"}
    for index in range(11):
        values[f"gen_ai.prompt.{index}.role"] = "user"
        values[f"gen_ai.prompt.{index}.content"] = f"turn {index}"
    values |= {
        "gen_ai.prompt.0.content": messages({"type": "text", "text": "turn"}, {"type": "image_url", "image_url": "data:x"}),
        "gen_ai.prompt.1.content": "[1, 2]",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "refund",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"order_id": "7"}',
        "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.completion_tokens": 3,
        "llm.request.functions.0.name": "refund",
        "llm.request.functions.0.parameters": '{"type": "object"}',
        "traceloop.association.properties.user_id": "ann",
    }
    tool = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "refund",
        "traceloop.entity.input": '{"args": [], "kwargs": {"order_id": "7"}}',
        "traceloop.entity.output": "refunded",
    }
    trace = only(document(span(1, values), span(2, tool)))
    assert [content for _, content in said(trace)][:3] == ["turn\n[image_url]", "[1, 2]", "turn 2"]
    assert (len(trace.messages), trace.messages[10].content) == (13, "turn 10")
    assert trace.messages[11].tool_calls[0].arguments == {"order_id": "7"}
    assert said(trace)[12] == ("tool", "refunded")
    assert (trace.usage, trace.user, trace.tools[0].name) == (Usage(7, 3, None), "ann", "refund")
    assert trace.attributes["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("as_event", [True, False])
def test_the_oldest_convention_has_prompt_and_completion_in_one_attribute_or_event(as_event: bool) -> None:
    prompt, completion = messages(ASK), "Done."
    if as_event:
        told = [
            event("gen_ai.content.prompt", gen_ai__prompt=prompt),
            event("gen_ai.content.completion", gen_ai__completion=completion),
        ]
        trace = only(document(span(1, CHAT, events=told)))
    else:
        trace = only(document(span(1, {**CHAT, "gen_ai.prompt": prompt, "gen_ai.completion": completion})))
    assert said(trace) == [("user", "refund order 7"), ("assistant", "Done.")]


def test_events_tell_one_message_each() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": "7"}'}}
    told = [
        event("gen_ai.system.message", content="be brief"),
        event("gen_ai.user.message", gen_ai__event__content=json.dumps(ASK)),
        event("gen_ai.assistant.message", tool_calls=json.dumps([call])),
        event("gen_ai.tool.message", id="c1", content="refunded"),
        event("gen_ai.choice", index=1, message='{"content": "never said"}'),
        event("gen_ai.choice", index=0, finish_reason="stop", message='{"role": "assistant", "content": "Done."}'),
        event("gen_ai.evaluation.result", gen_ai__evaluation__name="tone", gen_ai__evaluation__score__label="rude"),
    ]
    trace = only(document(span(1, CHAT, events=told)))
    assert said(trace) == [
        ("system", "be brief"),
        ("user", ASK["content"]),
        ("assistant", None),
        ("tool", "refunded"),
        ("assistant", "Done."),
    ]
    assert trace.messages[2].tool_calls[0].id == trace.messages[3].tool_call_id == "c1"
    assert [(item.name, item.value, item.source) for item in trace.feedback] == [("tone", "rude", "code")]
    (silent,) = parse(
        document(span(1, CHAT, events=[event("gen_ai.user.message"), event("gen_ai.choice", finish_reason="stop")]))
    )
    assert isinstance(silent, Rejection)


def test_events_with_the_blocks_of_bedrock_keep_calls_and_results() -> None:
    call, result = (
        {"toolUse": {"toolUseId": "c1", "name": "refund", "input": {"order_id": "7"}}},
        {"toolResult": {"toolUseId": "c1", "content": [{"text": "refunded"}]}},
    )
    told = [
        event("gen_ai.user.message", content='[{"text": "go"}]'),
        event("gen_ai.assistant.message", content=json.dumps([{"text": "I will"}, call])),
        event("gen_ai.tool.message", content=json.dumps([result])),
        event("gen_ai.choice", finish_reason="end_turn", message='[{"text": "Done."}]'),
    ]
    trace = only(document(span(1, CHAT, events=told)))
    assert said(trace) == [("user", "go"), ("assistant", "I will"), ("tool", "refunded"), ("assistant", "Done.")]
    assert (trace.messages[1].tool_calls[0].arguments, trace.messages[2].tool_call_id) == ({"order_id": "7"}, "c1")


def test_an_agent_that_alone_logs_what_was_said_is_told_with_the_usage_of_its_calls() -> None:
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.usage.input_tokens": 9,
        "pydantic_ai.all_messages": messages(text("user", "go"), text("assistant", "Done.")),
    }
    trace = only(document(span(1, agent), span(2, {**CHAT, "gen_ai.usage.input_tokens": 9}, 1)))
    assert (said(trace), trace.usage.input_tokens) == ([("user", "go"), ("assistant", "Done.")], 9)
    plain = {"openinference.span.kind": "AGENT", "input.value": "go", "output.value": "Done."}
    trace = only(document(span(1, plain), span(2, {"openinference.span.kind": "LLM", "llm.model_name": "m"}, 1)))
    assert (said(trace), trace.model) == ([("user", "go"), ("assistant", "Done.")], "m")


def test_a_run_whose_outermost_span_failed_is_a_failure() -> None:
    status = {"code": "STATUS_CODE_ERROR", "message": "429 too many requests"}
    trace = only(document(span(1, {"gen_ai.agent.name": "x"}, 99, status=status), span(2, chat("a", "b"), 1)))
    assert (trace.outcome, trace.error) == (Outcome.FAILURE, "429 too many requests")


def test_spans_as_the_sdk_prints_them_are_read() -> None:
    printed = {
        "name": "chat m",
        "context": {"trace_id": f"0x{TRACE_ID}", "span_id": "0x00000000000000aa", "trace_state": "[]"},
        "parent_id": None,
        "start_time": "2026-11-30T21:00:00.000000Z",
        "end_time": "2026-11-30T21:00:02.500000Z",
        "status": {"status_code": "ERROR", "description": "cut off"},
        "attributes": chat("a", "b"),
        "resource": {"attributes": {"service.name": "coder"}},
    }
    trace = only(printed)
    assert (trace.id, trace.duration_s, trace.error) == (TRACE_ID, 2.5, "cut off")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("EEE19B7EC3C1B174", "eee19b7ec3c1b174"),
        ("NqICd9LAJJQ=", "36a20277d2c02494"),
        ("NqICd9LAJJQ", "36a20277d2c02494"),
        ("0000000000000000", None),
        ("AAAAAAAAAAA=", None),
        ("", None),
        (7, None),
        ("span-1", "span-1"),
    ],
)
def test_ids_are_hex_or_base64(value: str, expected: str | None) -> None:
    assert read_id(value, 8) == expected


@pytest.mark.parametrize("frame", [lambda data: data, lambda data: struct.pack(">I", len(data)) + data])
def test_protobuf_is_read_like_its_json_and_a_file_that_is_cut_off_keeps_what_came_before(
    frame: Callable[[bytes], bytes],
) -> None:
    (file,) = (file for file in sample_files("otlp") if file.name == "genai_openai.protobuf-mapping.json")
    data: bytes = frame(ParseDict(json.loads(file.read_bytes()), TracesData()).SerializeToString())
    rows = list(protobuf_rows(data + data) or ())
    assert [type(row) for row in rows] == [Row, Row]
    found = [part for row in rows if isinstance(row, Row) for part in parts(row.value)]
    trace = otlp.parse_parts([part for _, part in found], Source("file", "somewhere", "otlp"))
    assert (trace.id, len(trace.messages), trace.usage) == (TRACE_ID, 7, Usage(363, 60, 192))
    cut = [type(row) for row in protobuf_rows((data + data)[:-9]) or ()]
    assert cut == ([] if data[0] == 0x0A else [Row, Damage])


@pytest.mark.parametrize(
    "data", [b"", b"\n", b'\n{"messages": []}\n', b'{"a":\n1}', b"\0\0\0\0\n", b"\n\x03abc", b"\x1f\x8b\0\0\n"]
)
def test_what_is_no_protobuf_is_left_to_others(data: bytes) -> None:
    assert protobuf_rows(data) is None


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({**span(1, chat("a", "b")), "traceId": ""}, "traceId"),
        (document(span(1, {**CHAT, "gen_ai.input.messages": messages({**ASK, "role": "wizard"})})), "wizard"),
        ({"resourceSpans": []}, "no GenAI span"),
    ],
)
def test_what_cannot_be_read_is_a_rejection_that_says_why(record: object, reason: str) -> None:
    (rejection,) = parse(record)
    assert isinstance(rejection, Rejection)
    assert reason in rejection.detail


NAMES = st.sampled_from(
    ["gen_ai.operation.name", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt.0.role", "gen_ai.prompt.0.content",
     "gen_ai.prompt.0", "gen_ai.prompt", "gen_ai.completion", "gen_ai.tool.definitions", "gen_ai.tool.call.result", "gen_ai.tool.name",
     "openinference.span.kind", "llm.input_messages.0.message.tool_calls.0.tool_call.function.arguments", "llm.output_messages.x",
     "llm.output_messages.0.message.contents.0.message_content.text", "gen_ai.usage.input_tokens", "input.value", "events",
     "gen_ai.response.finish_reasons", "gen_ai.system_instructions", "message", "content", "index", "session.id", "metadata"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS
    | st.sampled_from(["chat", "execute_tool", "LLM", "TOOL", "user", "tool", '[{"role":"user"}]', '{"kwargs":1}', "[[", "STATUS_CODE_ERROR"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "parts", "content", "type", "stringValue", "intValue", "arrayValue", "kvlistValue", "values", "key",
                         "value", "tool_calls", "name", "arguments", "id", "message", "code"]),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
ATTRIBUTES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5).map(
    lambda found: [
        {"key": key, "value": value if isinstance(value, dict) else any_value(str(value))} for key, value in found.items()
    ]
)
SPANS = st.fixed_dictionaries(
    {"traceId": st.just(TRACE_ID), "spanId": st.sampled_from(["1" * 16, "2" * 16, "AAAAAAAAAAE="]) | SCALARS,
     "attributes": ATTRIBUTES | VALUES, "startTimeUnixNano": SCALARS},
    optional={"parentSpanId": st.sampled_from(["1" * 16, "2" * 16]) | SCALARS, "endTimeUnixNano": SCALARS, "status": VALUES,
              "name": VALUES, "events": VALUES | st.lists(st.fixed_dictionaries({"name": st.sampled_from(
                  ["gen_ai.choice", "gen_ai.user.message", "exception", "gen_ai.evaluation.result"]), "attributes": ATTRIBUTES}))},
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(SPANS | VALUES, min_size=1, max_size=4), st.booleans())
def test_mangled_spans_never_raise_and_can_always_be_stored(spans: list[object], as_document: bool) -> None:
    for result in parse(document(*spans)) if as_document else parse(*spans):
        if isinstance(result, Trace):
            assert trace_from_row(trace_to_row(result)) == result

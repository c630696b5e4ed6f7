"""Spans of OpenTelemetry as steps of a run: what their attributes and events say, under every convention they are written in.

Owns reading one span. Conventions: OpenTelemetry's GenAI attributes (opentelemetry.io/docs/specs/semconv/gen-ai: messages as JSON
in `gen_ai.input.messages`; before 1.37 one event per message; before 1.28 `gen_ai.prompt` and `gen_ai.completion`), OpenLLMetry's
indexed attributes (`gen_ai.prompt.0.role`, `traceloop.*`), OpenInference's (arize-ai.github.io/openinference/spec) and the ones
pydantic-ai adds. A span may follow several; the first of them that has messages is read, so that nothing counts twice.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from pipelines.traces.formats.langfuse import Step, open_json, read_specs
from pipelines.traces.json_text import as_int
from pipelines.traces.model import ToolSpec, Usage
from pipelines.traces.openai_messages import ROLES, as_dict, as_list, as_text
from pipelines.traces.timestamps import read_time

Fields = dict[str, JsonValue]
Kind = Literal["model", "tool", "other"]

_MARKS = ("gen_ai.", "openinference.", "traceloop.", "llm.")
_MODEL_CALLS = ("chat", "text_completion", "generate_content", "completion")
_CONTENT_EVENTS = ("gen_ai.content.prompt", "gen_ai.content.completion", "gen_ai.client.inference.operation.details")
"""Events whose attributes are those of the span, kept apart for their size."""
_FAILED = ("2", "STATUS_CODE_ERROR", "ERROR")
_SPEAKERS = {**ROLES, "model": ROLES["assistant"], "ai": ROLES["assistant"]}
_BLOCKS = ("text", "image", "image_url", "input_text", "output_text", "tool_use", "tool_result", "tool_call", "thinking")
_MEDIA = ("blob", "uri", "file")
_MAX_PATH = 12
"""Dots in an indexed attribute's name; OpenInference needs 8."""
_NO_CALL = Usage()


@dataclass(frozen=True, slots=True)
class Span:
    id: str
    parent: str | None
    name: str
    attributes: Fields
    events: tuple[tuple[str, Fields], ...]
    resource: Fields
    start: int | None
    """Unix nanoseconds; None when unknown or not yet."""
    end: int | None
    problem: str | None
    """What it failed with; None when it did not fail."""
    position: int


def read_span(fields: Fields, resource: Fields, position: int) -> Span:
    """A span in OTLP's JSON, or in the JSON that the SDKs print (ids under `context`, attributes as an object)."""
    context = as_dict(fields.get("context"))
    events = tuple(
        (as_text(event.get("name")) or "", read_attributes(event.get("attributes")))
        for event in map(as_dict, as_list(fields.get("events")))
    )
    attributes = read_attributes(fields.get("attributes"))
    name = as_text(fields.get("name")) or ""
    return Span(
        id=read_id(_first(fields, "spanId", "span_id") or context.get("span_id"), 8) or f"#{position}",
        parent=read_id(_first(fields, "parentSpanId", "parent_span_id", "parent_id"), 8),
        name=name,
        attributes=attributes,
        events=events,
        resource=resource,
        start=_nanoseconds(_first(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time")),
        end=_nanoseconds(_first(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time")),
        problem=_problem(fields, attributes, events) or f"{name} failed" if _has_failed(fields) else None,
        position=position,
    )


def trace_id(fields: Fields) -> str | None:
    return read_id(_first(fields, "traceId", "trace_id") or as_dict(fields.get("context")).get("trace_id"), 16)


def read_id(value: JsonValue, size_bytes: int) -> str | None:
    """An id in lower-case hex, whether OTLP's JSON has it in hex or protobuf's own JSON in base64. None: none, or all zeros."""
    text = (as_text(value) or "").strip().removeprefix("0x").lower()
    if not text.strip("0"):
        return None
    if re.fullmatch(f"[0-9a-f]{{{2 * size_bytes}}}", text):
        return text
    raw = str(value).strip()
    try:
        decoded = base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_" if set(raw) & set("-_") else None, validate=True)
    except (ValueError, binascii.Error):
        return raw
    if len(decoded) != size_bytes:
        return raw
    return decoded.hex() if any(decoded) else None


def read_attributes(value: JsonValue) -> Fields:
    """Attributes as a list of keys and AnyValues, or as a plain object."""
    if isinstance(value, dict):
        return value
    pairs = (as_dict(item) for item in as_list(value))
    return {key: _any_value(pair.get("value")) for pair in pairs if (key := as_text(pair.get("key")))}


def is_genai(span: Span) -> bool:
    """Whether the span says anything about models, agents or tools."""
    return any(key.startswith(_MARKS) for key in span.attributes) or any(name.startswith("gen_ai.") for name, _ in span.events)


def kind_of(span: Span) -> Kind:
    found = span.attributes
    operation = str(found.get("gen_ai.operation.name", "")).lower()
    request = str(found.get("llm.request.type", "")).lower()
    inference = str(found.get("openinference.span.kind", "")).upper()
    traceloop = str(found.get("traceloop.span.kind", "")).lower()
    if inference == "LLM" or operation in _MODEL_CALLS or request in ("chat", "completion"):
        return "model"
    if inference == "TOOL" or operation == "execute_tool" or traceloop == "tool":
        return "tool"
    if operation or request or inference or traceloop:
        return "other"
    if "gen_ai.tool.name" in found:
        return "tool"
    return (
        "model" if any(name in found for name in ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")) else "other"
    )


def read_step(span: Span, kind: Kind, parent: str | None) -> Step:
    found: Fields = {}
    for name, attributes in span.events:
        found |= attributes if name in _CONTENT_EVENTS else {}
    found |= span.attributes
    events = [*span.events, *_listed_events(found.get("events"))]
    told = _tool_sides(found, events) if kind == "tool" else (_asked(found, events), _answered(found, events))
    named = _text_of(found, "gen_ai.tool.name", "tool.name", "traceloop.entity.name")
    return Step(
        id=span.id,
        parent=parent,
        order=("~" if span.start is None else f"{span.start:020}", span.position),
        kind=kind,
        name=(named or span.name.removeprefix("execute_tool ")) if kind == "tool" else span.name,
        inputs=told[0],
        outputs=told[1],
        problem=span.problem,
        usage=_usage(found) if kind == "model" else _NO_CALL,
        model=_text_of(found, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        tools=_tools(found),
        call_id=_text_of(found, "gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    )


def _asked(found: Fields, events: list[tuple[str, Fields]]) -> JsonValue:
    """What the model or agent was sent: messages, with the system prompt first; else the input as it stands."""
    messages = _messages(found, "gen_ai.input.messages", "user")
    messages = messages or [_inference_message(item, "user") for item in _indexed(found, "llm.input_messages.")]
    messages = messages or [_message(item, "user") for item in _indexed(found, "gen_ai.prompt.")]
    messages = messages or _messages(found, "gen_ai.prompt", "user")
    messages = messages or [turn for name, body in events if (turn := _event_turn(name, body))]
    messages = messages or _messages(found, "pydantic_ai.all_messages", "user")
    messages = messages or [
        turn for name, body in _listed_events(found.get("all_messages_events")) if (turn := _event_turn(name, body))
    ]
    instructions = _opened(found.get("gen_ai.system_instructions"))
    if instructions and not any(message["role"] in ("system", "developer") for message in messages):
        whole = "parts" if isinstance(instructions, list) else "content"
        messages = [{"role": "system", whole: instructions}, *messages]
    return [*messages] or _first(found, "gen_ai.prompt", "input.value", "traceloop.entity.input")


def _answered(found: Fields, events: list[tuple[str, Fields]]) -> JsonValue:
    """What came back: the answer that the run went on with, which is the first of several; else the output as it stands."""
    messages = _messages(found, "gen_ai.output.messages", "assistant")
    messages = messages or [_inference_message(item, "assistant") for item in _indexed(found, "llm.output_messages.")]
    messages = messages or [_message(item, "assistant") for item in _indexed(found, "gen_ai.completion.")]
    messages = messages or _messages(found, "gen_ai.completion", "assistant")
    messages = messages or [turn for name, body in events if name == "gen_ai.choice" and (turn := _choice(body))]
    if not messages:
        return _first(found, "gen_ai.completion", "output.value", "traceloop.entity.output")
    parameters = as_dict(_opened(found.get("llm.invocation_parameters")))
    if (as_int(found.get("gen_ai.request.choice.count", parameters.get("n"))) or 1) > 1:
        messages = messages[:1]
    reasons = as_list(_opened(found.get("gen_ai.response.finish_reasons")))
    reason = as_text(reasons[0]) if reasons else as_text(found.get("llm.finish_reason"))
    return [{**({"finish_reason": reason} if reason else {}), **messages[0]}, *messages[1:]]


def _tool_sides(found: Fields, events: list[tuple[str, Fields]]) -> tuple[JsonValue, JsonValue]:
    arguments = _first(found, "gen_ai.tool.call.arguments", "tool_arguments", "input.value", "traceloop.entity.input")
    keywords = as_dict(_opened(arguments)).get("kwargs")
    result = _first(found, "gen_ai.tool.call.result", "tool_response", "output.value", "traceloop.entity.output")
    if result is None:
        said = [_choice(body) if name == "gen_ai.choice" else None for name, body in events]
        result = next((turn.get("content") for turn in said if turn), None)
    return keywords if isinstance(keywords, dict) else arguments, result


def _messages(found: Fields, name: str, role: str) -> list[Fields]:
    """Messages that one attribute lists, usually as JSON text; empty when it lists none."""
    items = as_list(_opened(found.get(name)))
    is_list = bool(items) and all(isinstance(item, dict) and ("role" in item or "parts" in item) for item in items)
    return [_message(as_dict(item), role) for item in items] if is_list else []


def _message(fields: Fields, role: str) -> Fields:
    """The message with a role that is known. Raises ValueError for another one: who spoke decides what a message means."""
    speaker = str(fields.get("role") or role).lower()
    if speaker not in _SPEAKERS:
        raise ValueError(f"message role {speaker[:100]!r}; expected one of {', '.join(_SPEAKERS)}")
    read: Fields = {**fields, "role": str(_SPEAKERS[speaker])}
    if "content" in fields:
        read["content"] = _content(fields["content"])
    if isinstance(parts := fields.get("parts"), list):
        read["parts"] = [_part(as_dict(part)) for part in parts]
    return read


def _part(part: Fields) -> JsonValue:
    """A message part; of images and files a mark, as their bytes stand where other parts have text."""
    return {"type": as_text(part.get("modality")) or part.get("type")} if part.get("type") in _MEDIA else part


def _content(value: JsonValue) -> JsonValue:
    """Content blocks, which may have been written as JSON text; every other text stays what it is."""
    opened = _opened(value) if isinstance(value, str) and value.startswith("[") else value
    if not isinstance(opened, list) or not opened or not all(_is_block(as_dict(item)) for item in opened):
        return value
    return [_block(as_dict(item)) for item in opened]


def _is_block(block: Fields) -> bool:
    return block.get("type") in _BLOCKS or block.keys() in ({"text"}, {"toolUse"}, {"toolResult"})


def _block(block: Fields) -> JsonValue:
    """Bedrock's blocks, which Strands logs, under the names others use."""
    if call := as_dict(block.get("toolUse")):
        return {"type": "tool_call", "id": call.get("toolUseId"), "name": call.get("name"), "arguments": call.get("input")}
    if result := as_dict(block.get("toolResult")):
        texts = [as_dict(item).get("text") for item in as_list(result.get("content"))]
        told = "\n".join(text for text in texts if isinstance(text, str)) or result.get("content")
        return {"type": "tool_call_response", "id": result.get("toolUseId"), "response": told}
    return {"type": "text", **block}


def _inference_message(item: Fields, role: str) -> Fields:
    message = as_dict(item.get("message"))
    contents = [as_dict(as_dict(entry).get("message_content")) for entry in as_list(message.get("contents"))]
    calls: list[JsonValue] = [as_dict(entry).get("tool_call") for entry in as_list(message.get("tool_calls"))]
    if name := as_text(message.get("function_call_name")):
        calls.append({"name": name, "arguments": message.get("function_call_arguments_json")})
    blocks: list[JsonValue] = [{"type": entry.get("type"), "text": entry.get("text")} for entry in contents]
    return _message({**message, "content": blocks or message.get("content"), "tool_calls": calls}, role)


def _event_turn(name: str, body: Fields) -> Fields | None:
    """The message that one event tells; None for an answer and for other events."""
    found = re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", name)
    if not found:
        return None
    turn = {**body, **as_dict(_opened(body.get("gen_ai.event.content")))}
    turn["tool_calls"] = _opened(turn.get("tool_calls"))
    if found[1] == "tool":
        turn["tool_call_id"] = turn.get("tool_call_id") or turn.get("id")
    turn.pop("id", None)
    return _message(turn, found[1]) if _says_anything(turn) else None


def _choice(body: Fields) -> Fields | None:
    """The answer in a choice event; None for an alternative."""
    whole = {**body, **as_dict(_opened(body.get("gen_ai.event.content")))}
    if as_int(whole.get("index")) not in (None, 0):
        return None
    opened = _opened(whole.get("message"))
    flat = {name.removeprefix("message."): value for name, value in whole.items() if name.startswith("message.")}
    message: Fields = {"tool_calls": whole.get("tool_calls"), "content": whole.get("content"), **flat}
    message |= opened if isinstance(opened, dict) else {"content": opened} if opened is not None else {}
    message["tool_calls"] = _opened(message.get("tool_calls"))
    if reason := as_text(whole.get("finish_reason")):
        message["finish_reason"] = reason
    return _message(message, "assistant") if _says_anything(message) else None


def _says_anything(message: Fields) -> bool:
    """Whether there is more than a role: where contents are not to be logged, events come without."""
    return any(message.get(name) not in (None, "", []) for name in ("content", "tool_calls", "parts"))


def _listed_events(value: JsonValue) -> Iterator[tuple[str, Fields]]:
    """Events that pydantic-ai lists as JSON in one attribute."""
    for item in map(as_dict, as_list(_opened(value))):
        yield as_text(item.get("event.name")) or "", item


def _tools(found: Fields) -> tuple[ToolSpec, ...]:
    inference = [as_dict(item.get("tool")).get("json_schema") for item in _indexed(found, "llm.tools.")]
    requested = as_dict(_opened(found.get("model_request_parameters")))
    functions: list[JsonValue] = [*_indexed(found, "llm.request.functions.")]
    return read_specs(
        *(_opened(found.get(name)) for name in ("gen_ai.tool.definitions", "gen_ai.request.tools")),
        inference,
        functions,
        requested.get("function_tools"),
    )


def _usage(found: Fields) -> Usage:
    return Usage(
        input_tokens=_count(found, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        output_tokens=_count(found, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
        cached_input_tokens=_count(
            found,
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.details.cache_read_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
    )


def _indexed(found: Fields, prefix: str) -> list[Fields]:
    """The list of objects that attributes such as `prefix0.message.role` spell out, in the order of their numbers."""
    tree: Fields = {}
    for key, value in found.items():
        path = key[len(prefix) :].split(".", _MAX_PATH) if key.startswith(prefix) else []
        if 1 < len(path) <= _MAX_PATH and _is_index(path[0]):
            _put(tree, path, value)
    return [as_dict(item) for item in as_list(_as_lists(tree))]


def _put(tree: Fields, path: list[str], value: JsonValue) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            return
        tree = below
    tree.setdefault(path[-1], value)


def _as_lists(tree: JsonValue) -> JsonValue:
    if not isinstance(tree, dict):
        return tree
    if tree and all(_is_index(name) for name in tree):
        return [_as_lists(tree[name]) for name in sorted(tree, key=int)]
    return {name: _as_lists(below) for name, below in tree.items()}


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 10


def _any_value(value: JsonValue) -> JsonValue:
    """An AnyValue as plain JSON. Numbers that JSON cannot hold are None."""
    if not isinstance(value, dict):
        return value
    for key, inner in value.items():
        match key.replace("_", "").lower():
            case "stringvalue" | "boolvalue" | "bytesvalue":
                return inner if isinstance(inner, str | bool) else None
            case "intvalue":
                return _integer(inner)
            case "doublevalue":
                return inner if isinstance(inner, int | float) else None
            case "arrayvalue":
                return [_any_value(item) for item in as_list(as_dict(inner).get("values"))]
            case "kvlistvalue":
                return read_attributes(as_dict(inner).get("values"))
    return None


def _integer(value: JsonValue) -> int | None:
    """An int64 in full: `as_int` reads text by way of a float."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return as_int(value)


def _nanoseconds(value: JsonValue) -> int | None:
    if isinstance(value, str) and "-" in value[1:]:
        time = read_time(value)
        return round(time.timestamp() * 1e9) if time else None
    number = _integer(int(value) if isinstance(value, str) and re.fullmatch("[0-9]{19}", value) else value)
    return number if number is not None and 0 < number < 1 << 63 else None


def _has_failed(fields: Fields) -> bool:
    status = as_dict(fields.get("status"))
    code = _first(status, "code", "status_code") or _first(fields, "status_code") or 0
    return str(code).rpartition(".")[2].upper() in _FAILED


def _problem(fields: Fields, attributes: Fields, events: tuple[tuple[str, Fields], ...]) -> str | None:
    status = as_dict(fields.get("status"))
    thrown = (_text_of(event, "exception.message", "exception.type") for name, event in events if name == "exception")
    return (
        _text_of(status, "message", "description")
        or as_text(fields.get("status_message"))
        or next(filter(None, thrown), None)
        or _text_of(attributes, "error.message", "error.type")
    )


def _opened(value: JsonValue) -> JsonValue:
    """The value with JSON inside strings undone; as it came where that is nested too deeply."""
    try:
        return open_json(value)
    except ValueError:
        return value if isinstance(value, str) else None


def _first(found: Mapping[str, JsonValue], *names: str) -> JsonValue:
    return next((value for name in names if (value := found.get(name)) is not None and value != ""), None)


def _text_of(found: Fields, *names: str) -> str | None:
    return next((text for name in names if (text := as_text(found.get(name)))), None)


def _count(found: Fields, *names: str) -> int | None:
    return next((number for name in names if (number := as_int(found.get(name))) is not None), None)

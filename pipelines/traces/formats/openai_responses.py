"""OpenAI's Responses API as people log it: request/response pairs, lone responses, streamed events.

Wire shapes as in OpenAI's API reference and the types of its Python SDK. A pair may lie flat, or under request/response,
input/output, body or kwargs, like chat completions; a response may also be the list of its streamed events.

A response is a list of items, not a message: its text and the calls behind it are one assistant turn. Hosted tools (web search, code
interpreter, MCP, ...) are calls named like the item without `_call`, with what the item shows of their result. A custom tool's free
text is the argument `input`. Reasoning is left out. Earlier turns that the server keeps (`previous_response_id`, `conversation`,
item references) are not in the file: they are named, not read. Clients append a response's items to the very list they had sent,
so output that the logged input already holds is not counted again.

Most streamed events carry no response id, and `parts` sees one event at a time. So every event goes to one run of all events of the
file, `STREAMED`; there an event belongs to the response whose item it is about, else to the one named last. An end event that holds
its output also goes to the run of its own response id, and is read there, however many streams the file holds. Left for `STREAMED`
is a response that never ended or whose end event is bare; two of those in a file are refused, as one run is one trace.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import JsonValue

from pipelines.artifacts import digest, to_json
from pipelines.traces.formats.openai_chat import read_expectations, read_feedback
from pipelines.traces.json_text import as_int, unwrap
from pipelines.traces.model import Message, Outcome, Role, Source, ToolCall, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
    as_dict,
    as_list,
    as_text,
    read_content,
    read_message,
    read_tool_call,
    read_tools,
    read_usage,
)
from pipelines.traces.timestamps import read_time

STREAMED = "streamed"
_WHOLE = "everloop.whole"
"""Key of a part that is an end event with its whole response, in the run of that response."""
Fields = dict[str, JsonValue]

_PREFIX = "response."
_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete", "response.cancelled"})
_NAMED = _ENDS | {"response.created", "response.queued", "response.in_progress"}
"""Events that hold the response object."""
_TEXTS = {
    "response.output_text": ("message", "text"),
    "response.refusal": ("message", "refusal"),
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.mcp_call_arguments": ("mcp_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
    "response.code_interpreter_call_code": ("code_interpreter_call", "code"),
}
"""What is streamed piece by piece: the item's type, and the field of the text in the item and in the last event of it."""
_NAMED_CALLS = frozenset({"function_call", "custom_tool_call", "mcp_call"})
"""Calls with a name of their own."""
_PART = re.compile(r"text|image|file|audio|screenshot|refusal|logs")
_VERSION = re.compile(r"_preview.*|_\d{4}.*")
_MARKS = ('output"', "output\\", 'input"', "input\\", 'error"', "error\\")


@dataclass(slots=True)
class _Item:
    """An output item while its events come in."""

    fields: Fields = field(default_factory=dict)
    is_done: bool = False
    kind: str = ""
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By name of the field and index of the content part."""


def match(record: JsonValue) -> int:
    if isinstance(record, list):
        return 2 if record and _event(record[0]) else 0
    fields = as_dict(record)
    response = _response(fields)
    if response.get("object") == "response" or _event(record):
        return 2
    request = _request(fields)
    asked = request.get("input")
    if not isinstance(asked, str) and not _holds_items(asked):
        return 0
    if _holds_items(response.get("output")):
        return 1
    is_alone = not isinstance(asked, str) and fields.keys().isdisjoint(("output", "response", "completion"))
    return 1 if "model" in request and (is_alone or response.get("error") or fields.get("error")) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    fields: Fields = {"response": record} if isinstance(record, list) else as_dict(record)
    request, response = _request(fields), _response(fields)
    try:
        key = digest([record, request, response])[:32]
    except TypeError as reason:
        raise ValueError(f"cannot be stored as JSON: {reason}") from reason
    both = response | {name: value for name, value in request.items() if value is not None}
    asked = _input_items(both.get("instructions"), Role.SYSTEM) + _input_items(request.get("input"), Role.USER)
    answered = [_object(item) for item in as_list(response.get("output"))]
    metadata = as_dict(both.get("metadata")) | as_dict(fields.get("metadata"))
    error = _error(response.get("error") or fields.get("error"))
    started = _first_time(fields.get("timestamp"), fields.get("created_at"), response.get("created_at"))
    return Trace(
        id=as_text(fields.get("id")) or as_text(fields.get("request_id")) or as_text(response.get("id")) or key,
        messages=_messages(asked, answered),
        source=source,
        tools=_tools(as_list(both.get("tools")), [*asked, *answered]),
        outcome=Outcome.FAILURE if error or response.get("status") == "failed" else Outcome.UNKNOWN,
        error=error,
        feedback=read_feedback(fields.get("feedback")),
        expectations=read_expectations(fields.get("expectations")),
        usage=_usage(as_dict(response.get("usage"))),
        model=as_text(response.get("model")) or as_text(request.get("model")),
        conversation_id=_conversation(both.get("conversation"))
        or _first_text([fields, metadata], "conversation_id", "session_id", "thread_id"),
        user=_first_text([fields, metadata, both], "user", "user_id", "safety_identifier"),
        started_at=started,
        duration_s=_duration_s(response),
        attributes=_attributes(fields, both, response, [*asked, *answered]),
    )


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """A streamed event; see the module for whose it is. Every other record is a run of its own, a list of events too."""
    event = _event(record)
    if not event:
        return []
    own = as_text(as_dict(event.get("response")).get("id")) if _is_whole(event) else None
    return [(STREAMED, event), (own, {_WHOLE: event})] if own else [(STREAMED, event)]


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace | None:
    """The one response that the events do not hold whole, put together from its pieces; None when they hold all of them whole."""
    fields = [as_dict(part) for part in parts]
    if fields and _WHOLE in fields[0]:
        return parse({"response": _assemble([as_dict(part.get(_WHOLE)) for part in fields])}, source)
    streams = _streams(fields)
    if not streams:
        raise ValueError("no streamed event")
    left = [_assemble(events) for events in streams.values() if not any(map(_is_whole, events))]
    with_output = [response for response in left if response.get("output")]
    if len(with_output) > 1:
        names = ", ".join(as_text(response.get("id")) or "one without an id" for response in with_output)
        raise ValueError(f"{len(with_output)} streamed responses have no whole end event: {names}; put each in a file of its own")
    response = next(iter(with_output or left), None)
    return None if response is None else parse({"response": response}, source)


# Where request and response lie.


def _request(fields: Fields) -> Fields:
    for name in ("request", "input", "kwargs", "body"):
        inner = _opened(fields.get(name))
        inner = _opened(inner.get("body")) or inner
        if "input" in inner or "instructions" in inner:
            return inner
    asked = fields.get("input")
    return fields | {"input": _items_in_text(asked)} if asked is not None else {}


def _response(fields: Fields) -> Fields:
    for name in ("response", "output", "completion", "result"):
        value = fields.get(name)
        if isinstance(value := _items_in_text(value), list):
            if value and _event(value[0]):
                return _assemble([event for item in value if (event := _event(item))])
            if name == "output" and _holds_items(value):
                return fields | {"output": value}
            continue
        inner = _opened(value)
        inner = as_dict(_event(inner).get("response")) or _opened(inner.get("body")) or inner
        if inner.get("object") == "response" or isinstance(inner.get("output"), list) or "error" in inner:
            return inner
    return fields if fields.get("object") == "response" else {}


def _opened(value: JsonValue) -> Fields:
    """An object, also as JSON in a string; a string that cannot hold a request or a response is not even parsed."""
    if isinstance(value, str) and not any(mark in value for mark in _MARKS):
        return {}
    return as_dict(unwrap(value))


def _items_in_text(value: JsonValue) -> JsonValue:
    """A list of items or events that came as JSON text; any other value as it is, for a user may write JSON too."""
    if not isinstance(value, str) or not value.startswith(("[", '"[')) or not ("type" in value or "role" in value):
        return value
    items = unwrap(value)
    return items if _holds_items(items) or (isinstance(items, list) and items and _event(items[0])) else value


def _holds_items(value: JsonValue) -> bool:
    """Whether a value is a list that begins with an item of the Responses API, or with a message."""
    first = as_dict(value[0]) if isinstance(value, list) and value else {}
    kind = first.get("type")
    known = isinstance(kind, str) and (
        kind in ("message", "reasoning", "item_reference") or kind.endswith(("_call", "_call_output"))
    )
    return known or ("role" in first and kind is None)


def _event(record: JsonValue) -> Fields:
    """The streamed event in a record, bare or as a server-sent event's `data`; empty when there is none."""
    fields = as_dict(record)
    name = fields.get("event")
    if isinstance(name, str) and (name.startswith(_PREFIX) or name == "error"):
        fields = as_dict(unwrap(fields.get("data")))
    kind = fields.get("type")
    if kind == "error":
        return fields if "sequence_number" in fields else {}
    is_realtime = "event_id" in fields
    if not isinstance(kind, str) or not kind.startswith(_PREFIX) or is_realtime:
        return {}
    if kind in _NAMED:
        return fields if isinstance(fields.get("response"), dict) else {}
    return fields if any(name in fields for name in ("sequence_number", "output_index", "item_id", "response_id")) else {}


# Messages.


def _input_items(value: JsonValue, role: Role) -> list[Fields]:
    """Instructions or input as items: a text is one message."""
    if value is None or isinstance(value, str):
        return [{"role": role.value, "content": value}] if value else []
    if not isinstance(value, list):
        raise ValueError(f"input or instructions is a {type(value).__name__}; expected a text or a list of items")
    return [_object(item) for item in value]


def _object(item: JsonValue) -> Fields:
    if not isinstance(item, dict):
        raise ValueError(f"an item is a {type(item).__name__}; expected an object")
    return item


def _kind(item: Fields) -> str:
    return as_text(item.get("type")) or ("message" if "role" in item else "item_reference")


def _messages(asked: list[Fields], answered: list[Fields]) -> tuple[Message, ...]:
    before, after = _turns(asked), _turns(answered)
    sent = _marks(asked)
    is_sent_too = before[-len(after) :] == after or any(mark in sent for mark in _marks(answered))
    return tuple(before if is_sent_too else before + after)


def _marks(items: list[Fields]) -> list[tuple[str, list[Message]]]:
    """What an item is known again by: its id and what it says, for some servers use their ids anew in every turn."""
    ids = [as_text(item.get("call_id")) or as_text(item.get("id")) for item in items]
    return [(name, turns) for name, item in zip(ids, items, strict=True) if name and (turns := list(_read_item(item)))]


def _turns(items: list[Fields]) -> list[Message]:
    found: list[Message] = []
    for item in items:
        for message in _read_item(item):
            last = found[-1] if found else None
            if last and last.role is Role.ASSISTANT and message.tool_calls:
                found[-1] = replace(last, tool_calls=(*last.tool_calls, *message.tool_calls))
            else:
                found.append(message)
    return found


def _read_item(item: Fields) -> Iterator[Message]:
    kind = _kind(item)
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    if kind == "message":
        yield read_message({"role": item.get("role"), "content": _parts(item.get("content"))})
    elif kind.endswith("_call_output"):
        yield Message(Role.TOOL, _output(item.get("output")), tool_call_id=call_id)
    elif kind.endswith("_call"):
        yield Message(Role.ASSISTANT, None, (_read_call(item, kind, call_id),))
        if kind not in ("function_call", "custom_tool_call") and (result := _result(item)) is not None:
            yield Message(Role.TOOL, result, tool_call_id=call_id)


def _call_name(item: Fields, kind: str) -> str:
    return as_text(item.get("name")) or "" if kind in _NAMED_CALLS else kind.removesuffix("_call")


def _read_call(item: Fields, kind: str, call_id: str | None) -> ToolCall:
    name = _call_name(item, kind)
    text = item.get("input")
    if kind == "custom_tool_call" and isinstance(text, str):
        return ToolCall(name, {"input": text}, text, call_id)
    arguments = item.get("arguments")
    if kind not in _NAMED_CALLS and arguments is None:
        shown = as_dict(item.get("action")) or as_dict(item.get("operation"))
        arguments = shown or {key: item[key] for key in ("queries", "code", "actions") if item.get(key) is not None}
    return read_tool_call({"id": call_id, "name": name, "arguments": arguments})


def _result(item: Fields) -> str | None:
    """What a hosted call's item shows of its result; an image never."""
    shown = (item.get(name) for name in ("error", "output", "outputs", "results"))
    return _output(next((value for value in shown if value), None))


def _output(value: JsonValue) -> str | None:
    """A tool's output: text, content parts, or whatever else as JSON."""
    if value is None or isinstance(value, str):
        return value
    found: list[JsonValue] = value if isinstance(value, list) else [value]
    is_content = all(_PART.search(str(as_dict(part).get("type"))) for part in found)
    return read_content(_parts(found)) if is_content else to_json(value).decode()


def _parts(content: JsonValue) -> JsonValue:
    """Content as chat completions have it: a refusal and a program's logs are texts too."""
    return [_plain_part(part) for part in content] if isinstance(content, list) else content


def _plain_part(part: JsonValue) -> JsonValue:
    fields = as_dict(part)
    text = fields.get({"refusal": "refusal", "logs": "logs"}.get(str(fields.get("type")), ""))
    return text if isinstance(text, str) else part


# The rest of a trace.


def _tools(declared: list[JsonValue], items: list[Fields]) -> tuple[ToolSpec, ...]:
    """Tools offered: functions and custom tools, those of namespaces and MCP servers, hosted ones by their type.

    A hosted tool that was called was offered, under whatever name.
    """
    listed = [as_dict(item) for item in declared]
    nested = [tool for item in (*listed, *items) for tool in as_list(item.get("tools"))]
    named = read_tools([*(item for item in listed if "tools" not in item), *nested])
    kinds = [as_text(item.get("type")) for item in listed if not as_text(item.get("name")) and not as_dict(item.get("function"))]
    hosted = [_VERSION.sub("", kind) for kind in kinds if kind and kind != "mcp"]
    called = [_call_name(item, _kind(item)) for item in items if _is_hosted(_kind(item))]
    specs = {spec.name: spec for spec in named}
    return tuple((specs | {name: ToolSpec(name) for name in (*hosted, *called) if name and name not in specs}).values())


def _is_hosted(kind: str) -> bool:
    return kind.endswith("_call") and kind not in ("function_call", "custom_tool_call")


def _usage(counts: Fields) -> Usage:
    details = as_dict(counts.get("input_tokens_details"))
    return read_usage({"cached_tokens": details.get("cached_tokens")} | counts)


def _error(error: JsonValue) -> str | None:
    if not error:
        return None
    return as_text(as_dict(error).get("message")) or (error if isinstance(error, str) else to_json(error).decode())


def _conversation(value: JsonValue) -> str | None:
    return as_text(value) or as_text(as_dict(value).get("id"))


def _first_text(places: list[Fields], *names: str) -> str | None:
    return next((text for name in names for place in places if (text := as_text(place.get(name)))), None)


def _first_time(*values: JsonValue) -> datetime | None:
    return next((time for value in values if (time := read_time(value)) is not None), None)


def _duration_s(response: Fields) -> float | None:
    start, end = read_time(response.get("created_at")), read_time(response.get("completed_at"))
    return (end - start).total_seconds() if start and end and end >= start else None


def _attributes(fields: Fields, both: Fields, response: Fields, items: list[Fields]) -> dict[str, str]:
    reason = as_text(as_dict(response.get("incomplete_details")).get("reason"))
    num_references = sum(_kind(item) == "item_reference" for item in items)
    hosted = [item for item in items if _is_hosted(_kind(item)) and (item.get("status") == "failed" or item.get("error"))]
    failed = [f"{_call_name(item, _kind(item))}: {_error(item.get('error')) or 'failed'}" for item in hosted]
    found = {
        "status": as_text(response.get("status")),
        "finish_reason": "length" if reason == "max_output_tokens" else reason,
        "previous_response_id": as_text(both.get("previous_response_id")),
        "custom_id": as_text(fields.get("custom_id")),
        "num_item_references": str(num_references or ""),
        "failed_tools": "; ".join(dict.fromkeys(failed)),
    }
    return {name: value for name, value in found.items() if value}


# Streams.


def _is_whole(event: Fields) -> bool:
    """Whether an event ends its response and holds all of it; some servers leave the output out there."""
    return str(event.get("type")) in _ENDS and bool(as_list(as_dict(event.get("response")).get("output")))


def _streams(events: list[Fields]) -> dict[str, list[Fields]]:
    """Events by response id, in order of appearance; under "" those that came before any id."""
    owners: dict[str, str] = {}
    for event in filter(_is_whole, events):
        response = as_dict(event.get("response"))
        for item in map(as_dict, as_list(response.get("output"))):
            owners[_item_id(item, "id")] = as_text(response.get("id")) or ""
    streams: dict[str, list[Fields]] = {}
    current = ""
    for event in events:
        name = as_text(as_dict(event.get("response")).get("id")) or as_text(event.get("response_id"))
        item_id = _item_id(event, "item_id") or _item_id(as_dict(event.get("item")), "id")
        if name is None:
            name = owners.setdefault(item_id, current) if item_id else current
        elif str(event.get("type")) not in _ENDS:
            current = name
        streams.setdefault(name, []).append(event)
    return streams


def _item_id(fields: Fields, name: str) -> str:
    return as_text(fields.get(name)) or ""


def _in_sequence(events: list[Fields]) -> list[Fields]:
    """By sequence number, each once; as they come when one has none."""
    numbers = [as_int(event.get("sequence_number")) for event in events]
    if None in numbers:
        return events
    once = {(number, str(event.get("type"))): event for number, event in zip(numbers, events, strict=True) if number is not None}
    return [once[key] for key in sorted(once)]


def _assemble(events: list[Fields]) -> Fields:
    """The response of one stream: the one in its end event, with the output that was streamed where that has none."""
    if whole := [event for event in events if _is_whole(event)]:
        return as_dict(whole[-1].get("response"))
    response: Fields = {}
    items: dict[int | str, _Item] = {}
    has_ended = False
    for event in _in_sequence(events):
        kind = str(event.get("type"))
        if kind in _NAMED and (kind in _ENDS or not has_ended):
            response |= {name: value for name, value in as_dict(event.get("response")).items() if value is not None}
            has_ended = has_ended or kind in _ENDS
        elif kind == "error":
            response.setdefault("error", event.get("error") or {"code": event.get("code"), "message": event.get("message")})
        else:
            _add_event(items, event, kind)
    by_index = sorted(items, key=lambda key: (isinstance(key, str), key if isinstance(key, int) else 0))
    return response | {"output": [fields for key in by_index if (fields := _finished(items[key]))]}


def _add_event(items: dict[int | str, _Item], event: Fields, kind: str) -> None:
    given = as_dict(event.get("item"))
    index = event.get("output_index")
    item = items.setdefault(index if isinstance(index, int) else _item_id(event, "item_id") or _item_id(given, "id"), _Item())
    if kind in ("response.output_item.added", "response.output_item.done") and not item.is_done:
        item.fields = given
        item.is_done = kind.endswith(".done")
    name, _, stage = kind.rpartition(".")
    if name not in _TEXTS:
        return
    item.kind, text_field = _TEXTS[name]
    place = (text_field, as_int(event.get("content_index")) or 0)
    if stage == "delta":
        item.texts.setdefault(place, []).append(as_text(event.get("delta")) or "")
    elif isinstance(text := event.get(text_field), str):
        item.texts[place] = [text]


def _finished(item: _Item) -> Fields:
    """The item as its last event has it, or with the text that came so far."""
    if item.is_done or not item.texts:
        return item.fields
    if item.kind != "message":
        texts: Fields = {name: "".join(pieces) for (name, _), pieces in item.texts.items()}
        return {"type": item.kind} | item.fields | texts
    content: list[JsonValue] = [
        {"type": "refusal" if name == "refusal" else "output_text", name: "".join(pieces)}
        for (name, _), pieces in sorted(item.texts.items(), key=lambda entry: entry[0][1])
    ]
    return {"type": "message", "role": "assistant"} | item.fields | {"content": content}

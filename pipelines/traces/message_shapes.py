"""Messages in the shapes that agent frameworks log them in, as canonical messages.

OpenAI chat and Responses, Anthropic, Gemini, LangChain, pydantic-ai, Vercel, AutoGen and flattened text; JSON inside strings, and
shells around lists of messages. Refuses to know which tool wrote the log.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec
from pipelines.traces.openai_messages import (
    ROLES,
    as_dict,
    as_list,
    as_text,
    read_content,
    read_tool_call,
    read_tools,
)

Fields = dict[str, JsonValue]

MAX_DEPTH = 100
"""Deeper JSON than this is refused: to write it again, orjson goes 254 levels deep and no further."""
_MAX_SHELLS = 6
_KEPT_CHARS = 1000
"""Of metadata: a longer text is content, not a fact about the run."""


_EMPTY: tuple[JsonValue, ...] = ("", [], {}, "null", "[]", "{}", '""')
"""Values that say nothing; as JSON text where rows were CSV."""


def merge_rows(old: Fields, new: Fields) -> Fields:
    """The newer row over the older one; an empty value takes nothing away."""
    return {**old, **{key: value for key, value in new.items() if value is not None and value not in _EMPTY}}


def open_json(value: JsonValue) -> JsonValue:
    """The value with JSON inside strings undone. Raises ValueError when it is nested too deeply to be stored."""
    opened = unwrap(value)
    if not isinstance(opened, dict | list):
        return opened
    level: list[JsonValue] = [opened]
    for _ in range(MAX_DEPTH):
        below = [item for item in level if isinstance(item, dict | list)]
        level = [inner for item in below for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return opened
    raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def scalar_facts(metadata: Fields) -> dict[str, str]:
    """The metadata that are plain facts, as text."""
    found: dict[str, str] = {}
    for key, value in metadata.items():
        if isinstance(value, str | int | float) and value != "" and len(text := str(value)) <= _KEPT_CHARS:
            found[key] = str(value).lower() if isinstance(value, bool) else text
    return found


_ROLES = {
    **ROLES,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "humanmessage": Role.USER,
    "usermessage": Role.USER,
    "aimessage": Role.ASSISTANT,
    "aimessagechunk": Role.ASSISTANT,
    "assistantmessage": Role.ASSISTANT,
    "systemmessage": Role.SYSTEM,
    "toolmessage": Role.TOOL,
    "functionmessage": Role.TOOL,
    "functionexecutionresultmessage": Role.TOOL,
}
"""OpenAI's roles, and the class names and types of LangChain and AutoGen."""
_SHELLS = (
    "messages",
    "choices",
    "generations",
    "candidates",
    "contents",
    "message",
    "output",
    "outputs",
    "input",
    "inputs",
    "content",
)
"""Fields of requests, responses and state objects below which messages stand."""
_CALL_TYPES = ("tool_use", "tool_call", "tool-call", "function_call", "custom_tool_call")
_RESULT_TYPES = (
    "tool_result",
    "tool_call_response",
    "tool-result",
    "function_call_output",
    "custom_tool_call_output",
)
_THOUGHT_TYPES = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "thought")
_TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "image", "image_url", "input_image", "document", "file", "blob")
_BLOCK_TYPES = (*_TEXT_TYPES, *_CALL_TYPES, *_RESULT_TYPES, *_THOUGHT_TYPES)
_PYDANTIC_ROLES = {"system-prompt": Role.SYSTEM, "user-prompt": Role.USER, "retry-prompt": Role.USER, "text": Role.ASSISTANT}


def read_turns(value: JsonValue, role: Role, *, depth: int = 0) -> list[Message]:
    """Messages of a request or response; empty when it is in no known shape. `role` speaks what names no speaker."""
    opened = open_json(value)
    if depth > _MAX_SHELLS:
        return []
    if isinstance(opened, list):
        return _listed(opened, role, depth)
    fields = as_dict(opened)
    if (turns := _one(fields)) is not None:
        return turns
    for name in _SHELLS:
        if isinstance(open_json(fields.get(name)), dict | list) and (turns := read_turns(fields[name], role, depth=depth + 1)):
            return [*_system_of(fields, turns), *turns]
    if isinstance(text := fields.get("text"), str) and ("generation_info" in fields or "finish_reason" in fields):
        return [Message(Role.ASSISTANT, text)]
    prompt = next(iter(as_list(fields.get("prompts"))), fields.get("prompt"))
    if isinstance(prompt, str) and role is Role.USER:
        return [*_system_of(fields, []), *(flat_turns(prompt) or [Message(Role.USER, prompt)])]
    return []


def _system_of(fields: Fields, turns: Sequence[Message]) -> list[Message]:
    """The system prompt that Anthropic, Gemini and the Responses API take beside the messages."""
    texts = (_system_text(fields.get(name)) for name in ("system", "instructions", "system_instruction"))
    text = next(filter(None, texts), None)
    has_one = any(message.role is Role.SYSTEM for message in turns)
    return [Message(Role.SYSTEM, text)] if text and not has_one else []


def _system_text(value: JsonValue) -> str | None:
    parts = as_dict(value).get("parts", value)
    return read_content(parts) if isinstance(parts, str) or _are_blocks(parts) else None


def _listed(items: list[JsonValue], role: Role, depth: int) -> list[Message]:
    if _are_blocks(items) and not any(_is_item(as_dict(item)) for item in items):
        return _compose(role, {"content": items})
    first = as_dict(items[0]) if items else {}
    if items and (
        isinstance(items[0], list) or (_one(first) is None and ("message" in first or "text" in first or "content" in first))
    ):
        return read_turns(items[0], role, depth=depth + 1)  # batches and alternatives: the first is what the run went on with
    found: list[Message] = []
    is_open = False
    for item in map(as_dict, map(open_json, items)):
        turns = (_one(item) or []) if _spec_of_turn(item) is None else []
        kind = item.get("type")
        if is_open and kind in _CALL_TYPES and turns:
            found[-1] = replace(found[-1], tool_calls=found[-1].tool_calls + turns[0].tool_calls)
        else:
            found.extend(turns)
            is_open = _is_item(item) and bool(found) and found[-1].role is Role.ASSISTANT
    return found


def _is_item(fields: Fields) -> bool:
    """An item of the Responses API: what is one message elsewhere stands there as several."""
    return fields.get("type") in (
        "message",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
    )


def _are_blocks(value: JsonValue) -> bool:
    items = as_list(value)
    return bool(items) and all(as_dict(item).get("type") in _BLOCK_TYPES and "role" not in as_dict(item) for item in items)


def _spec_of_turn(fields: Fields) -> JsonValue:
    """A tool's definition that Langfuse's LangChain callback appends to the messages in the role of a tool."""
    content = as_dict(fields.get("content"))
    is_spec = isinstance(content.get("function"), dict) or "input_schema" in content or "parameters" in content
    return content if fields.get("role") == "tool" and is_spec and not fields.get("tool_call_id") else None


def _one(fields: Fields) -> list[Message] | None:
    """The turns in one message, in order; None when it is no message."""
    kind = fields.get("type")
    if fields.get("kind") in ("request", "response") and isinstance(fields.get("parts"), list):
        return _pydantic_turns(as_list(fields["parts"]))
    if "role" not in fields and kind in _CALL_TYPES:
        return [Message(Role.ASSISTANT, None, (_call(fields),))]
    if "role" not in fields and kind in _RESULT_TYPES:
        return [_result(fields)]
    if isinstance(path := fields.get("id"), list) and "lc" in fields and path:
        body = as_dict(fields.get("kwargs"))
        name = str(body.get("role") if path[-1] == "ChatMessage" else path[-1])
    elif "role" in fields:
        body, name = fields, str(fields["role"])
    else:
        body, name = as_dict(fields.get("data")) or fields, str(kind)
        if "content" not in body:
            return None
    role = _ROLES.get(name.lower())
    return _compose(role, body) if role else None


def _compose(role: Role, body: Fields) -> list[Message]:
    """A message out of its content and calls; results among the content blocks are messages of tools before it."""
    content = body.get("content")
    blocks = content if isinstance(content, list) else as_list(body.get("parts"))
    if not blocks and isinstance(content, dict) and content.get("type") in _BLOCK_TYPES:
        blocks = [content]
    read = [_block(block) for block in blocks]
    results = [item for item in read if isinstance(item, Message)]
    texts = [item for item in read if isinstance(item, str)]
    calls = _calls(body, [item for item in read if isinstance(item, ToolCall)])
    text = "\n".join(texts) or None if blocks else read_content(content)
    if results and not texts and not calls:
        return results
    call_id = next((found for key in ("tool_call_id", "call_id", "toolCallId") if (found := as_text(body.get(key)))), None)
    return [*results, Message(role, text, calls, call_id if role is Role.TOOL else None)]


def _calls(body: Fields, blocks: list[ToolCall]) -> tuple[ToolCall, ...]:
    """A message's calls, each once: LangChain writes them up to three times, the raw string of arguments only in one place."""
    extra = as_dict(body.get("additional_kwargs"))
    legacy = [call for call in (body.get("function_call"), extra.get("function_call")) if isinstance(call, dict)]
    places = (extra.get("tool_calls"), body.get("tool_calls"), body.get("invalid_tool_calls"))
    items = [as_dict(open_json(item)) for place in places for item in as_list(open_json(place))]
    found: dict[tuple[str | None, str], ToolCall] = {}
    for call in (*map(_call, [item for item in items if item]), *map(_call, legacy), *blocks):
        mark = (call.id, "" if call.id else call_mark(call.name, call.arguments or call.raw_arguments))
        found.setdefault(mark, call)
    return tuple(found.values())


def _block(block: JsonValue) -> str | ToolCall | Message | None:
    """A content block: text, a call, a result, or nothing where it is the model's reasoning."""
    fields = as_dict(block)
    kind = fields.get("type")
    if kind in _THOUGHT_TYPES or fields.get("thought") is True:
        return None
    if kind in _CALL_TYPES or (kind is None and "name" in fields and "arguments" in fields):
        return _call(fields)
    if kind in _RESULT_TYPES or (kind is None and "call_id" in fields and "content" in fields):
        return _result(fields)
    for name in ("functionCall", "function_call"):
        if isinstance(fields.get(name), dict):
            return _call(as_dict(fields[name]))
    for name in ("functionResponse", "function_response"):
        if isinstance(fields.get(name), dict):
            return _result(as_dict(fields[name]))
    return as_text(fields.get("refusal")) or read_content([block])


def _call(fields: Fields) -> ToolCall:
    own = next((text for name in ("call_id", "id", "toolCallId", "tool_call_id") if (text := as_text(fields.get(name)))), None)
    function = as_dict(fields.get("function")) or fields
    name = next((text for key in ("name", "toolName", "tool_name") if (text := as_text(function.get(key)))), None)
    arguments = next((function[key] for key in ("arguments", "input", "args") if function.get(key) is not None), None)
    if isinstance(arguments, str) and arguments.count("{") + arguments.count("[") > MAX_DEPTH:
        try:
            is_fit = not isinstance(open_json(arguments.strip()), str)
        except ValueError:
            is_fit = False
        if not is_fit:
            return ToolCall(name or "", None, arguments, own)
    return read_tool_call({"id": own, "name": name, "arguments": arguments})


def _result(fields: Fields) -> Message:
    names = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "id")
    own = next((text for name in names if (text := as_text(fields.get(name)))), None)
    value = next((fields[key] for key in ("content", "result", "output", "response") if fields.get(key) is not None), None)
    return Message(Role.TOOL, result_text(value), tool_call_id=own)


def _pydantic_turns(items: Sequence[JsonValue]) -> list[Message]:
    """pydantic-ai's own messages: requests hold prompts and results, responses hold text and calls."""
    found: list[Message] = []
    calls: list[ToolCall] = []
    for part in map(as_dict, items):
        kind = str(part.get("part_kind"))
        if kind == "tool-call":
            calls.append(_call(part))
        elif kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
            found.append(_result(part))
        elif kind in _PYDANTIC_ROLES:
            found.append(Message(_PYDANTIC_ROLES[kind], read_content(part.get("content"))))
    if calls:
        texts = [message.content or "" for message in found if message.role is Role.ASSISTANT]
        return [Message(Role.ASSISTANT, "\n".join(texts) or None, tuple(calls))]
    return found


def result_text(value: JsonValue) -> str | None:
    """What a tool gave back: the text inside MCP's, LangChain's and other wrappings, else the value as it came."""
    for _ in range(_MAX_SHELLS):
        opened = open_json(value)
        if _are_blocks(opened):
            return read_content(opened)
        fields = as_dict(opened)
        if "lc" in fields or "data" in fields or "role" in fields or fields.get("type") in ("tool", "text"):
            body = as_dict(fields.get("kwargs")) or as_dict(fields.get("data")) or fields
            inner = body.get("content", body.get("value", body.get("text")))
        elif _are_blocks(fields.get("content")):
            inner = fields["content"]
        else:
            inner = next((fields[key] for key in ("output", "result", "content") if len(fields) == 1 and key in fields), None)
        if inner is None:
            break
        value = inner
    opened = open_json(value)
    if isinstance(value, str):
        return opened if isinstance(opened, str) else value
    return None if value is None else to_json(value).decode()


def finish_reason(value: JsonValue, *, depth: int = 0) -> str | None:
    """Why the model stopped, where a response says so."""
    opened = open_json(value)
    fields = as_dict(opened[0] if isinstance(opened, list) and opened and not isinstance(opened[0], list) else opened)
    if isinstance(opened, list) and opened and isinstance(opened[0], list):
        return finish_reason(opened[0], depth=depth + 1) if depth < _MAX_SHELLS else None
    for name in ("finish_reason", "stop_reason", "finishReason"):
        if text := as_text(fields.get(name)):
            return text
    below = (
        "choices",
        "generations",
        "candidates",
        "generation_info",
        "message",
        "kwargs",
        "response_metadata",
        "messages",
        "output",
    )
    reasons = (finish_reason(fields[name], depth=depth + 1) for name in below if depth < _MAX_SHELLS and name in fields)
    return next(filter(None, reasons), None) or as_text(as_dict(fields.get("incomplete_details")).get("reason"))


def read_specs(*places: JsonValue) -> tuple[ToolSpec, ...]:
    """Tools out of every place that may list them: lists, or objects from name to definition; each tool once."""
    found: dict[str, ToolSpec] = {}
    for place in map(open_json, places):
        items = (
            [{"name": name, **as_dict(open_json(item))} for name, item in place.items()]
            if isinstance(place, dict)
            else as_list(place)
        )
        for item in map(as_dict, map(open_json, items)):
            outer = as_dict(_spec_of_turn(item)) or item
            inner = as_dict(outer.get("function")) or outer
            names = ("parameters", "input_schema", "parameters_json_schema", "inputSchema", "jsonSchema")
            schema = next((as_dict(open_json(inner.get(name))) for name in names if inner.get(name)), {})
            is_spec = "role" not in inner and (schema or "description" in inner or outer is not inner)
            for spec in read_tools([{**inner, "parameters": schema}]) if is_spec else ():
                found.setdefault(spec.name, spec)
    return tuple(found.values())


_SPEAKER = re.compile(r"^(system|developer|user|human|assistant|ai|tool|function): ?", re.IGNORECASE | re.MULTILINE)


def flat_turns(text: str) -> list[Message]:
    found = list(_SPEAKER.finditer(text))
    if not found or found[0].start() > 0:
        return []
    ends = [*(mark.start() for mark in found[1:]), len(text)]
    return [Message(_ROLES[mark[1].lower()], text[mark.end() : end].strip()) for mark, end in zip(found, ends, strict=True)]


def call_mark(name: str, arguments: JsonValue) -> str:
    return json.dumps([name, arguments], sort_keys=True)

"""Chat messages, tools and usage in OpenAI's wire format, which most sources share.

Owns reading them into the canonical types. Every function raises ValueError with the reason when a record cannot be used.
"""

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import as_int, clean_text, read_arguments
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec, Usage

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def as_dict(value: JsonValue) -> dict[str, JsonValue]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def as_text(value: JsonValue) -> str | None:
    """A non-empty string, or None."""
    return value if isinstance(value, str) and value else None


def is_message_list(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def read_messages(items: JsonValue) -> tuple[Message, ...]:
    if not isinstance(items, list):
        raise ValueError(f"messages is a {type(items).__name__}; expected a list")
    return tuple(read_message(item) for item in items)


def read_message(item: JsonValue) -> Message:
    if not isinstance(item, dict):
        raise ValueError(f"a message is a {type(item).__name__}; expected an object with a role")
    role = ROLES.get(str(item.get("role")))
    if role is None:
        raise ValueError(f"message role {item.get('role')!r}; expected one of {', '.join(ROLES)}")
    calls = [*as_list(item.get("tool_calls")), *_legacy_call(item)]
    return Message(
        role=role,
        content=read_content(item.get("content")),
        tool_calls=tuple(read_tool_call(call) for call in calls),
        tool_call_id=as_text(item.get("tool_call_id")),
    )


def read_content(content: JsonValue) -> str | None:
    """Text of a content field: a string, a list of parts (images and files become a mark, never their bytes), or null."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content) or None
    return to_json(content).decode()


def read_tool_call(call: JsonValue) -> ToolCall:
    """A call in any of the shapes seen: {function: {name, arguments}}, or {name, arguments} flat; arguments object or string."""
    outer = as_dict(call)
    function = as_dict(outer.get("function")) or outer
    name = function.get("name")
    arguments = function.get("arguments", function.get("input"))
    raw = arguments if isinstance(arguments, str) else to_json({} if arguments is None else arguments).decode()
    return ToolCall(
        name=name if isinstance(name, str) else "",
        arguments=read_arguments(raw) if raw.strip() else {},
        raw_arguments=raw,
        id=as_text(outer.get("id")),
    )


def read_tools(items: JsonValue) -> tuple[ToolSpec, ...]:
    """Tools as {type: function, function: {...}} or flat; entries without a name are left out."""
    specs: list[ToolSpec] = []
    for item in as_list(items):
        outer = as_dict(item)
        function = as_dict(outer.get("function")) or outer
        name = as_text(function.get("name"))
        if name is not None:
            parameters = as_dict(function.get("parameters")) or as_dict(function.get("input_schema"))
            specs.append(ToolSpec(name, as_text(function.get("description")) or "", parameters))
    return tuple(specs)


def read_usage(usage: JsonValue) -> Usage:
    """Token counts under OpenAI's names or under the ones MLflow and Anthropic use."""
    counts = as_dict(usage)
    details = as_dict(counts.get("prompt_tokens_details"))
    return Usage(
        input_tokens=_first_int(counts, "prompt_tokens", "input_tokens"),
        output_tokens=_first_int(counts, "completion_tokens", "output_tokens"),
        cached_input_tokens=_first_int({**counts, **details}, "cached_tokens", "cache_read_input_tokens"),
    )


def add_usage(parts: list[Usage]) -> Usage:
    """Sum over turns; a count that is unknown in every turn stays unknown."""
    return Usage(
        input_tokens=_sum([part.input_tokens for part in parts]),
        output_tokens=_sum([part.output_tokens for part in parts]),
        cached_input_tokens=_sum([part.cached_input_tokens for part in parts]),
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _first_int(counts: dict[str, JsonValue], *names: str) -> int | None:
    return next((number for name in names if (number := as_int(counts.get(name))) is not None), None)


def _legacy_call(item: dict[str, JsonValue]) -> list[JsonValue]:
    call = item.get("function_call")
    return [call] if isinstance(call, dict) else []


def _part_text(part: JsonValue) -> str:
    if isinstance(part, str):
        return part
    fields = as_dict(part)
    if isinstance(text := fields.get("text"), str):
        return text
    if isinstance(inner := fields.get("content"), str):
        return inner
    return f"[{clean_text(str(fields.get('type', 'part')))}]"

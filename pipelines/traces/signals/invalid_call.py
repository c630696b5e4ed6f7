"""A tool call that cannot be executed.

Evidence: arguments that are no JSON object; a name that is not on offer, or arguments against the schema, where the tools are
known; a call written out as text; a provider that says so (`finish_reason` malformed_function_call). Not: a valid call that
failed (`tool_error`), and nothing where the schema itself is unusable.
"""

import re
from collections.abc import Iterator

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from pipelines.traces.model import Role, Signal, SignalKind, ToolCall, ToolSpec, Trace

WEIGHT = 0.5

_WRITTEN_CALL = re.compile(r"<tool_call>|</tool_call>|<function=|^[ \t]*\{\s*\"(?:name|arguments|function)\"\s*:", re.MULTILINE)
_UNUSABLE_SCHEMA = (
    SchemaError,
    UnknownType,
    Unresolvable,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    re.error,
)


def find(trace: Trace) -> Iterator[Signal]:
    tools = {tool.name: tool for tool in trace.tools}
    for message in trace.messages:
        for call in message.tool_calls:
            if problem := call_problem(call, tools):
                yield Signal(SignalKind.INVALID_CALL, problem)
        if message.role is Role.ASSISTANT and tools and not message.tool_calls and _WRITTEN_CALL.search(message.content or ""):
            yield Signal(SignalKind.INVALID_CALL, f"a call written as text: {message.content}")
    if trace.attributes.get("finish_reason", "").casefold() == "malformed_function_call":
        yield Signal(SignalKind.INVALID_CALL, "the provider could not read the call")


def call_problem(call: ToolCall, tools: dict[str, ToolSpec]) -> str:
    """Why a call cannot be executed; empty when it can, or when the tools are not known."""
    if call.arguments is None:
        return f"{call.name or 'call'}: arguments are no JSON object: {call.raw_arguments}"
    if not tools:
        return ""
    if call.name not in tools:
        return f"unknown tool {call.name!r}"
    schema = tools[call.name].parameters
    try:
        # An empty registry: a reference to another document is an error, never a download.
        error = next(Draft202012Validator(schema, registry=Registry()).iter_errors(call.arguments), None)
    except _UNUSABLE_SCHEMA:
        return ""  # says nothing about the call
    return f"{call.name}: {error.message}" if error is not None else ""

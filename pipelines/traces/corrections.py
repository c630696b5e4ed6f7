"""Corrections: what a person said the run should have done, against what it did.

Owns reading an expectation as tool calls or as an answer, and comparing loosely. The verifiers compare strictly; here a
difference only makes a trace worth looking at.
"""

from dataclasses import dataclass

from pydantic import JsonValue

from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Message, Role, ToolCall, Trace
from pipelines.traces.openai_messages import as_dict, read_tool_call

_ANSWER_NAMES = ("answer", "response", "output", "correction")
"""An expectation of text is an expected answer when its name ends so; others (facts, guidelines) cannot be compared here."""


@dataclass(frozen=True, slots=True)
class Correction:
    """An expectation that differs from what was done."""

    mode: str
    """no_call, wrong_tool, wrong_arguments, wrong_answer."""
    tool: str
    """The tool that should have been called; empty when it is about an answer."""
    detail: str


def expected_calls(trace: Trace) -> tuple[ToolCall, ...]:
    """The calls of the last expectation that holds any: {name, arguments}, {function: ...}, {tool_calls: [...]}, or a list."""
    for expectation in reversed(trace.expectations):
        if calls := _calls_in(unwrap(expectation.value)):
            return calls
    return ()


def calls_made(trace: Trace) -> tuple[ToolCall, ...]:
    """The calls of the last assistant message that made any, within the last user turn."""
    for message in reversed(_last_turn(trace.messages)):
        if message.tool_calls:
            return message.tool_calls
    return ()


def find_correction(trace: Trace) -> Correction | None:
    """How the run differs from what a person expected; None when it does not, or nothing comparable was expected."""
    expected = expected_calls(trace)
    if expected:
        return _compare_calls(expected, trace)
    answer = next((e.value for e in reversed(trace.expectations) if e.name.endswith(_ANSWER_NAMES)), None)
    if not isinstance(answer, str):
        return None
    given = next((m.content or "" for m in reversed(trace.messages) if m.role is Role.ASSISTANT), "")
    if _same(answer, given):
        return None
    return Correction("wrong_answer", "", f"expected {_short(answer)}, got {_short(given)}")


def _compare_calls(expected: tuple[ToolCall, ...], trace: Trace) -> Correction | None:
    first = expected[0]
    made = [call for message in _last_turn(trace.messages) for call in message.tool_calls]
    if not made:
        return Correction("no_call", first.name, f"expected a call of {first.name}, none was made")
    missing = [call for call in expected if not any(_same_call(call, other) for other in made)]
    if not missing:
        return None
    wanted = missing[0]
    if all(call.name != wanted.name for call in made):
        return Correction(
            "wrong_tool", wanted.name, f"expected {wanted.name}, called {', '.join(c.name or '(no name)' for c in made)}"
        )
    return Correction("wrong_arguments", wanted.name, f"{wanted.name}: expected {_short(wanted.raw_arguments)}")


def _last_turn(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages after the last user message."""
    last_user = max((i for i, m in enumerate(messages) if m.role is Role.USER), default=-1)
    return messages[last_user + 1 :]


def _calls_in(value: JsonValue) -> tuple[ToolCall, ...]:
    items = value if isinstance(value, list) else as_dict(value).get("tool_calls") or [value]
    calls = [read_tool_call(item) for item in items if _is_call(item)] if isinstance(items, list) else []
    return tuple(calls)


def _is_call(item: JsonValue) -> bool:
    fields = as_dict(as_dict(item).get("function")) or as_dict(item)
    return isinstance(fields.get("name"), str) and "arguments" in fields


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and _same(one.arguments, other.arguments)


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Equal up to the case and spacing of strings, and 5 = 5.0 = "5"."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return _plain(one) == _plain(other)


def _plain(value: JsonValue) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).casefold().split())


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."

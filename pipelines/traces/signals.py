"""Signals: evidence in a trace that it is an edge case, and how bad it is.

Owns the detectors, one function each, and severity. A detector reads only the canonical trace. Refuses to judge whether a task
can be made of it (`rewards` does). `attributes` it knows: finish_reason, num_truncated_turns, failed_tools, exit_status.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable

from pipelines.traces.corrections import expected_calls, find_correction
from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Feedback, Message, Outcome, Role, Signal, SignalKind, ToolCall, ToolSpec, Trace
from pipelines.traces.test_summaries import failed_tests

LOOP_REPEATS = 3
"""The same call or answer this many times in a row is a loop."""
REPEATED_LINES = 8
"""One line this often in one answer is degenerate text."""
WEIGHTS = {
    SignalKind.RUN_ERROR: 0.6,
    SignalKind.HUMAN_CORRECTION: 0.6,
    SignalKind.MISSING_CALL: 0.5,
    SignalKind.INVALID_CALL: 0.5,
    SignalKind.FAILED_TESTS: 0.5,
    SignalKind.NEGATIVE_FEEDBACK: 0.5,
    SignalKind.BUDGET_EXHAUSTED: 0.4,
    SignalKind.TOOL_ERROR: 0.3,
    SignalKind.LOOP: 0.3,
    SignalKind.TRUNCATION: 0.3,
}
"""Weight of each kind in severity: what a person or a test says counts more than a symptom. A choice, not a measurement."""

_ERROR_TEXT = re.compile(
    r"\s*(?:\[?error\b|exception\b|traceback \(most recent call last\)|fatal:|failed to\b|tool error)", re.IGNORECASE
)
_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_BAD_WORDS = frozenset(
    {
        "no",
        "bad",
        "wrong",
        "negative",
        "incorrect",
        "fail",
        "failed",
        "failure",
        "false",
        "thumbs_down",
        "down",
        "error",
        "poor",
        "dislike",
    }
)
_GOOD_WORDS = frozenset({"ok", "success", "succeeded", "pass", "passed", "done", "true", "yes", "completed", "good"})
_RESULT_NAME = re.compile(r"result|outcome|status|verdict", re.IGNORECASE)
_BUDGET_STATUS = re.compile(
    r"limit|budget|max_?(?:steps|turns|iterations)|timeout|exceeded|out_?of_?(?:cost|context)", re.IGNORECASE
)
_WRITTEN_CALL = re.compile(r"<tool_call>|</tool_call>|<function=|^\s*\{\s*\"(?:name|arguments|function)\"\s*:", re.MULTILINE)


def find_signals(trace: Trace) -> tuple[Signal, ...]:
    """Every signal of the trace, at most one per kind, in a fixed order; empty for a run without any."""
    found: list[Signal] = []
    for kind, detect in _DETECTORS.items():
        detail = next(iter(detect(trace)), None)
        if detail is not None:
            found.append(Signal(kind, " ".join(detail.split())[:200]))
    return tuple(found)


def severity(signals: tuple[Signal, ...]) -> float:
    """In [0, 1]: 1 - product of (1 - weight), so more evidence only raises it."""
    rest = 1.0
    for kind in {signal.kind for signal in signals}:
        rest *= 1.0 - WEIGHTS[kind]
    return round(1.0 - rest, 6)


def _run_error(trace: Trace) -> Iterator[str]:
    if trace.error is not None:
        yield trace.error
    elif trace.outcome is Outcome.FAILURE and not _is_budget(trace):
        yield trace.attributes.get("exit_status") or "the run ended as a failure"


def _budget(trace: Trace) -> Iterator[str]:
    if _is_budget(trace):
        yield trace.attributes["exit_status"]


def _is_budget(trace: Trace) -> bool:
    return _BUDGET_STATUS.search(trace.attributes.get("exit_status", "")) is not None


def _corrections(trace: Trace) -> Iterator[str]:
    if (correction := find_correction(trace)) is not None:
        yield correction.detail


def _missing_call(trace: Trace) -> Iterator[str]:
    made = any(message.tool_calls for message in trace.messages) or any(_invalid_calls(trace))
    expected = expected_calls(trace)
    if trace.tools and expected and not made:
        yield f"{expected[0].name} was expected and no tool was called"


def _invalid_calls(trace: Trace) -> Iterator[str]:
    tools = {tool.name: tool for tool in trace.tools}
    for message in trace.messages:
        for call in message.tool_calls:
            if problem := call_problem(call, tools):
                yield problem
        if message.role is Role.ASSISTANT and tools and not message.tool_calls and _WRITTEN_CALL.search(message.content or ""):
            yield f"a call written as text: {message.content}"


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
    except (SchemaError, Unresolvable, TypeError, ValueError, RecursionError, re.error):
        return ""  # the schema is unusable, which says nothing about the call
    return f"{call.name}: {error.message}" if error is not None else ""


def _tool_errors(trace: Trace) -> Iterator[str]:
    if failed := trace.attributes.get("failed_tools"):
        yield failed
    results = [message for message in trace.messages if message.role is Role.TOOL or _is_observation(message)]
    for result in results:
        if problem := _result_problem(result, is_last=result is results[-1]):
            yield problem
    for item in trace.feedback:
        if is_failed_check(item):
            yield f"{item.name} = {item.value}" + (f": {item.rationale}" if item.rationale else "")


def _is_observation(message: Message) -> bool:
    return message.role is Role.USER and _RETURN_CODE.match(message.content or "") is not None


def _result_problem(result: Message, *, is_last: bool) -> str:
    """An exit code counts on the last command only: on the way there, a failing grep or test is ordinary work."""
    content = result.content or ""
    if (code := _RETURN_CODE.search(content)) is not None:
        missing = code[1] in ("126", "127")
        return f"exit code {code[1]}: {content[code.end() :]}" if missing or (is_last and code[1] != "0") else ""
    parsed = unwrap(content)
    if isinstance(parsed, dict):
        return _object_problem(parsed)
    return content if _ERROR_TEXT.match(content) else ""


def _object_problem(result: dict[str, JsonValue]) -> str:
    if error := result.get("error", result.get("errors")):
        return f"{error}"
    said_no = any(result.get(key) is False for key in ("ok", "success")) or str(result.get("status")).casefold() in (
        "error",
        "failed",
    )
    return f"{result}" if said_no else ""


def _negative_feedback(trace: Trace) -> Iterator[str]:
    for item in trace.feedback:
        if item.source != "code" and is_negative(item.value):
            yield f"{item.name} = {item.value} by {item.source}" + (f": {item.rationale}" if item.rationale else "")


def is_failed_check(item: Feedback) -> bool:
    """A program's bad word about the run; where it reports a result by name, whatever is not a good word is bad."""
    if item.source != "code":
        return False
    is_result = isinstance(item.value, str) and _RESULT_NAME.search(item.name) is not None
    return is_negative(item.value) or (is_result and str(item.value).strip().casefold() not in _GOOD_WORDS)


def is_negative(value: JsonValue) -> bool:
    """False, a word for bad, or a number below 0.5 (scales from 0 to 1; on a scale from 1 to 5 nothing counts as negative)."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value < 0.5
    if isinstance(value, str):
        word = value.strip().casefold().replace(" ", "_")
        return word in _BAD_WORDS or word.startswith(("error:", "error_"))
    return False


def _failed_tests(trace: Trace) -> Iterator[str]:
    """The last test run decides: tests that fail first and pass in the end are the work itself."""
    outputs = [m.content or "" for m in trace.messages if m.role is Role.TOOL or _is_observation(m)]
    verdicts = [verdict for output in outputs if (verdict := failed_tests(output)) is not None]
    if verdicts and verdicts[-1]:
        yield verdicts[-1]


def _loops(trace: Trace) -> Iterator[str]:
    turns = [
        (message.content or "", tuple((call.name, call.raw_arguments) for call in message.tool_calls))
        for message in trace.messages
        if message.role is Role.ASSISTANT
    ]
    for index in range(len(turns) - LOOP_REPEATS + 1):
        window = turns[index : index + LOOP_REPEATS]
        same_calls = window[0][1] and all(turn[1] == window[0][1] for turn in window)
        if same_calls or all(turn == window[0] for turn in window):
            yield f"{LOOP_REPEATS} times in a row: {window[0][1] or window[0][0]}"
    for content, _ in turns:
        counts = Counter(line.strip() for line in content.splitlines() if len(line.strip()) > 3)
        line, count = next(iter(counts.most_common(1)), ("", 0))
        if count >= REPEATED_LINES:
            yield f"one line {count} times in one answer: {line}"


def _truncation(trace: Trace) -> Iterator[str]:
    turns = trace.attributes.get("num_truncated_turns", "0")
    if trace.attributes.get("finish_reason") in ("length", "max_tokens") or turns not in ("0", ""):
        yield "an answer was cut off at the token limit"


_DETECTORS: dict[SignalKind, Callable[[Trace], Iterator[str]]] = {
    SignalKind.RUN_ERROR: _run_error,
    SignalKind.HUMAN_CORRECTION: _corrections,
    SignalKind.MISSING_CALL: _missing_call,
    SignalKind.INVALID_CALL: _invalid_calls,
    SignalKind.FAILED_TESTS: _failed_tests,
    SignalKind.NEGATIVE_FEEDBACK: _negative_feedback,
    SignalKind.TOOL_ERROR: _tool_errors,
    SignalKind.LOOP: _loops,
    SignalKind.BUDGET_EXHAUSTED: _budget,
    SignalKind.TRUNCATION: _truncation,
}

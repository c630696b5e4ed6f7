"""A tool failed.

Evidence: attribute `failed_tools`; a result that begins like an error or is an object that says so; exit codes 126 and 127, and any
other than 0 of the last command; a program's bad word about the run. Not: a command that fails on the way (a grep without a
hit, a first red test are ordinary work), and the word "error" further inside a result.
"""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Feedback, Message, Signal, SignalKind, Trace
from pipelines.traces.signals._tool_results import RETURN_CODE, tool_results
from pipelines.traces.signals.negative_feedback import is_against

WEIGHT = 0.3

_ERROR_TEXT = re.compile(
    r"\s*(?:<tool_use_error>|\[?error\b|exception\b|traceback \(most recent call last\)|fatal:|failed to\b|tool error"
    r"|(?-i:[A-Za-z_.]*[a-z](?:Error|Exception)):)",
    re.IGNORECASE,
)
_NO_ERROR = ("", "none", "null", "no", "false", "0", "ok")
_GOOD_WORDS = frozenset({"ok", "success", "succeeded", "pass", "passed", "done", "true", "yes", "completed", "good"})
_RESULT_NAME = re.compile(r"result|outcome|status|verdict", re.IGNORECASE)


def find(trace: Trace) -> Iterator[Signal]:
    for problem in tool_problems(trace):
        yield Signal(SignalKind.TOOL_ERROR, problem)
    for item in trace.feedback:
        if is_failed_check(item):
            yield Signal(SignalKind.TOOL_ERROR, f"{item.name} = {item.value}" + (f": {item.rationale}" if item.rationale else ""))


def tool_problems(trace: Trace) -> Iterator[str]:
    """What failing tools said, in order."""
    if failed := trace.attributes.get("failed_tools"):
        yield failed
    results = tool_results(trace)
    for result in results:
        if problem := _result_problem(result, is_last=result is results[-1]):
            yield problem


def is_failed_check(item: Feedback) -> bool:
    """A program's bad word about the run; where it reports a result by name, whatever is not a good word is bad."""
    if item.source != "code":
        return False
    is_result = isinstance(item.value, str) and _RESULT_NAME.search(item.name) is not None
    return is_against(item) or (is_result and str(item.value).strip().casefold() not in _GOOD_WORDS)


def _result_problem(result: Message, *, is_last: bool) -> str:
    content = result.content or ""
    if (code := RETURN_CODE.search(content)) is not None:
        missing = code[1] in ("126", "127")
        return f"exit code {code[1]}: {content[code.end() :]}" if missing or (is_last and code[1] != "0") else ""
    parsed = unwrap(content)
    if isinstance(parsed, dict):
        return _object_problem(parsed)
    return content if _ERROR_TEXT.match(content) else ""


def _object_problem(result: dict[str, JsonValue]) -> str:
    error = result.get("error") or result.get("errors")
    if error and str(error).strip().casefold() not in _NO_ERROR and error is not True:
        return f"{error}"
    said_no = (
        error is True
        or any(result.get(key) is False for key in ("ok", "success"))
        or any(result.get(key) is True for key in ("isError", "is_error"))
        or str(result.get("status")).casefold() in ("error", "failed")
    )
    return f"{result}" if said_no else ""

"""The run stopped at a limit on steps, turns, time, money or context.

Evidence: attribute `exit_status`; the run's error, in the words of common agent frameworks; a last answer that such a framework
put there. Not: a provider's rate limit or quota, and no timeout of one request (both are `run_error`); an answer cut off at the
token limit (`truncation`).
"""

import re
from collections.abc import Iterator

from pipelines.traces.model import Role, Signal, SignalKind, Trace

WEIGHT = 0.4

_STATUS = re.compile(
    r"limit|budget|max_?(?:steps|turns|iterations)|timeout|exceeded|out_?of_?(?:cost|context)"
    r"|exit_(?:cost|context|total_execution_time)",
    re.IGNORECASE,
)
_PROVIDER = re.compile(r"rate.?limit|quota|too many requests", re.IGNORECASE)
_THING = r"(?:steps?|turns?|iterations?|tool.?calls?|budget|cost|context (?:window|length))"
_ERROR = re.compile(
    rf"\bmax(?:imum)?(?: number of)?[ _]{_THING}\b.{{0,40}}\b(?:exceeded|reached|hit|limit|is)\b"
    rf"|\b(?:exceed(?:ed|s)?|reached|hit)(?: the)? (?:max(?:imum)?(?: number of)?[ _])?{_THING}\b"
    rf"|\b(?:recursion|{_THING})[ _]limit\b.{{0,40}}\b(?:exceeded|reached|hit)\b"
    r"|\b(?:MaxTurnsExceeded|GraphRecursionError|UsageLimitExceeded|ContextWindowExceededError)|\bcontext_length_exceeded\b"
    r"|\berror_max_(?:turns|budget_usd)\b",
    re.IGNORECASE,
)
_LAST_WORDS = re.compile(r"agent stopped due to (?:iteration limit|max iterations|time limit)", re.IGNORECASE)


def find(trace: Trace) -> Iterator[Signal]:
    if said := exhausted_budget(trace):
        yield Signal(SignalKind.BUDGET_EXHAUSTED, said)


def exhausted_budget(trace: Trace) -> str:
    """What says that a limit was reached; empty when nothing does."""
    status = trace.attributes.get("exit_status", "")
    if _STATUS.search(status) and not _PROVIDER.search(status):
        return status
    if trace.error is not None and is_budget_error(trace.error):
        return trace.error
    last = trace.messages[-1] if trace.messages else None
    is_said = last is not None and last.role is Role.ASSISTANT and _LAST_WORDS.match(last.content or "")
    return (last.content or "") if last is not None and is_said else ""


def is_budget_error(error: str) -> bool:
    return _ERROR.search(error) is not None and _PROVIDER.search(error) is None

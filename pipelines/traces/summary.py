"""What a trace file holds, counted, for people who want to know before they ingest. Owns the counts; refuses to print them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.traces.model import Rejection, Trace

SHOWN_DETAILS = 3
"""Rejections shown in full, per file and reason."""


@dataclass(slots=True)
class FileSummary:
    location: str
    runs: Counter[str] = field(default_factory=Counter)
    """Whole runs per format, as detected from the content."""
    num_messages: int = 0
    num_tool_calls: int = 0
    num_judged: int = 0
    """Runs with feedback or an expectation."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rejections per reason code."""
    details: dict[str, list[str]] = field(default_factory=dict)
    """Per reason, where and why, of the first SHOWN_DETAILS."""

    @property
    def num_runs(self) -> int:
        return self.runs.total()

    @property
    def num_rejected(self) -> int:
        return self.rejected.total()


def summarise(location: str, results: Iterable[Trace | Rejection]) -> FileSummary:
    """Count what one file gave; nothing of it is kept but the details of a few rejections."""
    summary = FileSummary(location)
    for result in results:
        if isinstance(result, Trace):
            _add_trace(summary, result)
        else:
            _add_rejection(summary, result)
    return summary


def _add_trace(summary: FileSummary, trace: Trace) -> None:
    summary.runs[trace.source.format] += 1
    summary.num_messages += len(trace.messages)
    summary.num_tool_calls += sum(len(message.tool_calls) for message in trace.messages)
    summary.num_judged += bool(trace.feedback or trace.expectations)


def _add_rejection(summary: FileSummary, rejection: Rejection) -> None:
    reason = rejection.reason.value
    summary.rejected[reason] += 1
    details = summary.details.setdefault(reason, [])
    if len(details) < SHOWN_DETAILS:
        at = "" if rejection.source.position is None else f"byte {rejection.source.position}: "
        details.append(f"{at}{rejection.detail}")

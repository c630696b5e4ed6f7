"""A person said, or showed, what the run should have done, and it did something else.

Evidence: an expectation (calls or an answer) that differs from the run, compared loosely; attribute `num_edits_changed_by_user`.
Not: an expectation that was met, or of a kind that cannot be compared here (facts, guidelines).
"""

from collections.abc import Iterator

from pipelines.traces.corrections import find_correction
from pipelines.traces.model import Signal, SignalKind, Trace

WEIGHT = 0.6


def find(trace: Trace) -> Iterator[Signal]:
    if (correction := find_correction(trace)) is not None:
        yield Signal(SignalKind.HUMAN_CORRECTION, correction.detail)
    elif (count := trace.attributes.get("num_edits_changed_by_user", "0")) not in ("0", ""):
        yield Signal(SignalKind.HUMAN_CORRECTION, f"the user changed {count} of the agent's edits")

"""The run itself failed.

Evidence: the trace's error, or an outcome of failure. Not: an error that only says a limit was reached (`budget_exhausted`), and
nothing that a tool reported.
"""

from collections.abc import Iterator

from pipelines.traces.model import Outcome, Signal, SignalKind, Trace
from pipelines.traces.signals.budget_exhausted import exhausted_budget, is_budget_error

WEIGHT = 0.6


def find(trace: Trace) -> Iterator[Signal]:
    if trace.error is not None:
        if not is_budget_error(trace.error):
            yield Signal(SignalKind.RUN_ERROR, trace.error)
    elif trace.outcome is Outcome.FAILURE and not exhausted_budget(trace):
        yield Signal(SignalKind.RUN_ERROR, trace.attributes.get("exit_status") or "the run ended as a failure")

"""A test run in the trace failed.

Evidence: the summary of the last test run among the tools' results. Not: tests that fail first and pass in the end, which is the
work itself, and talk about failing tests.
"""

from collections.abc import Iterator

from pipelines.traces import test_summaries
from pipelines.traces.model import Signal, SignalKind, Trace
from pipelines.traces.signals._tool_results import tool_results

WEIGHT = 0.5


def find(trace: Trace) -> Iterator[Signal]:
    outputs = (result.content or "" for result in reversed(tool_results(trace)))
    last = next((verdict for output in outputs if (verdict := test_summaries.failed_tests(output)) is not None), "")
    if last:
        yield Signal(SignalKind.FAILED_TESTS, last)

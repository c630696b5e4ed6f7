"""A tool should have been called and none was.

Evidence: a person's expectation of a call, tools on offer, and no call in the run. Not: a call that was tried and is broken
(`invalid_call`), and no guess from the request alone.
"""

from collections.abc import Iterator

from pipelines.traces.corrections import expected_calls
from pipelines.traces.model import Signal, SignalKind, Trace
from pipelines.traces.signals import invalid_call

WEIGHT = 0.5


def find(trace: Trace) -> Iterator[Signal]:
    expected = expected_calls(trace)
    if not trace.tools or not expected or any(message.tool_calls for message in trace.messages):
        return
    if not any(invalid_call.find(trace)):
        yield Signal(SignalKind.MISSING_CALL, f"{expected[0].name} was expected and no tool was called")

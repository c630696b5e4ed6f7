"""An answer was cut off at the token limit.

Evidence: `finish_reason` of the last answer, or attribute `num_truncated_turns`. Not: an answer that only reads as if it were
unfinished.
"""

from collections.abc import Iterator

from pipelines.traces.model import Signal, SignalKind, Trace

WEIGHT = 0.3

_CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")


def find(trace: Trace) -> Iterator[Signal]:
    turns = trace.attributes.get("num_truncated_turns", "0")
    if trace.attributes.get("finish_reason", "").casefold() in _CUT_OFF or turns not in ("0", ""):
        yield Signal(SignalKind.TRUNCATION, "an answer was cut off at the token limit")

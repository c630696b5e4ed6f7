"""Somebody judged the run to be bad.

Evidence: feedback by a person or a judging model that is False, a word for bad, or a number below 0.5; of what is better low
(toxicity, hallucination, errors), True or a number from 0.5 to 1. Not: a program's check (`tool_error`), a number that measures
size or time, and stars: on a scale from 1 to 5 nothing counts as negative.
"""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from pipelines.traces.model import Feedback, Signal, SignalKind, Trace

WEIGHT = 0.5

_BAD_WORD = re.compile(
    r"no|bad|wrong|negative|incorrect|fail|failed|failure|false|(?:thumbs_)?down|error|poor|dislike|unhelpful|not_helpful|👎|error[:_].*",
    re.DOTALL,
)
_BETTER_LOW = re.compile(r"toxic(?:ity)?|hallucinat(?:ions?|ed)|harmful(?:ness)?|bias(?:ed)?|errors?|refusal|leak(?:ed)?")
_NEGATED = re.compile(r"no|not|non|free|without")
_MEASURE = re.compile(r"latency|duration|elapsed|seconds|ms|costs?|usd|tokens?|count|num|retries|length")


def find(trace: Trace) -> Iterator[Signal]:
    for item in trace.feedback:
        if item.source != "code" and is_against(item):
            said = f"{item.name} = {item.value} by {item.source}"
            yield Signal(SignalKind.NEGATIVE_FEEDBACK, said + (f": {item.rationale}" if item.rationale else ""))


def is_against(item: Feedback) -> bool:
    """Whether an item of feedback, by whomever, speaks against the run."""
    words = re.findall(r"[a-z]+", item.name.casefold())
    if isinstance(item.value, int | float):
        if not isinstance(item.value, bool) and any(map(_MEASURE.fullmatch, words)):
            return False
        if any(map(_BETTER_LOW.fullmatch, words)) and not any(map(_NEGATED.fullmatch, words)):
            return 0.5 <= item.value <= 1.0
    return is_negative(item.value)


def is_negative(value: JsonValue) -> bool:
    """False, a word for bad, or a number below 0.5."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value < 0.5
    if isinstance(value, str):
        return _BAD_WORD.fullmatch(value.strip().casefold().replace(" ", "_").replace("-", "_")) is not None
    return False

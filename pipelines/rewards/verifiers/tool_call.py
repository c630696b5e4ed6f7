"""Verifier `tool_call`: the answer is exactly one call of the right tool with the right arguments.

Passed means score 1.0. Anything less earns a partial score, so that a group of rollouts that all fail still has something
to learn from: `FORMAT_WEIGHT` for one readable call, `TOOL_WEIGHT` for the right tool, the rest for the share of right
arguments. Arguments count only under the right tool. Several calls divide the score by their number, so guessing does not
pay. Text beside the call is free. It refuses to execute anything.

Equality of arguments: strings after Unicode NFKC, trimming and joining runs of white space, and without case unless
`case_sensitive`; numbers by value (5 equals 5.0); a number is never equal to its spelling ("5") nor to a boolean, because the
tool would be called with it; lists in order; objects key by key; NaN equals nothing.
"""

import unicodedata
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipelines.rewards.model import Verdict
from pipelines.traces.model import Message, ToolCall

FORMAT_WEIGHT = 0.1
TOOL_WEIGHT = 0.3
ARGUMENTS_WEIGHT = 0.6
SHOWN_CHARS = 200


class Options(BaseModel):
    """The call that should have been made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    """Name of the tool."""
    arguments: dict[str, JsonValue]
    """Its arguments, complete: one that is missing or added counts as wrong."""
    case_sensitive: bool = False
    """Whether strings that differ only in case are different."""


def verify(answer: Message, options: Options) -> Verdict:
    """Compare the answer's calls with the expected one; a verdict for any message, never an exception."""
    calls = answer.tool_calls
    if not calls:
        return _verdict(0.0, 0.0, 0.0, num_calls=1, evidence=f"no tool call; expected {options.name}")
    call = calls[0]
    readable = call.arguments is not None
    right_tool = readable and call.name == options.name
    share = _share_of_right_arguments(call.arguments or {}, options) if right_tool else 0.0
    evidence = _evidence(call, len(calls), options, share)
    return _verdict(float(readable), float(right_tool), share, num_calls=len(calls), evidence=evidence)


def equal_values(expected: JsonValue, actual: JsonValue, *, case_sensitive: bool = False) -> bool:
    """Whether two argument values are the same, by the rules above. Depth is bounded by the expected value's."""
    if isinstance(expected, bool) or isinstance(actual, bool) or expected is None or actual is None:
        return expected is actual
    if isinstance(expected, str) and isinstance(actual, str):
        return normalise_text(expected, case_sensitive=case_sensitive) == normalise_text(actual, case_sensitive=case_sensitive)
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return expected == actual
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(
            equal_values(e, a, case_sensitive=case_sensitive) for e, a in zip(expected, actual, strict=True)
        )
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            equal_values(value, actual[key], case_sensitive=case_sensitive) for key, value in expected.items()
        )
    return False


def normalise_text(text: str, *, case_sensitive: bool = False) -> str:
    """NFKC, runs of white space joined to one blank, trimmed, case folded unless it matters."""
    joined = " ".join(unicodedata.normalize("NFKC", text).split())
    return joined if case_sensitive else joined.casefold()


def _share_of_right_arguments(given: Mapping[str, JsonValue], options: Options) -> float:
    names = options.arguments.keys() | given.keys()
    if not names:
        return 1.0
    right = sum(
        name in given and equal_values(value, given[name], case_sensitive=options.case_sensitive)
        for name, value in options.arguments.items()
    )
    return right / len(names)


def _verdict(readable: float, right_tool: float, share: float, *, num_calls: int, evidence: str) -> Verdict:
    passed = num_calls == 1 and right_tool == 1.0 and share == 1.0
    weighted = FORMAT_WEIGHT * readable + TOOL_WEIGHT * right_tool + ARGUMENTS_WEIGHT * share
    components = {"format": readable / num_calls, "tool": right_tool, "arguments": share}
    # The weights add up to 1 only up to rounding; a pass is exactly 1.
    score = 1.0 if passed else min(weighted / num_calls, 1.0)
    return Verdict(score=score, passed=passed, evidence=evidence, components=components)


def _evidence(call: ToolCall, num_calls: int, options: Options, share: float) -> str:
    parts = [f"{num_calls} calls instead of one; the first:"] if num_calls > 1 else []
    parts.append(f"called {_shown(call.name)} with {_shown(call.raw_arguments)}")
    if call.arguments is None:
        parts.append("(not a JSON object)")
    elif call.name != options.name:
        parts.append(f"instead of {options.name}")
    elif share < 1.0:
        wrong = _wrong_names(call.arguments, options)
        parts.append(f"wrong: {_shown(', '.join(wrong[:8]))}")
    return " ".join(parts)


def _wrong_names(given: Mapping[str, JsonValue], options: Options) -> list[str]:
    expected = options.arguments
    wrong = [
        name
        for name, value in expected.items()
        if name not in given or not equal_values(value, given[name], case_sensitive=options.case_sensitive)
    ]
    return wrong + [f"{name} (not expected)" for name in given if name not in expected]


def _shown(text: str) -> str:
    """Short and encodable: a model can put anything into a call, lone surrogates included."""
    cut = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}... ({len(text)} characters)"
    return cut.encode("utf-8", "replace").decode("utf-8")

"""The agent repeats itself.

Evidence: the same calls, or the same few turns of calls, three times in a row with the same results; the same answer three times in
a row; an answer that is mostly one line, or ends in one phrase over and over. Not: asking again while the result still changes
(polling), the same call after other work, and lines that repeat in tables and code.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.traces.model import Role, Signal, SignalKind, Trace

WEIGHT = 0.3
LOOP_REPEATS = 3
"""The same turns this many times in a row are a loop."""
LOOP_TURNS = 3
"""The longest loop that is looked for, turns."""
REPEATED_LINES = 8
"""One line this often in one answer, and at least every other line, is degenerate text."""

PHRASE_REPEATS = 20
"""A phrase this often at the end of an answer is degenerate text."""

_PHRASE_CHARS = 60
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class _Turn:
    text: str
    calls: tuple[tuple[str, str], ...]
    results: str = ""
    """What came back, without its numbers: times and ids differ in every loop."""


def find(trace: Trace) -> Iterator[Signal]:
    turns = _turns(trace)
    for length in range(1, LOOP_TURNS + 1):
        for start in range(len(turns) - length * LOOP_REPEATS + 1):
            window = turns[start : start + length * LOOP_REPEATS]
            if all(_same(one, other) for one, other in zip(window, window[length:], strict=False)):
                yield Signal(SignalKind.LOOP, f"{LOOP_REPEATS} times in a row: {window[0].calls or window[0].text}")
    for turn in turns:
        if repeated := _repeated_text(turn.text):
            yield Signal(SignalKind.LOOP, repeated)


def _turns(trace: Trace) -> list[_Turn]:
    turns: list[_Turn] = []
    for message in trace.messages:
        if message.role is Role.ASSISTANT:
            turns.append(_Turn(message.content or "", tuple((call.name, call.raw_arguments) for call in message.tool_calls)))
        elif turns:
            turns[-1].results += _NUMBER.sub("0", message.content or "") + "\n"
    return turns


def _same(one: _Turn, other: _Turn) -> bool:
    """The last turn of a run has no result any more, which is no difference."""
    if not one.calls:
        return not other.calls and one.text == other.text
    return one.calls == other.calls and (one.results == other.results or not one.results or not other.results)


def _repeated_text(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    counts = Counter(line for line in lines if len(line) > 3)
    line, count = next(iter(counts.most_common(1)), ("", 0))
    if count >= REPEATED_LINES and 2 * count >= len(lines):
        return f"one line {count} times in one answer: {line}"
    phrase = _repeated_end(text.rstrip())
    return f"an answer ends in one phrase over and over: {phrase}" if phrase else ""


def _repeated_end(text: str) -> str:
    """The shortest phrase with letters in it that the text ends in, over and over; empty when there is none."""
    for length in range(1, _PHRASE_CHARS + 1):
        phrase = text[-length:]
        if text.endswith(phrase * PHRASE_REPEATS) and any(character.isalpha() for character in phrase):
            return phrase
    return ""

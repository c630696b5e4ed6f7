"""`python -m infra.benchmarks.bench_privacy`: how much redaction finds, what it spoils, and how fast it is, as Markdown.

Owns the measurement. Every text of the corpus goes through `redact` as a trace of its own, as in ingest. A value counts as found
only when no piece of it is left and the text around it is unchanged.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass

from infra.benchmarks._privacy_values import Group
from infra.benchmarks._privacy_wordings import Place
from infra.benchmarks.privacy_corpus import DEVELOPMENT, HELD_OUT, Corpus, LookAlike, Planted, build_corpus
from pipelines.traces.json_text import read_arguments
from pipelines.traces.leaks import scan
from pipelines.traces.model import Message, Role, Source, ToolCall, Trace
from pipelines.traces.redaction import RedactionPolicy, redact

PIECE_CHARS = 8
"""A value of which this many characters in a row are left has not been removed."""
SPEED_COPIES = 20
_KEY = b"benchmark" * 4
_SOURCE = Source("file", "corpus", "openai_chat")


@dataclass(frozen=True, slots=True)
class Measurement:
    planted: Counter[str]
    found: Counter[str]
    groups: dict[str, Group]
    missed: tuple[Planted, ...]
    damaged: tuple[Planted, ...]
    """Found, but the text around it was changed too."""
    look_alikes: Counter[str]
    changed: tuple[LookAlike, ...]
    stopped: tuple[str, ...]
    """Redacted texts at which the second scan (`leaks`) would stop the stage."""

    def recall(self, group: Group) -> float:
        kinds = [kind for kind in self.planted if self.groups[kind] is group]
        return sum(self.found[kind] for kind in kinds) / sum(self.planted[kind] for kind in kinds)

    @property
    def changed_share(self) -> float:
        """Share of look-alikes that did not stay as they were."""
        return len(self.changed) / self.look_alikes.total()


def main() -> int:
    """Measure every seed on both sets of wordings and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--show", action="store_true", help="also print what was missed, damaged or changed")
    parser.add_argument("--wordings", type=int, nargs="+", default=[DEVELOPMENT, HELD_OUT], help="0: development, 1: held out")
    arguments = parser.parse_args()
    for wordings in arguments.wordings:
        for seed in arguments.seeds:
            corpus = build_corpus(seed, wordings)
            result = measure(corpus)
            name = "held-out" if wordings == HELD_OUT else "development"
            sys.stdout.write(f"## Seed {seed}, {name} wordings\n\n{as_table(result)}\n")
            if arguments.show:
                sys.stdout.write(as_list(result))
    sys.stdout.write(f"Speed: {speed_mb_s(build_corpus(0)):.2f} MB/s on one core.\n")
    return 0


def measure(corpus: Corpus) -> Measurement:
    """Redact every text of the corpus and compare."""
    after = [redacted(item) for item in corpus.planted]
    found = [not is_left(item, text) for item, text in zip(corpus.planted, after, strict=True)]
    kept = [_squeeze(text) for text in after]
    damaged = [
        item
        for item, text, is_found in zip(corpus.planted, kept, found, strict=True)
        if is_found and not (text.startswith(_squeeze(item.before)) and text.endswith(_squeeze(item.after)))
    ]
    stayed = [redacted(item) for item in corpus.look_alikes]
    return Measurement(
        planted=Counter(item.kind for item in corpus.planted),
        found=Counter(item.kind for item, is_found in zip(corpus.planted, found, strict=True) if is_found),
        groups={item.kind: item.group for item in corpus.planted},
        missed=tuple(item for item, is_found in zip(corpus.planted, found, strict=True) if not is_found),
        damaged=tuple(damaged),
        look_alikes=Counter(item.kind for item in corpus.look_alikes),
        changed=tuple(item for item, text in zip(corpus.look_alikes, stayed, strict=True) if text != item.text),
        stopped=tuple(text for text in (*after, *stayed) if any(finding.is_secret for finding in scan(text))),
    )


def redacted(item: Planted | LookAlike) -> str:
    """The item's text after redaction of a trace that holds it where it was planted."""
    message = redact(as_trace(item), RedactionPolicy(), key=_KEY).messages[0]
    return message.tool_calls[0].raw_arguments if item.place is Place.ARGUMENTS else message.content or ""


def as_trace(item: Planted | LookAlike) -> Trace:
    """A trace with one message that holds the item's text."""
    if item.place is Place.CONTENT:
        return Trace("t", (Message(Role.USER, item.text),), _SOURCE)
    call = ToolCall("update", read_arguments(item.text), item.text, "c1")
    return Trace("t", (Message(Role.ASSISTANT, None, (call,)),), _SOURCE)


def is_left(item: Planted, text: str) -> bool:
    """Whether any piece of the value that its surroundings do not hold is still in the text."""
    size = min(PIECE_CHARS, len(item.value))
    pieces = {item.value[i : i + size] for i in range(len(item.value) - size + 1)}
    return any(piece in text for piece in pieces if piece not in item.before and piece not in item.after)


def speed_mb_s(corpus: Corpus) -> float:
    """Characters per second (in millions) through `redact`, many texts to a trace."""
    items: list[Planted | LookAlike] = [*corpus.planted, *corpus.look_alikes]
    messages = tuple(message for item in items for message in as_trace(item).messages)
    traces = [Trace(str(i), messages[i : i + 40], _SOURCE) for i in range(0, len(messages), 40)] * SPEED_COPIES
    started = time.process_time()
    for trace in traces:
        redact(trace, RedactionPolicy(), key=_KEY)
    return sum(len(item.text) for item in items) * SPEED_COPIES / 1e6 / (time.process_time() - started)


def as_table(result: Measurement) -> str:
    """Recall by kind, then the totals and the look-alikes that were changed."""
    lines = ["| kind | planted | found | recall |", "| --- | ---: | ---: | ---: |"]
    for kind, planted in result.planted.items():
        lines.append(f"| {kind} | {planted} | {result.found[kind]} | {result.found[kind] / planted:.1%} |")
    for group in Group:
        kinds = [kind for kind in result.planted if result.groups[kind] is group]
        planted, found = (sum(counts[kind] for kind in kinds) for counts in (result.planted, result.found))
        lines.append(
            f"| **all {'secrets' if group is Group.SECRET else 'personal data'}** | {planted} | {found} | {found / planted:.1%} |"
        )
    lines += ["", "| look-alike | texts | changed |", "| --- | ---: | ---: |"]
    changed = Counter(item.kind for item in result.changed)
    lines += [f"| {kind} | {count} | {changed[kind]} |" for kind, count in result.look_alikes.items()]
    total, num_found = len(result.changed), result.found.total()
    lines += [
        f"| **all look-alikes** | {result.look_alikes.total()} | {total} ({result.changed_share:.1%}) |",
        "",
        f"Precision {num_found / (num_found + total):.1%}; found but with text around it changed: {len(result.damaged)}; "
        f"texts at which the second scan would stop: {len(result.stopped)}.",
    ]
    return "\n".join(lines) + "\n"


def as_list(result: Measurement) -> str:
    """What went wrong, one per line."""
    lines = [f"missed   {item.kind}: {item.text!r}" for item in result.missed]
    lines += [f"damaged  {item.kind}: {item.text!r} -> {redacted(item)!r}" for item in result.damaged]
    lines += [f"changed  {item.kind}: {item.text!r} -> {redacted(item)!r}" for item in result.changed]
    return "\n".join([*lines, *(f"stopped  {text!r}" for text in result.stopped)]) + "\n\n"


def _squeeze(text: str) -> str:
    """Without white space: arguments that had to change are written anew, with other spacing."""
    return "".join(text.split())


if __name__ == "__main__":
    sys.exit(main())

"""Trace formats: one module per format, found by content, never by file name.

A format module has `match(record) -> int` (0: not mine; 1: a shape others share; 2: marks only this format has) and
`parse(record, source) -> Trace`, which raises ValueError with the reason when the record cannot be used.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, Protocol, cast

from pydantic import JsonValue

from pipelines import plugins
from pipelines.traces.model import Rejection, RejectionReason, Source, Trace
from pipelines.traces.records import Record, Unreadable, split_records


class Format(Protocol):
    def match(self, record: JsonValue) -> int: ...

    def parse(self, record: JsonValue, source: Source) -> Trace: ...


def load_format(name: str) -> Format:
    return cast(Format, plugins.load("traces.formats", name))


def detect(record: JsonValue) -> str | None:
    """Name of the format a record is in; None when no format knows it."""
    scores = {name: load_format(name).match(record) for name in plugins.available("traces.formats")}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else None


def parse_record(record: JsonValue, source: Source, *, raw: str = "") -> Trace | Rejection:
    """The canonical trace of one record, in the format its content shows; `source.format` is filled in."""
    name = detect(record)
    if name is None:
        kind = type(record).__name__
        detail = f"a {kind} in none of the formats {', '.join(plugins.available('traces.formats'))}"
        return Rejection(RejectionReason.UNKNOWN_FORMAT, detail, source, raw)
    source = replace(source, format=name)
    try:
        trace = load_format(name).parse(record, source)
    except ValueError as error:
        return Rejection(RejectionReason.INVALID_RECORD, str(error), source, raw)
    if not trace.messages:
        return Rejection(RejectionReason.EMPTY, f"trace {trace.id} has no message", source, raw)
    return trace


def parse_file(data: bytes, *, location: str, kind: Literal["mlflow", "file"] = "file") -> Iterator[Trace | Rejection]:
    """Traces and rejections of one file, in order. Never raises on content: what cannot be read is a rejection."""
    from pipelines.traces.formats.openai_chat import join_chunks

    for item in join_chunks(split_records(data)):
        source = Source(kind, location, "unknown", item.position)
        match item:
            case Unreadable():
                yield Rejection(item.reason, item.detail, source, item.raw)
            case Record():
                yield parse_record(item.value, source, raw=item.raw)

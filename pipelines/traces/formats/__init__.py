"""Trace formats: one module per format, found by content, never by file name.

A format module has `match(record) -> int` (0: not mine; 1: a shape others share; 2: marks only this format has) and
`parse(record, source) -> Trace`, which raises ValueError with the reason when the record cannot be used.

Where one run is spread over several records (spans, streamed chunks, lines of a session), or one record holds several runs, the
module also has `parts(record)`, which names the run of each part, and `parse_parts(parts, source)`, which puts one run together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, Protocol, cast, runtime_checkable

from pydantic import JsonValue

from pipelines import plugins
from pipelines.traces.model import Rejection, RejectionReason, Source, Trace
from pipelines.traces.records import Record, Unreadable, split_records

Result = Trace | Rejection


class Format(Protocol):
    def match(self, record: JsonValue) -> int: ...

    def parse(self, record: JsonValue, source: Source) -> Trace: ...


@runtime_checkable
class PartsFormat(Protocol):
    """A format whose runs and records do not correspond one to one."""

    def parts(self, record: JsonValue) -> Sequence[tuple[str, JsonValue]] | None:
        """Id of the run and the part itself, for each part in the record, in order.

        Empty: the record is one run, for `parse`. None: it is this format's, but belongs to no run.
        """
        ...

    def parse_parts(self, parts: Sequence[JsonValue], source: Source) -> Trace | None:
        """One run out of all its parts, in file order; None when they add nothing to other runs. Raises ValueError like `parse`."""
        ...


@dataclass(slots=True)
class _Run:
    """A run whose parts are being collected; it stands where its first part stood."""

    format: str
    source: Source
    raw: str
    parts: list[JsonValue] = field(default_factory=list)


def load_format(name: str) -> Format:
    return cast(Format, plugins.load("traces.formats", name))


@cache
def all_formats() -> Mapping[str, Format]:
    """Every shipped format by name, imported once: this is asked for each record."""
    return {name: load_format(name) for name in plugins.available("traces.formats")}


def detect(record: JsonValue) -> str | None:
    """Name of the format a record is in; None when no format knows it."""
    scores = {name: form.match(record) for name, form in all_formats().items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else None


def parse_record(record: JsonValue, source: Source, *, raw: str = "") -> Result:
    """The canonical trace of one record that is a whole run, in the format its content shows; `source.format` is filled in."""
    name = detect(record)
    if name is None:
        kind = type(record).__name__
        detail = f"a {kind} in none of the formats {', '.join(all_formats())}"
        return Rejection(RejectionReason.UNKNOWN_FORMAT, detail, source, raw)
    source = replace(source, format=name)
    result = _attempt(lambda: all_formats()[name].parse(record, source), source, raw)
    return result or Rejection(RejectionReason.EMPTY, "the record holds no run", source, raw)


def parse_file(data: bytes, *, location: str, kind: Literal["mlflow", "file"] = "file") -> Iterator[Result]:
    """Traces and rejections of one file, in order. Never raises on content: what cannot be read is a rejection."""
    runs: dict[tuple[str, str], _Run] = {}
    found: list[Result | _Run] = []
    for item in split_records(data):
        source = Source(kind, location, "unknown", item.position)
        match item:
            case Unreadable():
                found.append(Rejection(item.reason, item.detail, source, item.raw))
            case Record():
                found.extend(_read(item, source, runs))
    for entry in found:
        result = _finish(entry) if isinstance(entry, _Run) else entry
        if result is not None:
            yield result


def _read(record: Record, source: Source, runs: dict[tuple[str, str], _Run]) -> Iterator[Result | _Run]:
    """What a record adds: a result, or the runs that begin with it; its further parts go to runs that are known."""
    name = detect(record.value)
    form = all_formats()[name] if name else None
    try:
        parts = form.parts(record.value) if isinstance(form, PartsFormat) else ()
    except ValueError as error:
        yield Rejection(RejectionReason.INVALID_RECORD, str(error), replace(source, format=name or "unknown"), record.raw)
        return
    if parts is None:
        return
    if name is None or not parts:
        yield parse_record(record.value, source, raw=record.raw)
        return
    for run_id, part in parts:
        if (name, run_id) not in runs:
            runs[name, run_id] = _Run(name, replace(source, format=name), record.raw)
            yield runs[name, run_id]
        runs[name, run_id].parts.append(part)


def _finish(run: _Run) -> Result | None:
    form = cast(PartsFormat, load_format(run.format))
    return _attempt(lambda: form.parse_parts(run.parts, run.source), run.source, run.raw)


def _attempt(parse: Callable[[], Trace | None], source: Source, raw: str) -> Result | None:
    try:
        trace = parse()
    except ValueError as error:
        return Rejection(RejectionReason.INVALID_RECORD, str(error), source, raw)
    if trace is not None and not trace.messages:
        return Rejection(RejectionReason.EMPTY, f"trace {trace.id} has no message", source, raw)
    return trace

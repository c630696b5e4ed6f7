"""Splitting a trace file into records: one JSON document, JSON lines or the rows of a table, packed or not, cut off or not.

Owns bytes -> records with their byte offset. What a file may be packed in is `containers`' affair: gzip and zstd, Parquet and CSV
are told from the content. Refuses to know any format.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.containers import Damage, Row, decompress, foreign_encoding, table_rows
from pipelines.traces.json_text import clean_text, read_json, read_json_items
from pipelines.traces.model import RAW_LIMIT_CHARS, RejectionReason
from pipelines.traces.otlp_protobuf import protobuf_rows

MAX_RECORD_BYTES = 64 << 20
"""A longer record is quarantined: one line of it would outweigh the rest of a batch."""
RAW_KEPT_CHARS = 2 * RAW_LIMIT_CHARS
"""Kept of a refused record until redaction has seen it, so that the final cut does not halve a secret into hiding."""


@dataclass(frozen=True, slots=True)
class Record:
    value: JsonValue
    position: int | None
    """Byte offset in the (decompressed) file; None when it has none there."""
    raw: str
    """Start of the text it was parsed from, at most RAW_KEPT_CHARS."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A piece of the file that is no record."""

    reason: RejectionReason
    detail: str
    position: int | None
    raw: str


def split_records(data: bytes) -> Iterator[Record | Unreadable]:
    """Records of a file, in order. A JSON array of objects that are not chat messages counts as one record each.

    Lines are cut at \\n only: U+2028 and U+0085 stand inside strings.
    """
    data, trouble = decompress(data)
    if data.strip():
        yield from _records(data, is_whole=trouble is None)
    elif trouble is None:
        yield Unreadable(RejectionReason.EMPTY, "the file is empty", 0, "")
    if trouble is not None:
        yield Unreadable(trouble.reason, trouble.detail, len(data), "")


def excerpt(data: bytes) -> str:
    """The start of a record for quarantine, whatever its encoding."""
    return clean_text(data[: 4 * RAW_KEPT_CHARS].decode("utf-8", errors="replace"))[:RAW_KEPT_CHARS]


def _records(data: bytes, *, is_whole: bool) -> Iterator[Record | Unreadable]:
    # First of all: its size prefix looks like UTF-16.
    if (spans := protobuf_rows(data)) is not None:
        yield from map(_from_table, spans)
        return
    if problem := foreign_encoding(data):
        yield Unreadable(RejectionReason.UNREADABLE, problem, 0, excerpt(data))
        return
    if (rows := table_rows(data)) is not None:
        yield from map(_from_table, rows)
        return
    document = _document(data) if is_whole else None
    if document is None and is_whole and (items := _salvaged(data)):
        yield from items
        return
    yield from _elements(document) if document else _lines(data)


def _from_table(row: Row | Damage) -> Record | Unreadable:
    if isinstance(row, Damage):
        return Unreadable(row.reason, row.detail, row.position, excerpt(row.raw))
    return _from_value(row.value, row.position)


def _from_value(value: JsonValue, position: int | None) -> Record | Unreadable:
    """A record out of a value that has no text of its own in the file."""
    try:
        text = to_json(value)
    except TypeError as error:
        return Unreadable(RejectionReason.UNREADABLE, f"cannot be stored as JSON: {error}", position, "")
    return Record(value, position, excerpt(text)) if len(text) <= MAX_RECORD_BYTES else _too_large(text, position)


def _document(data: bytes) -> Record | None:
    """The file as one JSON document; None when it is not one."""
    if len(data) > MAX_RECORD_BYTES:
        return None
    try:
        return Record(read_json(data), 0, excerpt(data))
    except ValueError:
        return None


def _salvaged(data: bytes) -> list[Record | Unreadable]:
    """Of a JSON array with elements that cannot be stored, the others; empty when the file is no JSON array."""
    if len(data) > MAX_RECORD_BYTES:
        return []
    try:
        items = read_json_items(data)
    except ValueError:
        return []
    return [
        Unreadable(RejectionReason.UNREADABLE, f"no JSON: {item}", 0, "")
        if isinstance(item, ValueError)
        else _from_value(item, 0)
        for item in items
    ]


def _elements(document: Record) -> Iterator[Record | Unreadable]:
    items = document.value
    is_batch = isinstance(items, list) and bool(items) and not all(isinstance(item, dict) and "role" in item for item in items)
    if not isinstance(items, list) or not is_batch:
        yield document
        return
    for item in items:
        yield _from_value(item, 0)


def _lines(data: bytes) -> Iterator[Record | Unreadable]:
    found: list[Record | Unreadable] = []
    position = 0
    for line in data.split(b"\n"):
        if line.strip():
            found.append(_line(line, position))
        position += len(line) + 1
    if len(found) > 1 and not any(
        isinstance(item, Record) and isinstance(item.value, dict | list) and item.value for item in found
    ):
        yield Unreadable(RejectionReason.UNREADABLE, "neither one JSON document nor JSON lines", 0, excerpt(data))
        return
    yield from found


def _line(line: bytes, position: int) -> Record | Unreadable:
    if len(line) > MAX_RECORD_BYTES:
        return _too_large(line, position)
    raw = excerpt(line)
    try:
        return Record(read_json(line), position, raw)
    except ValueError as error:
        return Unreadable(RejectionReason.UNREADABLE, f"no JSON: {clean_text(str(error))[:200]}", position, raw)


def _too_large(text: bytes, position: int | None) -> Unreadable:
    detail = f"{len(text)} bytes; at most {MAX_RECORD_BYTES} are read"
    return Unreadable(RejectionReason.TOO_LARGE, detail, position, excerpt(text))

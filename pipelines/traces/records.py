"""Splitting a trace file into records: plain or gzip, one JSON document or JSON lines, cut off or not.

Owns bytes -> records with their byte offset. Refuses to know any format.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import clean_text, read_json
from pipelines.traces.model import RAW_LIMIT_CHARS, RejectionReason

MAX_RECORD_BYTES = 64 << 20
"""A longer record is quarantined: one line of it would outweigh the rest of a batch."""
MAX_FILE_BYTES = 2 << 30
"""Decompressed; a longer gzip stream is a bomb."""
RAW_KEPT_CHARS = 2 * RAW_LIMIT_CHARS
"""Kept of a refused record until redaction has seen it, so that the final cut does not halve a secret into hiding."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    value: JsonValue
    position: int
    """Byte offset in the (decompressed) file."""
    raw: str
    """Start of the text it was parsed from, at most RAW_KEPT_CHARS."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A piece of the file that is no record."""

    reason: RejectionReason
    detail: str
    position: int
    raw: str


def split_records(data: bytes) -> Iterator[Record | Unreadable]:
    """Records of a file, in order. A JSON array of objects that are not chat messages counts as one record each.

    Lines are cut at \\n only: U+2028 and U+0085 stand inside strings.
    """
    data, trouble = _decompress(data)
    if not data.strip():
        yield Unreadable(RejectionReason.EMPTY, trouble or "the file is empty", 0, "")
        return
    document = None if trouble else _document(data)
    yield from _elements(document) if document else _lines(data)
    if trouble:
        yield Unreadable(RejectionReason.UNREADABLE, trouble, len(data), "")


def excerpt(data: bytes) -> str:
    """The start of a record for quarantine, whatever its encoding."""
    return clean_text(data[: 4 * RAW_KEPT_CHARS].decode("utf-8", errors="replace"))[:RAW_KEPT_CHARS]


def _decompress(data: bytes) -> tuple[bytes, str]:
    """The content, and what is wrong with the compression; what came before the damage is kept."""
    if not data.startswith(b"\x1f\x8b"):
        return data, ""
    pieces: list[bytes] = []
    size_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        try:
            while piece := stream.read1(_READ_BYTES):
                pieces.append(piece)
                size_bytes += len(piece)
                if size_bytes > MAX_FILE_BYTES:
                    return b"".join(pieces), f"more than {MAX_FILE_BYTES} bytes after decompression"
        except (EOFError, OSError, zlib.error) as error:
            return b"".join(pieces), f"gzip stream damaged or cut off: {error}"
    return b"".join(pieces), ""


def _document(data: bytes) -> Record | None:
    """The file as one JSON document; None when it is not one."""
    if len(data) > MAX_RECORD_BYTES:
        return None
    try:
        return Record(read_json(data), 0, excerpt(data))
    except ValueError:
        return None


def _elements(document: Record) -> Iterator[Record]:
    items = document.value
    is_batch = isinstance(items, list) and bool(items) and not all(isinstance(item, dict) and "role" in item for item in items)
    if not isinstance(items, list) or not is_batch:
        yield document
        return
    for item in items:
        yield Record(item, 0, excerpt(to_json(item)))


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
    raw = excerpt(line)
    if len(line) > MAX_RECORD_BYTES:
        return Unreadable(RejectionReason.TOO_LARGE, f"{len(line)} bytes; at most {MAX_RECORD_BYTES} are read", position, raw)
    try:
        return Record(read_json(line), position, raw)
    except ValueError as error:
        return Unreadable(RejectionReason.UNREADABLE, f"no JSON: {clean_text(str(error))[:200]}", position, raw)

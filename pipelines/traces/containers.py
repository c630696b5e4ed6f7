"""What a trace file comes packed in: compression, and tables whose rows are records.

Everything is told from the content, never from the name:

- gzip by its magic 1f 8b, zstd by 28 b5 2f fd (RFC 1952, RFC 8878); one layer is taken off, then the rest is looked at.
- UTF-16 and UTF-32 by their byte order mark, or by where the zero bytes of a first ASCII character lie (RFC 4627, section 3).
  They are named and refused: JSON and CSV are read as UTF-8.
- Parquet by its magic PAR1. A row becomes an object: nested columns stay nested, maps become objects, timestamps ISO text,
  binary columns text with U+FFFD for what is no UTF-8, decimals text.
- CSV by its first line: cells of names, one of them in `CSV_COLUMNS`, set apart by comma, semicolon or tab (RFC 4180 quoting). A
  row becomes an object of strings; what a cell holds, JSON too, is the format's affair. A text that begins with { or [ is JSON.

Owns bytes -> plain bytes or rows, and the limits on what may come out. Damage costs the rows it hits and no others: what came
before is kept, and rows and row groups after it are read on. Refuses to know any format.
"""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from pipelines.traces.json_text import clean_text
from pipelines.traces.model import RejectionReason

MAX_FILE_BYTES = 2 << 30
"""Decompressed; a longer stream is a bomb."""
MAX_RATIO = 200
"""Bytes out per byte in; more is a bomb. Logs reach 10 to 50."""
RATIO_FROM_BYTES = 64 << 20
"""The ratio counts only above this much output: a small file of repetitions harms nobody."""
CSV_COLUMNS = frozenset(
    {
        "messages",
        "message",
        "conversation",
        "conversations",
        "trajectory",
        "history",
        "events",
        "spans",
        "trace",
        "trace_id",
        "request",
        "response",
        "request_body",
        "response_body",
        "input",
        "output",
        "inputs",
        "outputs",
        "prompt",
        "completion",
        "kwargs",
        "body",
    }
)
"""At least one of these names, in any case, makes a first line a CSV header."""

_READ_BYTES = 1 << 20
_ZSTD_READ_BYTES = 64 << 10
_MAX_CELL_CHARS = 64 << 20
_MAX_HEADER_BYTES = 64 << 10
_BATCH_ROWS = 64
_BATCH_BYTES = 1 << 30
"""A dictionary-encoded batch may repeat one long value in each row: rows per batch times the longest column chunk stay below."""
_COLUMN_NAME = re.compile(r"[\w.\-/ ]{1,64}")
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Row:
    value: dict[str, JsonValue]
    position: int | None
    """Byte offset in the decompressed file; None in Parquet, where a row lies in many places."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a file, or a piece of it, cannot be read."""

    reason: RejectionReason
    detail: str
    position: int | None = None
    raw: bytes = b""


def decompress(data: bytes) -> tuple[bytes, Damage | None]:
    """The content, and what is wrong with the compression; what came before the damage or the limit is kept."""
    if data.startswith(b"\x1f\x8b"):
        kind, pieces = "gzip", _gzip_pieces(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        kind, pieces = "zstd", _zstd_pieces(data)
    else:
        return data, None
    kept: list[bytes] = []
    size_bytes = 0
    try:
        for piece in pieces:
            kept.append(piece)
            size_bytes += len(piece)
            if problem := _excess(size_bytes, len(data)):
                return b"".join(kept), Damage(RejectionReason.TOO_LARGE, f"{kind}: {problem}")
    except (EOFError, OSError, ValueError, zlib.error) as error:
        return b"".join(kept), Damage(RejectionReason.UNREADABLE, f"{kind} stream damaged or cut off: {error}")
    return b"".join(kept), None


def foreign_encoding(data: bytes) -> str:
    """What makes the text another encoding than UTF-8; empty when nothing does."""
    has_mark = data.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"))
    has_wide_ascii = re.match(rb"\0[^\0]|[^\0]\0|\0{3}[^\0]", data) is not None
    return "no UTF-8: it begins like UTF-16, UTF-32 or a binary file" if has_mark or has_wide_ascii else ""


def table_rows(data: bytes) -> Iterator[Row | Damage] | None:
    """Rows of a Parquet or CSV file, in order, at least one entry; None when it is neither."""
    if data.startswith(b"PAR1"):
        return _or_empty(_parquet_rows(data), "Parquet")
    if (header := _csv_header(data)) is not None:
        return _or_empty(_csv_rows(data, *header), "CSV")
    return None


def _excess(size_bytes: int, packed_bytes: int) -> str:
    """What limit so many bytes out of so many break; empty when none."""
    if size_bytes > MAX_FILE_BYTES:
        return f"more than {MAX_FILE_BYTES} bytes after decompression"
    if size_bytes > RATIO_FROM_BYTES and size_bytes > MAX_RATIO * packed_bytes:
        return f"expands more than {MAX_RATIO} times, to above {RATIO_FROM_BYTES} bytes"
    return ""


def _gzip_pieces(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        while piece := stream.read1(_READ_BYTES):
            yield piece


def _zstd_pieces(data: bytes) -> Iterator[bytes]:
    """Arrow drops the whole piece in which a stream breaks off, so that one is read again byte by byte."""
    num_whole = 0
    try:
        for piece in _read_zstd(data, 0, _ZSTD_READ_BYTES):
            num_whole += 1
            yield piece
    except OSError:
        yield from _read_zstd(data, num_whole, 1)


def _read_zstd(data: bytes, num_skipped: int, piece_bytes: int) -> Iterator[bytes]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        for _ in range(num_skipped):
            stream.read(_ZSTD_READ_BYTES)
        while piece := stream.read(piece_bytes):
            yield piece


def _or_empty(rows: Iterator[Row | Damage], kind: str) -> Iterator[Row | Damage]:
    first = next(rows, None)
    yield first or Damage(RejectionReason.EMPTY, f"{kind} without a row")
    yield from rows


def _csv_header(data: bytes) -> tuple[list[str], str] | None:
    """Column names and delimiter of a CSV file; None when the first line is no such header, or the only line."""
    end = data.find(b"\n", 0, _MAX_HEADER_BYTES)
    if end < 0 or data.lstrip()[:1] in (b"{", b"["):
        return None
    for delimiter in ",;\t":
        try:
            line = data[:end].decode("utf-8-sig").rstrip("\r")
            names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, strict=True), [])]
        except (csv.Error, ValueError):
            continue
        is_header = len(set(names)) == len(names) and all(_COLUMN_NAME.fullmatch(name) for name in names)
        if is_header and not CSV_COLUMNS.isdisjoint(name.lower() for name in names):
            return names, delimiter
    return None


class _Lines(Iterator[str]):
    """Lines as the CSV reader wants them, and how far into the file it has read. What is no UTF-8 becomes lone surrogates."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def __next__(self) -> str:
        if self.position >= len(self.data):
            raise StopIteration
        start, end = self.position, self.data.find(b"\n", self.position) + 1 or len(self.data)
        self.position = end
        return self.data[start:end].decode("utf-8", "surrogateescape")


def _csv_rows(data: bytes, names: list[str], delimiter: str) -> Iterator[Row | Damage]:
    # A process-wide setting, only ever raised: cells of traces are longer than its 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL_CHARS))
    lines = _Lines(data)
    next(lines)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = lines.position
        try:
            cells = next(reader)
            problem = _row_problem(cells, names)
        except StopIteration:
            return
        except csv.Error as error:
            cells, problem = [""], f"{error}"
        if problem:
            detail = f"CSV row damaged or cut off: {problem}"
            yield Damage(RejectionReason.UNREADABLE, detail, start, data[start : lines.position])
        elif cells:
            yield Row(dict(zip(names, cells, strict=True)), start)


def _row_problem(cells: list[str], names: list[str]) -> str:
    if cells and len(cells) != len(names):
        return f"{len(cells)} cells; the header has {len(names)}"
    return "" if all(clean_text(cell) == cell for cell in cells) else "no UTF-8"


def _parquet_rows(data: bytes) -> Iterator[Row | Damage]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    errors = (pa.ArrowException, OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        chunks = _chunk_sizes(file.metadata)
    except errors as error:
        yield Damage(RejectionReason.UNREADABLE, f"Parquet damaged or cut off: {error}")
        return
    size_bytes = 0
    for group, chunk_bytes in enumerate(chunks):
        try:
            batch_rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, chunk_bytes)))
            for batch in file.iter_batches(batch_size=batch_rows, row_groups=[group], use_threads=False):
                size_bytes += batch.nbytes
                if problem := _excess(size_bytes, len(data)):
                    yield Damage(RejectionReason.TOO_LARGE, f"Parquet: {problem}")
                    return
                yield from _batch_rows(batch, errors)
        except errors as error:
            yield Damage(RejectionReason.UNREADABLE, f"Parquet row group {group} damaged: {error}")


def _chunk_sizes(metadata: Any) -> list[int]:
    """Of each row group: the size of its longest column chunk, in bytes as the file declares it."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    return [max((g.column(i).total_uncompressed_size for i in range(g.num_columns)), default=0) for g in groups]


def _batch_rows(batch: Any, errors: tuple[type[BaseException], ...]) -> Iterator[Row | Damage]:
    """Rows one by one, so that a value Python cannot hold (the year 300000) costs its own row only."""
    for index in range(batch.num_rows):
        try:
            (row,) = batch.slice(index, 1).to_pylist(maps_as_pydicts="lossy")
            yield Row({clean_text(str(name)): _plain(value) for name, value in row.items()}, None)
        except errors as error:
            yield Damage(RejectionReason.UNREADABLE, f"Parquet row has no JSON form: {error}")


def _plain(value: object) -> JsonValue:
    """A value of Arrow's as JSON that can be stored, see `json_text`."""
    if value is None or isinstance(value, bool | str):
        return clean_text(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, dict):
        return {clean_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)

"""OpenTelemetry traces in protobuf: the body of an OTLP request, or what the collector's file exporter writes as `format: proto`.

ExportTraceServiceRequest and TracesData are the same on the wire (opentelemetry-proto, trace/v1 and collector/trace/v1). The file
exporter sets the size before each message, as four bytes, most significant first (opentelemetry-collector-contrib,
exporter/fileexporter). Owns bytes -> rows in protobuf's JSON mapping, which `formats.otlp` reads.
"""

from collections.abc import Iterator
from itertools import chain

from pipelines.traces.containers import Damage, Row
from pipelines.traces.model import RejectionReason

_FIRST_TAG = 0x0A
"""Field 1, length-delimited: how a message that holds any resource begins."""
_PREFIX_BYTES = 4


def protobuf_rows(data: bytes) -> Iterator[Row | Damage] | None:
    """One row for each resource's spans, in order; None when the data are no traces in protobuf. Call before any text is looked for.

    A file of several messages that is cut off keeps the messages before the cut.
    """
    if len(data) > _PREFIX_BYTES and data[0] == _FIRST_TAG:
        rows = _message_rows(data, 0)
        return iter(rows) if rows else None
    if len(data) > _PREFIX_BYTES and data[_PREFIX_BYTES] == _FIRST_TAG:
        pieces = _framed(data)
        first = next(pieces)
        return chain(first, _rest(pieces)) if first and not isinstance(first, Damage) else None
    return None


def _rest(pieces: Iterator[list[Row] | Damage]) -> Iterator[Row | Damage]:
    for piece in pieces:
        yield from [piece] if isinstance(piece, Damage) else piece


def _framed(data: bytes) -> Iterator[list[Row] | Damage]:
    """The messages of a file that sets each one's size before it; at least one entry."""
    position = 0
    while position < len(data):
        start = position + _PREFIX_BYTES
        end = start + int.from_bytes(data[position:start], "big")
        rows = _message_rows(data[start:end], start) if start <= len(data) and end <= len(data) else None
        if rows is None:
            yield Damage(RejectionReason.UNREADABLE, "an OTLP message is damaged or cut off", position, data[position:])
            return
        yield rows
        position = end


def _message_rows(data: bytes, position: int) -> list[Row] | None:
    """The resources of one message; None when it is no message. Empty without real spans: text may parse as unknown fields."""
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    try:
        message = TracesData.FromString(data)
    except DecodeError:
        return None
    spans = (span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans)
    if not any(len(span.trace_id) == 16 for span in spans):
        return []
    return [Row({"resourceSpans": [MessageToDict(resource)]}, position) for resource in message.resource_spans]

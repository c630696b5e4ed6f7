"""Rows of the lake's trace tables: scalar columns to query by, and `body`, the exact record as JSON.

Owns the schemas of `traces`, `rejections` and `edge_cases`, and pure conversions both ways. Refuses to read or write tables.
"""

from typing import Any

import pyarrow as pa

from pipelines.artifacts import digest, from_json, to_json
from pipelines.traces.model import EdgeCase, Rejection, Source, Trace, trace_digest

_SOURCE_COLUMNS = [
    pa.field("source_kind", pa.string(), nullable=False),
    pa.field("source_location", pa.string(), nullable=False),
    pa.field("source_position", pa.int64()),
    pa.field("format", pa.string(), nullable=False),
]

TRACES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        *_SOURCE_COLUMNS,
        pa.field("model", pa.string()),
        pa.field("conversation_id", pa.string()),
        pa.field("user", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("num_messages", pa.int32(), nullable=False),
        pa.field("num_tool_calls", pa.int32(), nullable=False),
        pa.field("num_feedback", pa.int32(), nullable=False),
        pa.field("num_expectations", pa.int32(), nullable=False),
        pa.field("started_at", pa.timestamp("us", tz="UTC")),
        pa.field("duration_s", pa.float64()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("body", pa.string(), nullable=False),
    ]
)

REJECTIONS_SCHEMA = pa.schema(
    [
        pa.field("digest", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        *_SOURCE_COLUMNS,
        pa.field("body", pa.string(), nullable=False),
    ]
)

EDGE_CASES_SCHEMA = pa.schema(
    [
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("trace_digest", pa.string(), nullable=False),
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("severity", pa.float64(), nullable=False),
        pa.field("signals", pa.list_(pa.string()), nullable=False),
        pa.field("started_at", pa.timestamp("us", tz="UTC")),
        pa.field("body", pa.string(), nullable=False),
    ]
)


def trace_to_row(trace: Trace) -> dict[str, Any]:
    return {
        "id": trace.id,
        "digest": trace_digest(trace),
        **_source_columns(trace.source),
        "model": trace.model,
        "conversation_id": trace.conversation_id,
        "user": trace.user,
        "outcome": trace.outcome.value,
        "num_messages": len(trace.messages),
        "num_tool_calls": sum(len(message.tool_calls) for message in trace.messages),
        "num_feedback": len(trace.feedback),
        "num_expectations": len(trace.expectations),
        "started_at": trace.started_at,
        "duration_s": trace.duration_s,
        "input_tokens": trace.usage.input_tokens,
        "output_tokens": trace.usage.output_tokens,
        "body": to_json(trace).decode(),
    }


def trace_from_row(row: dict[str, Any]) -> Trace:
    return from_json(Trace, row["body"])


def rejection_to_row(rejection: Rejection) -> dict[str, Any]:
    return {
        "digest": digest(rejection),
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        **_source_columns(rejection.source),
        "body": to_json(rejection).decode(),
    }


def rejection_from_row(row: dict[str, Any]) -> Rejection:
    return from_json(Rejection, row["body"])


def edge_case_to_row(case: EdgeCase) -> dict[str, Any]:
    return {
        "trace_id": case.trace.id,
        "trace_digest": trace_digest(case.trace),
        "cluster": case.cluster,
        "severity": case.severity,
        "signals": [signal.kind.value for signal in case.signals],
        "started_at": case.trace.started_at,
        "body": to_json(case).decode(),
    }


def edge_case_from_row(row: dict[str, Any]) -> EdgeCase:
    return from_json(EdgeCase, row["body"])


def _source_columns(source: Source) -> dict[str, Any]:
    return {
        "source_kind": source.kind,
        "source_location": source.location,
        "source_position": source.position,
        "format": source.format,
    }

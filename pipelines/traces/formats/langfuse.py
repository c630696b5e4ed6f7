"""Langfuse: the export of one trace with its observations from the UI or the API, and rows of the bulk export.

A bulk row (observations, enriched observations_v2, traces, scores; field names from langfuse.com's "Blob storage export field
reference") is a part of the run that its trace_id names. Keys are snake_case there, camelCase in the UI; in rows that were CSV
every value is text. The UI writes observations twice, the inner copy without input and output, in no order. Only generations are
model calls: what agents and spans repeat of them is not read again.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from pipelines.traces.json_text import as_int
from pipelines.traces.message_shapes import Fields, merge_rows, open_json, read_specs, scalar_facts
from pipelines.traces.model import Expectation, Feedback, Outcome, Source, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
    as_dict,
    as_list,
    as_text,
)
from pipelines.traces.steps import MAX_COUNT, Step, tell
from pipelines.traces.timestamps import read_time

_OBSERVATIONS = frozenset(
    ("SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
)
_SCORE_SOURCES: dict[str, Literal["human", "code", "llm_judge"]] = {"ANNOTATION": "human", "API": "code", "EVAL": "llm_judge"}
_TRACE_MARKS = ("bookmarked", "public", "release", "session_id", "user_id", "environment", "project_id")
_TRACE_FIELDS = ("user_id", "session_id", "trace_name", "release", "environment", "tags")
"""What an enriched observation row says of its trace."""
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    if _is_export(fields):
        return 2
    row = _first_row(fields) or fields
    return 2 if len(row) < 200 and _row_kind(_snake(row)) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """An export or a row belongs to its trace; a page of rows may hold several traces."""
    fields = as_dict(record)
    if _is_export(fields):
        own = as_text(as_dict(fields.get("trace")).get("id"))
        others = (_trace_id(_snake(as_dict(item))) for item in as_list(fields.get("observations")))
        trace_id = own or next(filter(None, others), None)
        return [(trace_id, record)] if trace_id else []
    rows = [as_dict(item) for item in as_list(fields.get("data"))] if _first_row(fields) else [fields]
    return [(trace_id, row) for row in rows if (trace_id := _trace_id(_snake(row)))]


def parse(record: JsonValue, source: Source) -> Trace:
    if not parts(record):
        raise ValueError("it names no trace: neither a trace's id nor a trace_id")
    return parse_parts([record], source)


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """One run out of its export, or out of its observation, trace and score rows."""
    run = _collect(parts)
    told = tell([_step(key, row, index) for index, (key, row) in enumerate(run.observations.items())], run.trace)
    starts = [time for row in run.observations.values() if (time := read_time(row.get("start_time")))]
    return Trace(
        id=run.trace_id,
        messages=told.messages,
        source=source,
        tools=told.tools,
        outcome=Outcome.FAILURE if told.error else Outcome.UNKNOWN,
        error=told.error,
        feedback=tuple(_feedback(run)),
        expectations=tuple(_corrections(run)),
        usage=told.usage,
        model=told.model,
        conversation_id=as_text(run.trace.get("session_id")),
        user=as_text(run.trace.get("user_id")),
        started_at=read_time(run.trace.get("timestamp")) or min(starts, default=None),
        duration_s=_duration_s(run, starts),
        attributes=_attributes(run) | told.attributes,
    )


@dataclass(slots=True)
class _Run:
    trace_id: str = ""
    trace: Fields = field(default_factory=dict)
    observations: dict[str, Fields] = field(default_factory=dict)
    scores: dict[str, Fields] = field(default_factory=dict)


def _collect(parts: Sequence[JsonValue]) -> _Run:
    """Rows by their id: what is written twice is one row, and what the later writing lacks stays."""
    run = _Run()
    for part in map(as_dict, parts):
        if not _is_export(part):
            _add_row(run, _snake(part))
            continue
        trace = _snake(as_dict(part.get("trace")))
        _add_trace(run, trace)
        for item in (*as_list(trace.get("observations")), *as_list(part.get("observations"))):
            _add_observation(run, _snake(as_dict(item)))
    return run


def _add_row(run: _Run, row: Fields) -> None:
    match _row_kind(row):
        case "observation":
            _add_observation(run, row)
        case "score":
            _add_score(run, row)
        case _:
            _add_trace(run, row)
            for item in as_list(row.get("observations")):
                _add_observation(run, _snake(as_dict(item)))


def _add_trace(run: _Run, row: Fields) -> None:
    run.trace_id = run.trace_id or as_text(row.get("id")) or ""
    run.trace = merge_rows(run.trace, {key: value for key, value in row.items() if key not in ("observations", "scores")})
    for item in (*as_list(row.get("scores")), *as_list(row.get("corrections"))):
        _add_score(run, _snake(as_dict(item)))


def _add_observation(run: _Run, row: Fields) -> None:
    if not row:
        return
    run.trace_id = run.trace_id or as_text(row.get("trace_id")) or ""
    key = as_text(row.get("id")) or f"#{len(run.observations)}"
    run.observations[key] = merge_rows(run.observations.get(key, {}), row)
    run.trace = merge_rows({name: row[name] for name in _TRACE_FIELDS if row.get(name)}, run.trace)


def _add_score(run: _Run, row: Fields) -> None:
    if not row:
        return
    run.trace_id = run.trace_id or as_text(row.get("trace_id")) or ""
    key = as_text(row.get("id")) or f"#{len(run.scores)}"
    run.scores[key] = merge_rows(run.scores.get(key, {}), row)


def _is_export(fields: Fields) -> bool:
    trace, rows = fields.get("trace"), fields.get("observations")
    if not isinstance(trace, dict) or not isinstance(rows, list):
        return False
    return "projectId" in trace or (bool(rows) and _row_kind(_snake(as_dict(rows[0]))) == "observation")


def _first_row(fields: Fields) -> Fields:
    """The first row of a page of them, as the API lists rows."""
    page = fields.get("data")
    row = as_dict(page[0]) if isinstance(page, list) and page else {}
    return row if len(row) < 200 and _row_kind(_snake(row)) else {}


def _row_kind(row: Fields) -> Literal["observation", "score", "trace", ""]:
    if "trace_id" in row:
        if "parent_observation_id" in row or ("start_time" in row and str(row.get("type")).upper() in _OBSERVATIONS):
            return "observation"
        of_score = "value" in row and any(name in row for name in ("string_value", "data_type"))
        return "score" if of_score and str(row.get("source")).upper() in _SCORE_SOURCES else ""
    is_trace = "id" in row and "timestamp" in row and ("bookmarked" in row or "public" in row)
    return "trace" if is_trace and sum(name in row for name in _TRACE_MARKS) > 2 else ""


def _trace_id(row: Fields) -> str | None:
    return as_text(row.get("id")) if _row_kind(row) == "trace" else as_text(row.get("trace_id"))


def _snake(row: Fields) -> Fields:
    return {_CAMEL.sub(r"_\1", key).lower(): value for key, value in row.items()}


def _step(key: str, row: Fields, position: int) -> "Step":
    metadata = as_dict(open_json(row.get("metadata")))
    attributes = as_dict(open_json(metadata.get("attributes")))
    kind = str(row.get("type")).upper()
    tool = as_text(attributes.get("gen_ai.tool.name")) or as_text(attributes.get("tool.name"))
    started = read_time(row.get("start_time"))
    failed = str(row.get("level")).upper() == "ERROR"
    name = as_text(row.get("name")) or ""
    return Step(
        id=key,
        parent=as_text(row.get("parent_observation_id")),
        order=(started.isoformat(timespec="microseconds") if started else "~", position),
        kind="model" if kind == "GENERATION" else "tool" if kind == "TOOL" else "other",
        name=tool or name if kind == "TOOL" else name,
        inputs=row.get("input"),
        outputs=row.get("output"),
        problem=(as_text(row.get("status_message")) or f"{name} has level ERROR") if failed else None,
        usage=_usage(row) if kind == "GENERATION" else Usage(),
        model=as_text(row.get("provided_model_name")) or as_text(row.get("model")),
        tools=_tools(row, metadata, attributes) if kind == "GENERATION" else (),
        call_id=as_text(attributes.get("gen_ai.tool.call.id")) or as_text(metadata.get("tool_call_id")),
    )


def _usage(row: Fields) -> Usage:
    """Langfuse takes cached and reasoning tokens out of `input` and `output` into keys of their own, when the SDK tells them.

    `total` includes them always; some exporters list them without taking them out, which only the total shows.
    """
    counts = as_dict(open_json(row.get("usage_details"))) or as_dict(open_json(row.get("usage")))
    if str(counts.get("unit") or "TOKENS").upper() != "TOKENS":
        return Usage()
    known = {key: number for key, value in counts.items() if (number := as_int(value)) is not None}
    asked = next((known[key] for key in ("input", "prompt_tokens", "promptTokens", "input_tokens") if key in known), None)
    given = next(
        (known[key] for key in ("output", "completion_tokens", "completionTokens", "output_tokens") if key in known), None
    )
    total = next((known[key] for key in ("total", "total_tokens", "totalTokens") if key in known), None)
    cached = [number for key, number in known.items() if "cache" in key and "creat" not in key and "write" not in key]
    if given is not None:
        given += sum(number for key, number in known.items() if key.startswith("output_") and key != "output_tokens")
    if asked is not None:
        split = [number for key, number in known.items() if key.startswith(("input_", "cache_")) and key != "input_tokens"]
        asked = max(asked, total - (given or 0)) if total else asked + sum(split)
    return Usage(asked, given, sum(cached) if cached else None)


def _tools(row: Fields, metadata: Fields, attributes: Fields) -> tuple[ToolSpec, ...]:
    requested = as_dict(open_json(attributes.get("model_request_parameters")))
    places = (row.get("tool_definitions"), requested.get("function_tools"), metadata.get("tools"))
    return read_specs(
        *places, *(as_dict(open_json(row.get(name))).get("tools") for name in ("input", "output")), row.get("input")
    )


def _feedback(run: _Run) -> Iterator[Feedback]:
    for row in run.scores.values():
        kind = str(row.get("data_type")).upper()
        if kind == "CORRECTION":
            continue
        text = as_text(row.get("string_value")) or as_text(row.get("long_string_value"))
        value = _number(row.get("value"))
        if kind == "BOOLEAN" and value is not None:
            value = value == 1
        elif text is not None and kind != "NUMERIC":
            value = text
        source = _SCORE_SOURCES.get(str(row.get("source")).upper(), "code")
        if value is not None:
            yield Feedback(as_text(row.get("name")) or "score", value, source, as_text(row.get("comment")))


def _corrections(run: _Run) -> Iterator[Expectation]:
    """A corrected output that a reviewer wrote down is kept by Langfuse as a score of its own type."""
    for row in run.scores.values():
        text = as_text(row.get("long_string_value")) or as_text(row.get("string_value"))
        if str(row.get("data_type")).upper() == "CORRECTION" and text is not None:
            yield Expectation("corrected_output", open_json(text), as_text(row.get("author_user_id")))


def _number(value: JsonValue) -> JsonValue:
    """A score's value, which is text in CSV rows."""
    if not isinstance(value, str):
        return open_json(value)
    try:
        number = float(value)
    except ValueError:
        return value or None
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() and abs(number) < MAX_COUNT else number


def _duration_s(run: _Run, starts: list[datetime]) -> float | None:
    """From first start to last end. The rows' own latency is in seconds or, from older integrations, in milliseconds."""
    ends = [time for row in run.observations.values() if (time := read_time(row.get("end_time")))]
    if starts and ends:
        return max((max(ends) - min(starts)).total_seconds(), 0.0)
    latency = run.trace.get("latency")
    return float(latency) if isinstance(latency, int | float) and not isinstance(latency, bool) else None


def _attributes(run: _Run) -> dict[str, str]:
    metadata = as_dict(open_json(run.trace.get("metadata")))
    found = scalar_facts({key: value for key, value in metadata.items() if key not in ("attributes", "scope")})
    names = {name: as_text(run.trace.get(name)) for name in ("name", "environment", "release", "version")}
    names["name"] = names["name"] or as_text(run.trace.get("trace_name"))
    names["tags"] = ", ".join(tag for tag in as_list(open_json(run.trace.get("tags"))) if isinstance(tag, str)) or None
    return found | {key: value for key, value in names.items() if value}

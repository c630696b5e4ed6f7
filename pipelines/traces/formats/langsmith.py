"""LangSmith: batch ingest bodies ({post, patch}), run rows of the bulk export or the API, and feedback rows.

Every run (a span, in other words) is a part of the trace that its trace_id names; a patch completes the post of its id, whichever
comes first. `dotted_order` places a run below its parent and among its siblings (docs.langchain.com, "Run data format"); only
runs without one are placed by parent and clock. A row's session_id is the tracing project: the conversation is in the metadata,
as thread_id, session_id or conversation_id. In export rows inputs, outputs, extra and feedback_stats may be JSON in strings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from pipelines.traces.formats.langfuse import (
    UNKNOWN_USAGE,
    Fields,
    Step,
    merge_rows,
    open_json,
    read_specs,
    scalar_facts,
    tell,
)
from pipelines.traces.json_text import as_int
from pipelines.traces.model import Expectation, Feedback, Outcome, Source, Trace, Usage
from pipelines.traces.openai_messages import add_usage, as_dict, as_list, as_text, read_usage
from pipelines.traces.timestamps import read_time

_JUDGES: dict[str, Literal["human", "code", "llm_judge"]] = {
    "app": "human",
    "api": "code",
    "model": "llm_judge",
    "auto_eval": "llm_judge",
}
"""Feedback sources; `app` is LangSmith's own page, where people annotate."""
_NO_FAILURES = ("GraphInterrupt(", "NodeInterrupt(", "ParentCommand(")
_THREADS = ("thread_id", "session_id", "conversation_id")
_INTERNAL = ("ls_", "langgraph_", "lc_", "__", "LANGSMITH_", "LANGCHAIN_", "checkpoint_")
"""Beginnings of metadata keys that the SDKs write for themselves."""


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    if _is_batch(fields):
        return 2
    return 2 if _is_run(_first_run(fields) or fields) or _is_feedback(fields) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """Each run or feedback belongs to its trace; a patch may leave it to the post of its id in the same body to name that."""
    found = [*_parts_of(as_dict(record))]
    traces = {as_text(part.get("id")): trace_id for part in found if (trace_id := _trace_id(part))}
    named = [(_trace_id(part) or traces.get(as_text(part.get("id"))) or as_text(part.get("id")), part) for part in found]
    return [(trace_id, part) for trace_id, part in named if trace_id]


def parse(record: JsonValue, source: Source) -> Trace:
    """Raises ValueError unless the record is all of one run."""
    found = parts(record)
    traces = {trace_id for trace_id, _ in found}
    if len(traces) != 1:
        raise ValueError(f"it holds runs of {len(traces)} traces; expected runs that name one")
    return parse_parts([part for _, part in found], source)


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """One trace out of its runs, patches and feedback."""
    run = _collect(parts)
    steps = _steps(run.runs)
    root = next((row for row in run.runs.values() if row.get("id") == run.trace_id), next(iter(run.runs.values()), {}))
    told = tell(steps, {})
    metadata = _metadata([root, *run.runs.values()])
    starts = [time for row in run.runs.values() if (time := read_time(row.get("start_time")))]
    ends = [time for row in run.runs.values() if (time := read_time(row.get("end_time")))]
    own = as_text(root.get("thread_id"))
    return Trace(
        id=run.trace_id,
        messages=told.messages,
        source=source,
        tools=told.tools,
        outcome=Outcome.FAILURE if told.error else Outcome.UNKNOWN,
        error=told.error,
        feedback=(*_feedback(run), *_feedback_stats(run)),
        expectations=tuple(_corrections(run)),
        usage=told.usage,
        model=told.model,
        conversation_id=next((text for name in _THREADS if (text := as_text(metadata.get(name)))), own),
        user=next((text for name in ("user_id", "user") if (text := as_text(metadata.get(name)))), None),
        started_at=min(starts, default=None),
        duration_s=max((max(ends) - min(starts)).total_seconds(), 0.0) if starts and ends else None,
        attributes=_attributes(root, metadata) | told.attributes,
    )


@dataclass(slots=True)
class _Run:
    trace_id: str = ""
    runs: dict[str, Fields] = field(default_factory=dict)
    feedback: dict[str, Fields] = field(default_factory=dict)


def _collect(parts: Sequence[JsonValue]) -> _Run:
    """Runs by their id. Patches come last: they tell how a run ended, though a body may bring them before its post."""
    run = _Run()
    items = [as_dict(part) for part in parts]
    for item in (*(i for i in items if _PATCH not in i), *(i for i in items if _PATCH in i)):
        run.trace_id = run.trace_id or _trace_id(item) or ""
        kept = run.feedback if _is_feedback(item) else run.runs
        key = as_text(item.get("id")) or f"#{len(kept)}"
        old = kept.get(key, {})
        kept[key] = merge_rows(old, {name: value for name, value in item.items() if name != _PATCH})
        if old.get("extra") and item.get("extra"):
            kept[key]["extra"] = _merge_extra(old["extra"], item["extra"])
    run.trace_id = run.trace_id or next(iter(run.runs), "")
    return run


def _merge_extra(old: JsonValue, new: JsonValue) -> JsonValue:
    before, after = as_dict(open_json(old)), as_dict(open_json(new))
    metadata = merge_rows(as_dict(open_json(before.get("metadata"))), as_dict(open_json(after.get("metadata"))))
    return {**merge_rows(before, after), "metadata": metadata}


_PATCH = "everloop.is_patch"
"""Marks a part that came as a patch."""


def _parts_of(fields: Fields) -> Iterator[Fields]:
    if _is_batch(fields):
        for item in as_list(fields.get("post")):
            yield from _with_children(as_dict(item))
        for item in map(as_dict, as_list(fields.get("patch"))):
            yield {**item, _PATCH: True}
    elif _first_run(fields):
        for item in as_list(fields.get("runs")):
            yield from _with_children(as_dict(item))
    else:
        yield from _with_children(fields)


def _with_children(row: Fields) -> Iterator[Fields]:
    """A run and the runs that a loaded run tree nests inside it."""
    waiting = [row]
    while waiting:
        item = waiting.pop()
        below = [as_dict(child) for child in as_list(item.get("child_runs"))]
        waiting.extend(reversed(below))
        yield {key: value for key, value in item.items() if key != "child_runs"}


def _is_batch(fields: Fields) -> bool:
    places = [fields[name] for name in ("post", "patch") if name in fields]
    firsts = [as_dict(place[0]) for place in places if isinstance(place, list) and place]
    return bool(firsts) and all(_is_run(first) or "dotted_order" in first for first in firsts)


def _first_run(fields: Fields) -> Fields:
    page = fields.get("runs")
    row = as_dict(page[0]) if isinstance(page, list) and page else {}
    return row if _is_run(row) else {}


def _is_run(fields: Fields) -> bool:
    if "trace_id" not in fields:
        return False
    return "dotted_order" in fields or ("run_type" in fields and any(name in fields for name in ("parent_run_id", "session_id")))


def _is_feedback(fields: Fields) -> bool:
    return "run_id" in fields and "key" in fields and ("feedback_source" in fields or "feedback_source_type" in fields)


def _trace_id(row: Fields) -> str | None:
    path = _path(row)
    return as_text(row.get("trace_id")) or (path[0] if path else as_text(row.get("run_id")))


def _path(row: Fields) -> list[str]:
    """Ids from the trace's first run down to this one, out of its dotted order: each is a start time, a Z and the id."""
    dotted = as_text(row.get("dotted_order"))
    return [segment.partition("Z")[2] for segment in dotted.split(".")] if dotted else []


def _steps(runs: dict[str, Fields]) -> list[Step]:
    return [_step(key, row, runs, position) for position, (key, row) in enumerate(runs.items())]


def _step(key: str, row: Fields, runs: dict[str, Fields], position: int) -> Step:
    above = [identity for identity in (as_text(row.get("parent_run_id")), *reversed(_path(row)[:-1])) if identity]
    started = read_time(row.get("start_time"))
    clock = started.strftime("%Y%m%dT%H%M%S%fZ") if started else "~"
    kind = str(row.get("run_type"))
    metadata, asked = _extra(row, "metadata"), _extra(row, "invocation_params")
    inputs, outputs = as_dict(open_json(row.get("inputs"))), open_json(row.get("outputs"))
    is_model = kind in ("llm", "chat_model")
    name = as_text(row.get("name")) or ""
    return Step(
        id=key,
        parent=next((identity for identity in above if identity in runs), next(iter(above), None)),
        order=(as_text(row.get("dotted_order")) or clock, position),
        kind="model" if is_model else "tool" if kind == "tool" else "other",
        name=name,
        inputs=inputs,
        outputs=outputs,
        problem=_problem(row, name),
        usage=_usage(row, outputs) if is_model else UNKNOWN_USAGE,
        model=_model(as_dict(outputs), metadata, asked, inputs),
        tools=read_specs(asked.get("tools"), asked.get("functions"), inputs.get("tools"), metadata.get("tools"))
        if is_model
        else (),
        call_id=_answered_call(as_dict(outputs)) or as_text(inputs.get("tool_call_id")) or as_text(metadata.get("tool_call_id")),
    )


def _extra(row: Fields, name: str) -> Fields:
    return as_dict(open_json(as_dict(open_json(row.get("extra"))).get(name)))


def _problem(row: Fields, name: str) -> str | None:
    """A run's error. LangGraph also raises to pause for a person and to hand over, which is no failure."""
    error = as_text(row.get("error"))
    if error is not None and error.startswith(_NO_FAILURES):
        return None
    return error or (f"{name} has status error" if row.get("status") == "error" else None)


def _answered_call(outputs: Fields) -> str | None:
    """The call a tool's run answers: LangChain gives its result back as a message that names it."""
    for fields in (outputs, as_dict(open_json(outputs.get("output")))):
        for body in (fields, as_dict(fields.get("kwargs")), as_dict(fields.get("data"))):
            if found := as_text(body.get("tool_call_id")):
                return found
    return None


def _model(outputs: Fields, metadata: Fields, asked: Fields, inputs: Fields) -> str | None:
    reported = as_dict(outputs.get("llm_output"))
    texts = (
        as_text(outputs.get("model")),
        as_text(reported.get("model_name")),
        as_text(metadata.get("ls_model_name")),
        *(as_text(place.get(name)) for place in (asked, inputs) for name in ("model", "model_name")),
    )
    return next(filter(None, texts), None)


def _usage(row: Fields, value: JsonValue) -> Usage:
    """A model run's usage, from the first place that has one: it is the same everywhere."""
    outputs = as_dict(value)
    reported = as_dict(outputs.get("llm_output"))
    message = as_dict(outputs.get("message"))
    for counts in (outputs.get("usage_metadata"), outputs.get("usage"), reported.get("token_usage"), reported.get("usage")):
        if (usage := _counts(counts)) != UNKNOWN_USAGE:
            return usage
    if (usage := _message_usage(message or outputs)) != UNKNOWN_USAGE:
        return usage
    if (usage := add_usage(list(_generation_usages(outputs)))) != UNKNOWN_USAGE:
        return usage
    usage = _counts(_extra(row, "metadata").get("usage_metadata"))
    return usage if usage != UNKNOWN_USAGE else _counts({name: row.get(name) for name in ("prompt_tokens", "completion_tokens")})


def _generation_usages(outputs: Fields) -> Iterator[Usage]:
    """One usage for each prompt of the batch; alternatives to one prompt repeat it."""
    for batch in as_list(outputs.get("generations")):
        generation = as_dict(next(iter(as_list(batch)), None)) or as_dict(batch)
        usage = _message_usage(as_dict(generation.get("message")))
        yield usage if usage != UNKNOWN_USAGE else _counts(as_dict(generation.get("generation_info")).get("token_usage"))


def _message_usage(message: Fields) -> Usage:
    body = as_dict(message.get("kwargs")) or as_dict(message.get("data")) or message
    response = as_dict(body.get("response_metadata"))
    for counts in (body.get("usage_metadata"), response.get("token_usage"), response.get("usage"), response.get("tokenUsage")):
        if (usage := _counts(counts)) != UNKNOWN_USAGE:
            return usage
    return UNKNOWN_USAGE


def _counts(value: JsonValue) -> Usage:
    counts = as_dict(open_json(value))
    details = [as_dict(counts.get(name)) for name in ("input_token_details", "input_tokens_details", "prompt_tokens_details")]
    cached = [as_int(place.get(name)) for place in details for name in ("cache_read", "cached_tokens")]
    spelled = {"prompt_tokens": "promptTokens", "completion_tokens": "completionTokens"}
    plain: Fields = {name: counts[other] for name, other in spelled.items() if other in counts}
    known = next((number for number in cached if number is not None), None)
    return read_usage({**counts, **plain} | ({} if known is None else {"cached_tokens": known}))


def _metadata(rows: Sequence[Fields]) -> Fields:
    """Metadata of the trace's runs, the first run's before those of the runs below it."""
    found: Fields = {}
    for row in rows:
        found = merge_rows(_extra(row, "metadata") or as_dict(open_json(row.get("metadata"))), found)
    return found


def _feedback(run: _Run) -> Iterator[Feedback]:
    for row in run.feedback.values():
        value = row.get("score") if row.get("score") is not None else row.get("value")
        if value is not None:
            yield Feedback(
                as_text(row.get("key")) or "feedback", open_json(value), _judge([_source(row)]), as_text(row.get("comment"))
            )


def _feedback_stats(run: _Run) -> Iterator[Feedback]:
    """Means per key, as runs carry them; a key whose single judgements are there is not told twice."""
    told = {(as_text(row.get("run_id")), as_text(row.get("key"))) for row in run.feedback.values()}
    for identity, row in run.runs.items():
        for key, value in as_dict(open_json(row.get("feedback_stats"))).items():
            stats = as_dict(value)
            labels = as_dict(stats.get("values"))
            mean = stats.get("avg") if stats.get("avg") is not None else next(iter(labels), None) if len(labels) == 1 else None
            if mean is None or (identity, key) in told:
                continue
            comments = [text for text in as_list(stats.get("comments")) if isinstance(text, str) and text]
            yield Feedback(key, open_json(mean), _judge(as_list(stats.get("sources"))), "\n".join(comments) or None)


def _corrections(run: _Run) -> Iterator[Expectation]:
    for row in run.feedback.values():
        if row.get("correction") not in (None, "", {}):
            author = as_dict(open_json(row.get("feedback_source"))).get("user_id")
            yield Expectation(as_text(row.get("key")) or "correction", open_json(row["correction"]), as_text(author))


def _source(row: Fields) -> JsonValue:
    return row.get("feedback_source") or row.get("feedback_source_type")


def _judge(sources: Sequence[JsonValue]) -> Literal["human", "code", "llm_judge"]:
    """Who judged, as far as the sources tell; a person among them outweighs programs."""
    opened = [open_json(source) for source in sources]
    kinds = [_JUDGES.get(str(as_dict(item).get("type") or item)) for item in opened]
    return next((kind for kind in ("human", "llm_judge", "code") if kind in kinds), "code")


def _attributes(root: Fields, metadata: Fields) -> dict[str, str]:
    facts = {key: value for key, value in metadata.items() if not key.startswith(_INTERNAL) and key not in _THREADS}
    runtime = _extra(root, "runtime")
    found = scalar_facts(facts) | {
        "name": as_text(root.get("name")) or "",
        "project": as_text(root.get("session_name")) or "",
        "project_id": as_text(root.get("session_id")) or "",
        "reference_example_id": as_text(root.get("reference_example_id")) or "",
        "sdk": " ".join(filter(None, (as_text(runtime.get("sdk")), as_text(runtime.get("sdk_version"))))),
        "tags": ", ".join(tag for tag in as_list(open_json(root.get("tags"))) if isinstance(tag, str)),
    }
    return {key: value for key, value in found.items() if value}

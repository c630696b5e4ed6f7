"""Langfuse: the export of one trace with its observations from the UI or the API, and rows of the bulk export.

A bulk row (observations, enriched observations_v2, traces, scores; field names from langfuse.com's "Blob storage export field
reference") is a part of the run that its trace_id names. Keys are snake_case there, camelCase in the UI; in rows that were CSV
every value is text. The UI writes observations twice, the inner copy without input and output, in no order. Only generations are
model calls: what agents and spans repeat of them is not read again.

Also owns what `langsmith` shares: messages in the shapes frameworks log them in (OpenAI chat and Responses, Anthropic, Gemini,
LangChain, pydantic-ai, Vercel, AutoGen), and joining the steps of a run into one conversation.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import as_int, unwrap
from pipelines.traces.model import Expectation, Feedback, Message, Outcome, Role, Source, ToolCall, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
    ROLES,
    add_usage,
    as_dict,
    as_list,
    as_text,
    read_content,
    read_tool_call,
    read_tools,
)
from pipelines.traces.timestamps import read_time

Fields = dict[str, JsonValue]

_OBSERVATIONS = frozenset(
    ("SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
)
_SCORE_SOURCES: dict[str, Literal["human", "code", "llm_judge"]] = {"ANNOTATION": "human", "API": "code", "EVAL": "llm_judge"}
_TRACE_MARKS = ("bookmarked", "public", "release", "session_id", "user_id", "environment", "project_id")
_TRACE_FIELDS = ("user_id", "session_id", "trace_name", "release", "environment", "tags")
"""What an enriched observation row says of its trace."""
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_KEPT_CHARS = 1000
"""Of metadata: a longer text is content, not a fact about the run."""


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
    return int(number) if number.is_integer() and abs(number) < _MAX_COUNT else number


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


# Shared with langsmith: rows, steps and the conversation they tell.

MAX_DEPTH = 100
"""Deeper JSON than this is refused: to write it again, orjson goes 254 levels deep and no further."""
_MAX_SHELLS = 6
_MAX_COUNT = 1 << 50
"""No run has used so many tokens; sums of such counts would leave 64 bits."""
UNKNOWN_USAGE = Usage()
_CUT_OFF = ("length", "max_tokens", "MAX_TOKENS", "max_output_tokens")


_EMPTY: tuple[JsonValue, ...] = ("", [], {}, "null", "[]", "{}", '""')
"""Values that say nothing; as JSON text where rows were CSV."""


def merge_rows(old: Fields, new: Fields) -> Fields:
    """The newer row over the older one; an empty value takes nothing away."""
    return {**old, **{key: value for key, value in new.items() if value is not None and value not in _EMPTY}}


def open_json(value: JsonValue) -> JsonValue:
    """The value with JSON inside strings undone. Raises ValueError when it is nested too deeply to be stored."""
    opened = unwrap(value)
    if not isinstance(opened, dict | list):
        return opened
    level: list[JsonValue] = [opened]
    for _ in range(MAX_DEPTH):
        below = [item for item in level if isinstance(item, dict | list)]
        level = [inner for item in below for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return opened
    raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def scalar_facts(metadata: Fields) -> dict[str, str]:
    """The metadata that are plain facts, as text."""
    found: dict[str, str] = {}
    for key, value in metadata.items():
        if isinstance(value, str | int | float) and value != "" and len(text := str(value)) <= _KEPT_CHARS:
            found[key] = str(value).lower() if isinstance(value, bool) else text
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: a call of the model, of a tool, or whatever holds them."""

    id: str
    parent: str | None
    order: tuple[str, int]
    """Sorts the steps of one parent."""
    kind: Literal["model", "tool", "other"]
    name: str
    inputs: JsonValue
    outputs: JsonValue
    problem: str | None = None
    """What it failed with; None when it did not fail."""
    usage: Usage = UNKNOWN_USAGE
    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    call_id: str | None = None
    """Of a tool's step: the call it answers, where that was recorded."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the steps of a run say together."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    usage: Usage
    model: str | None
    error: str | None
    attributes: dict[str, str]


def tell(steps: Sequence[Step], outer: Mapping[str, JsonValue]) -> Told:
    """One conversation out of a run's steps; `outer` holds the run's own input and output, for what no model call shows.

    A run may hold several conversations (sub-agents, judges, retries). Told is the longest that no tool began; a model call that
    wraps other model calls repeats them and is passed over, in messages and in usage.
    """
    ordered = tree_order(steps)
    parents = {step.id: step.parent for step in ordered}
    calls = [(step, _model_call(step)) for step in ordered if step.kind == "model"]
    wrappers = _ancestors([step.id for step, call in calls if call.answered], parents)
    beneath = _beneath_tools(ordered)
    threads = _join([(step, call, step.id in beneath) for step, call in calls if step.id not in wrappers])
    # The later one of equals: a retry replaces what it repeats.
    thread = max(reversed(threads), key=lambda t: (not t.beneath_tool, len(t.messages)), default=None)
    spoken = thread.steps if thread else []
    payers = _ancestors([step.id for step, _ in calls if step.usage != UNKNOWN_USAGE], parents)
    root = next((step for step in ordered if step.parent not in parents), None)
    first, last = _outer_turns(root, outer)
    messages = _answer_calls(thread.messages, [step for step in ordered if step.kind == "tool"]) if thread else [*first, *last]
    if thread and not any(message.role is Role.USER for message in messages):
        messages = [*first, *(messages or last)]
    elif thread and not any(message.role is Role.SYSTEM for message in messages):
        messages = [*(message for message in first if message.role is Role.SYSTEM), *messages]
    return Told(
        messages=tuple(messages),
        tools=tuple({spec.name: spec for step in reversed(spoken) for spec in step.tools}.values()),
        usage=_total_usage([step.usage for step, _ in calls if step.id not in payers]),
        model=next((step.model for step in reversed(spoken) if step.model), None)
        or next((s.model for s, _ in calls if s.model), None),
        error=_error(ordered),
        attributes=_told_attributes(ordered, spoken, len(threads)),
    )


def tree_order(steps: Sequence[Step]) -> list[Step]:
    """Steps depth first, those of one parent in their order. Orphans are roots; so is the first of a circle of parents."""
    known = {step.id for step in steps}
    below: dict[str | None, list[Step]] = defaultdict(list)
    for step in sorted(steps, key=lambda s: s.order):
        below[step.parent if step.parent in known and step.parent != step.id else None].append(step)
    found: dict[str, Step] = {}
    for start in (*below[None], *sorted(steps, key=lambda s: s.order)):
        waiting = [start]
        while waiting:
            step = waiting.pop()
            if step.id not in found:
                found[step.id] = step
                waiting.extend(reversed(below.get(step.id, [])))
    return list(found.values())


def _ancestors(ids: Iterable[str], parents: Mapping[str, str | None]) -> set[str]:
    found: set[str] = set()
    for start in ids:
        above = parents.get(start)
        while above is not None and above in parents and above not in found and above != start:
            found.add(above)
            above = parents[above]
    return found


def _beneath_tools(ordered: Sequence[Step]) -> set[str]:
    """Steps that a tool began, as a sub-agent's are."""
    tools = {step.id for step in ordered if step.kind == "tool"}
    found: set[str] = set()
    for step in ordered:
        if step.parent in tools or step.parent in found:
            found.add(step.id)
    return found


def _total_usage(usages: Sequence[Usage]) -> Usage:
    plausible = [
        Usage(*(count if count is not None and 0 <= count < _MAX_COUNT else None for count in counts))
        for counts in ((usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) for usage in usages)
    ]
    return add_usage(plausible)


def _error(ordered: Sequence[Step]) -> str | None:
    """Why the run failed: its outermost step did, or the last of its model calls. Calls that failed before were tried again."""
    roots = [step.problem for step in ordered if step.parent is None and step.kind == "other"]
    last = [step.problem for step in ordered if step.kind == "model"][-1:]
    return next((problem for problem in (*roots, *last) if problem), None)


def _told_attributes(ordered: Sequence[Step], spoken: Sequence[Step], num_conversations: int) -> dict[str, str]:
    reasons = [reason for step in spoken if (reason := finish_reason(step.outputs))]
    failed = [f"{step.name}: {step.problem}" for step in ordered if step.kind == "tool" and step.problem]
    found = {
        "finish_reason": reasons[-1] if reasons else "",
        "num_truncated_turns": str(sum(reason in _CUT_OFF for reason in reasons) or ""),
        "failed_tools": "; ".join(failed),
        "num_conversations": str(num_conversations) if num_conversations > 1 else "",
    }
    return {key: value for key, value in found.items() if value}


def _outer_turns(root: Step | None, outer: Mapping[str, JsonValue]) -> tuple[list[Message], list[Message]]:
    inputs = outer.get("input") or (root.inputs if root else None)
    outputs = outer.get("output") or (root.outputs if root else None)
    asked, answered = read_turns(inputs, Role.USER), read_turns(outputs, Role.ASSISTANT)
    if answered[: len(asked)] == asked:
        answered = answered[len(asked) :]
    return asked or _as_text_turn(inputs, Role.USER), answered or _as_text_turn(outputs, Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class _Call:
    asked: list[Message]
    """Messages the model was sent; empty when they are in no known shape."""
    answered: list[Message]
    said: list[Message]
    """The input as one text, for when it is in no known shape."""


def _model_call(step: Step) -> _Call:
    asked, answered = read_turns(step.inputs, Role.USER), read_turns(step.outputs, Role.ASSISTANT)
    if asked and len(answered) > len(asked) and answered[: len(asked)] == asked:
        answered = answered[len(asked) :]
    systems = [message for message in answered if message.role is Role.SYSTEM]
    if systems and asked and not any(message.role is Role.SYSTEM for message in asked):
        asked = [*systems, *asked]
    answered = [message for message in answered if message.role is not Role.SYSTEM]
    return _Call(asked, answered or _as_text_turn(step.outputs, Role.ASSISTANT), _as_text_turn(step.inputs, Role.USER))


def _as_text_turn(value: JsonValue, role: Role) -> list[Message]:
    """What is in no message shape, as one message: text (cut at "system:", "user:" lines, as AutoGen writes it), or the JSON."""
    opened = open_json(value)
    if isinstance(opened, dict) and len(opened) == 1 and isinstance(only := next(iter(opened.values())), str):
        opened = value = only
    if opened is None or opened in ("", [], {}):
        return []
    text = value if isinstance(value, str) and not isinstance(opened, str) else opened
    content = text if isinstance(text, str) else to_json(text).decode()
    return (_flat_turns(content) if role is Role.USER else []) or [Message(role, content)]


_SPEAKER = re.compile(r"^(system|developer|user|human|assistant|ai|tool|function): ?", re.IGNORECASE | re.MULTILINE)


def _flat_turns(text: str) -> list[Message]:
    found = list(_SPEAKER.finditer(text))
    if not found or found[0].start() > 0:
        return []
    ends = [*(mark.start() for mark in found[1:]), len(text)]
    return [Message(_ROLES[mark[1].lower()], text[mark.end() : end].strip()) for mark, end in zip(found, ends, strict=True)]


@dataclass(slots=True)
class _Thread:
    """A conversation as far as the model calls have told it."""

    beneath_tool: bool
    messages: list[Message] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """What each message but system prompts says, to know it again when it is sent again."""
    systems: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def add(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)
        self.keys.extend(_key(message) for message in messages if message.role is not Role.SYSTEM)
        self.systems.extend(message.content or "" for message in messages if message.role is Role.SYSTEM)


def _join(calls: Sequence[tuple[Step, _Call, bool]]) -> list[_Thread]:
    """Conversations out of model calls, each of which was sent all of its history, the new part only, or nothing readable."""
    threads: list[_Thread] = []
    ends: dict[str, list[_Thread]] = defaultdict(list)
    latest: dict[str | None, _Thread] = {}
    for step, call, beneath in calls:
        thread, num_known = _continued(call, ends, latest.get(step.parent))
        asked = call.asked
        if thread is None:
            thread = _Thread(beneath)
            threads.append(thread)
            asked = asked or call.said
        new = asked if not thread.keys else [message for message in asked if message.role is not Role.SYSTEM][num_known:]
        thread.add([*new, *call.answered])
        thread.steps.append(step)
        latest[step.parent] = thread
        if thread.keys:
            ends[thread.keys[-1]].append(thread)
    return threads


def _continued(call: _Call, ends: Mapping[str, list[_Thread]], latest: _Thread | None) -> tuple[_Thread | None, int]:
    """The conversation a call goes on with, and how many of its messages that one has already."""
    asked = [message for message in call.asked if message.role is not Role.SYSTEM]
    if not asked:
        return (None if call.asked else latest), 0
    systems = [message.content or "" for message in call.asked if message.role is Role.SYSTEM]
    keys = [_key(message) for message in asked]
    for num_known in range(len(keys), 0, -1):
        for thread in reversed(ends.get(keys[num_known - 1], [])[-8:]):
            if _goes_on(thread, keys, num_known, not systems or systems == thread.systems):
                return thread, num_known
    return (latest if all(message.role is Role.TOOL for message in asked) else None), 0


def _goes_on(thread: _Thread, keys: list[str], num_known: int, same_system: bool) -> bool:
    """Whether the thread is all of the history, or its end is in a shortened one. Another agent may head the same turns."""
    if not thread.keys or thread.keys[-1] != keys[num_known - 1]:
        return False
    if len(thread.keys) == num_known and thread.keys == keys[:num_known]:
        return same_system or any(key.startswith(Role.ASSISTANT) for key in thread.keys)
    is_answer = thread.keys[-1].startswith(Role.ASSISTANT)
    return same_system and is_answer and (num_known == 1 or thread.keys[-2:-1] == [keys[num_known - 2]])


def _key(message: Message) -> str:
    calls = [[call.name, call.raw_arguments if call.arguments is None else call.arguments] for call in message.tool_calls]
    return f"{message.role}{json.dumps([(message.content or '').strip(), calls], sort_keys=True)}"


def _answer_calls(messages: Sequence[Message], tools: Sequence[Step]) -> list[Message]:
    """Messages with the results that only the tools' own steps hold, each behind its call."""
    answered = {message.tool_call_id for message in messages if message.role is Role.TOOL}
    told: list[Message] = []
    unanswered: dict[int, list[ToolCall]] = {}
    for index, message in enumerate(messages):
        is_followed = messages[index + 1 : index + 2] and messages[index + 1].role is Role.TOOL
        calls = [call for call in message.tool_calls if (call.id not in answered if call.id else not is_followed)]
        if calls:
            unanswered[index] = calls
    results = _pair([(i, j, call) for i, calls in unanswered.items() for j, call in enumerate(calls)], tools)
    waiting: list[Message] = []
    for index, message in enumerate(messages):
        if message.role is not Role.TOOL:
            told.extend(waiting)
            waiting = []
        told.append(message)
        for j, call in enumerate(unanswered.get(index, ())):
            if (step := results.get((index, j))) is not None:
                waiting.append(Message(Role.TOOL, _result_of(step), tool_call_id=call.id or step.call_id))
    return [*told, *waiting]


def _pair(calls: Sequence[tuple[int, int, ToolCall]], tools: Sequence[Step]) -> dict[tuple[int, int], Step]:
    """The step that answers each call: by id, else by name and arguments, else by name if as many are left of both."""
    found: dict[tuple[int, int], Step] = {}
    taken: set[str] = set()
    for mark_call, mark_step in _MARKS:
        steps: dict[str | None, list[Step]] = defaultdict(list)
        places: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        for step in tools:
            if step.id not in taken:
                steps[mark_step(step)].append(step)
        for i, j, call in calls:
            if (i, j) not in found:
                places[mark_call(call)].append((i, j))
        for mark, wanted in places.items():
            have = steps.get(mark, []) if mark is not None else []
            if mark_call is not _MARKS[-1][0] or len(have) == len(wanted):
                found.update(zip(wanted, have, strict=False))
                taken.update(step.id for step in have[: len(wanted)])
    return found


def _call_mark(name: str, arguments: JsonValue) -> str:
    return json.dumps([name, arguments], sort_keys=True)


def _step_mark(step: Step) -> str:
    """Name and arguments of a tool's step, which some frameworks put one level down."""
    arguments = open_json(step.inputs)
    if isinstance(arguments, dict) and len(arguments) == 1:
        arguments = next(
            (inner for key in ("input", "arguments", "args") if isinstance(inner := arguments.get(key), dict)), arguments
        )
    return _call_mark(step.name, arguments)


_MARKS: tuple[tuple[Callable[[ToolCall], str | None], Callable[[Step], str | None]], ...] = (
    (lambda call: call.id, lambda step: step.call_id),
    (lambda call: _call_mark(call.name, call.arguments), _step_mark),
    (lambda call: call.name, lambda step: step.name),
)


def _result_of(step: Step) -> str | None:
    return result_text(step.outputs) or step.problem


# Messages in the shapes that frameworks log them in.

_ROLES = {
    **ROLES,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "humanmessage": Role.USER,
    "usermessage": Role.USER,
    "aimessage": Role.ASSISTANT,
    "aimessagechunk": Role.ASSISTANT,
    "assistantmessage": Role.ASSISTANT,
    "systemmessage": Role.SYSTEM,
    "toolmessage": Role.TOOL,
    "functionmessage": Role.TOOL,
    "functionexecutionresultmessage": Role.TOOL,
}
"""OpenAI's roles, and the class names and types of LangChain and AutoGen."""
_SHELLS = (
    "messages",
    "choices",
    "generations",
    "candidates",
    "contents",
    "message",
    "output",
    "outputs",
    "input",
    "inputs",
    "content",
)
"""Fields of requests, responses and state objects below which messages stand."""
_CALL_TYPES = ("tool_use", "tool_call", "tool-call", "function_call", "custom_tool_call")
_RESULT_TYPES = (
    "tool_result",
    "tool_call_response",
    "tool-result",
    "function_call_output",
    "custom_tool_call_output",
)
_THOUGHT_TYPES = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "thought")
_TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "image", "image_url", "input_image", "document", "file", "blob")
_BLOCK_TYPES = (*_TEXT_TYPES, *_CALL_TYPES, *_RESULT_TYPES, *_THOUGHT_TYPES)
_PYDANTIC_ROLES = {"system-prompt": Role.SYSTEM, "user-prompt": Role.USER, "retry-prompt": Role.USER, "text": Role.ASSISTANT}


def read_turns(value: JsonValue, role: Role, *, depth: int = 0) -> list[Message]:
    """Messages of a request or response; empty when it is in no known shape. `role` speaks what names no speaker."""
    opened = open_json(value)
    if depth > _MAX_SHELLS:
        return []
    if isinstance(opened, list):
        return _listed(opened, role, depth)
    fields = as_dict(opened)
    if (turns := _one(fields)) is not None:
        return turns
    for name in _SHELLS:
        if isinstance(open_json(fields.get(name)), dict | list) and (turns := read_turns(fields[name], role, depth=depth + 1)):
            return [*_system_of(fields, turns), *turns]
    if isinstance(text := fields.get("text"), str) and ("generation_info" in fields or "finish_reason" in fields):
        return [Message(Role.ASSISTANT, text)]
    prompt = next(iter(as_list(fields.get("prompts"))), fields.get("prompt"))
    if isinstance(prompt, str) and role is Role.USER:
        return [*_system_of(fields, []), *(_flat_turns(prompt) or [Message(Role.USER, prompt)])]
    return []


def _system_of(fields: Fields, turns: Sequence[Message]) -> list[Message]:
    """The system prompt that Anthropic, Gemini and the Responses API take beside the messages."""
    texts = (_system_text(fields.get(name)) for name in ("system", "instructions", "system_instruction"))
    text = next(filter(None, texts), None)
    has_one = any(message.role is Role.SYSTEM for message in turns)
    return [Message(Role.SYSTEM, text)] if text and not has_one else []


def _system_text(value: JsonValue) -> str | None:
    parts = as_dict(value).get("parts", value)
    return read_content(parts) if isinstance(parts, str) or _are_blocks(parts) else None


def _listed(items: list[JsonValue], role: Role, depth: int) -> list[Message]:
    if _are_blocks(items) and not any(_is_item(as_dict(item)) for item in items):
        return _compose(role, {"content": items})
    first = as_dict(items[0]) if items else {}
    if items and (
        isinstance(items[0], list) or (_one(first) is None and ("message" in first or "text" in first or "content" in first))
    ):
        return read_turns(items[0], role, depth=depth + 1)  # batches and alternatives: the first is what the run went on with
    found: list[Message] = []
    is_open = False
    for item in map(as_dict, map(open_json, items)):
        turns = (_one(item) or []) if _spec_of_turn(item) is None else []
        kind = item.get("type")
        if is_open and kind in _CALL_TYPES and turns:
            found[-1] = replace(found[-1], tool_calls=found[-1].tool_calls + turns[0].tool_calls)
        else:
            found.extend(turns)
            is_open = _is_item(item) and bool(found) and found[-1].role is Role.ASSISTANT
    return found


def _is_item(fields: Fields) -> bool:
    """An item of the Responses API: what is one message elsewhere stands there as several."""
    return fields.get("type") in (
        "message",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
    )


def _are_blocks(value: JsonValue) -> bool:
    items = as_list(value)
    return bool(items) and all(as_dict(item).get("type") in _BLOCK_TYPES and "role" not in as_dict(item) for item in items)


def _spec_of_turn(fields: Fields) -> JsonValue:
    """A tool's definition that Langfuse's LangChain callback appends to the messages in the role of a tool."""
    content = as_dict(fields.get("content"))
    is_spec = isinstance(content.get("function"), dict) or "input_schema" in content or "parameters" in content
    return content if fields.get("role") == "tool" and is_spec and not fields.get("tool_call_id") else None


def _one(fields: Fields) -> list[Message] | None:
    """The turns in one message, in order; None when it is no message."""
    kind = fields.get("type")
    if fields.get("kind") in ("request", "response") and isinstance(fields.get("parts"), list):
        return _pydantic_turns(as_list(fields["parts"]))
    if "role" not in fields and kind in _CALL_TYPES:
        return [Message(Role.ASSISTANT, None, (_call(fields),))]
    if "role" not in fields and kind in _RESULT_TYPES:
        return [_result(fields)]
    if isinstance(path := fields.get("id"), list) and "lc" in fields and path:
        body = as_dict(fields.get("kwargs"))
        name = str(body.get("role") if path[-1] == "ChatMessage" else path[-1])
    elif "role" in fields:
        body, name = fields, str(fields["role"])
    else:
        body, name = as_dict(fields.get("data")) or fields, str(kind)
        if "content" not in body:
            return None
    role = _ROLES.get(name.lower())
    return _compose(role, body) if role else None


def _compose(role: Role, body: Fields) -> list[Message]:
    """A message out of its content and calls; results among the content blocks are messages of tools before it."""
    content = body.get("content")
    blocks = content if isinstance(content, list) else as_list(body.get("parts"))
    if not blocks and isinstance(content, dict) and content.get("type") in _BLOCK_TYPES:
        blocks = [content]
    read = [_block(block) for block in blocks]
    results = [item for item in read if isinstance(item, Message)]
    texts = [item for item in read if isinstance(item, str)]
    calls = _calls(body, [item for item in read if isinstance(item, ToolCall)])
    text = "\n".join(texts) or None if blocks else read_content(content)
    if results and not texts and not calls:
        return results
    call_id = next((found for key in ("tool_call_id", "call_id", "toolCallId") if (found := as_text(body.get(key)))), None)
    return [*results, Message(role, text, calls, call_id if role is Role.TOOL else None)]


def _calls(body: Fields, blocks: list[ToolCall]) -> tuple[ToolCall, ...]:
    """A message's calls, each once: LangChain writes them up to three times, the raw string of arguments only in one place."""
    extra = as_dict(body.get("additional_kwargs"))
    legacy = [call for call in (body.get("function_call"), extra.get("function_call")) if isinstance(call, dict)]
    places = (extra.get("tool_calls"), body.get("tool_calls"), body.get("invalid_tool_calls"))
    items = [as_dict(open_json(item)) for place in places for item in as_list(open_json(place))]
    found: dict[tuple[str | None, str], ToolCall] = {}
    for call in (*map(_call, [item for item in items if item]), *map(_call, legacy), *blocks):
        mark = (call.id, "" if call.id else _call_mark(call.name, call.arguments or call.raw_arguments))
        found.setdefault(mark, call)
    return tuple(found.values())


def _block(block: JsonValue) -> str | ToolCall | Message | None:
    """A content block: text, a call, a result, or nothing where it is the model's reasoning."""
    fields = as_dict(block)
    kind = fields.get("type")
    if kind in _THOUGHT_TYPES or fields.get("thought") is True:
        return None
    if kind in _CALL_TYPES or (kind is None and "name" in fields and "arguments" in fields):
        return _call(fields)
    if kind in _RESULT_TYPES or (kind is None and "call_id" in fields and "content" in fields):
        return _result(fields)
    for name in ("functionCall", "function_call"):
        if isinstance(fields.get(name), dict):
            return _call(as_dict(fields[name]))
    for name in ("functionResponse", "function_response"):
        if isinstance(fields.get(name), dict):
            return _result(as_dict(fields[name]))
    return as_text(fields.get("refusal")) or read_content([block])


def _call(fields: Fields) -> ToolCall:
    own = next((text for name in ("call_id", "id", "toolCallId", "tool_call_id") if (text := as_text(fields.get(name)))), None)
    function = as_dict(fields.get("function")) or fields
    name = next((text for key in ("name", "toolName", "tool_name") if (text := as_text(function.get(key)))), None)
    arguments = next((function[key] for key in ("arguments", "input", "args") if function.get(key) is not None), None)
    if isinstance(arguments, str) and arguments.count("{") + arguments.count("[") > MAX_DEPTH:
        try:
            is_fit = not isinstance(open_json(arguments.strip()), str)
        except ValueError:
            is_fit = False
        if not is_fit:
            return ToolCall(name or "", None, arguments, own)
    return read_tool_call({"id": own, "name": name, "arguments": arguments})


def _result(fields: Fields) -> Message:
    names = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "id")
    own = next((text for name in names if (text := as_text(fields.get(name)))), None)
    value = next((fields[key] for key in ("content", "result", "output", "response") if fields.get(key) is not None), None)
    return Message(Role.TOOL, result_text(value), tool_call_id=own)


def _pydantic_turns(items: Sequence[JsonValue]) -> list[Message]:
    """pydantic-ai's own messages: requests hold prompts and results, responses hold text and calls."""
    found: list[Message] = []
    calls: list[ToolCall] = []
    for part in map(as_dict, items):
        kind = str(part.get("part_kind"))
        if kind == "tool-call":
            calls.append(_call(part))
        elif kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
            found.append(_result(part))
        elif kind in _PYDANTIC_ROLES:
            found.append(Message(_PYDANTIC_ROLES[kind], read_content(part.get("content"))))
    if calls:
        texts = [message.content or "" for message in found if message.role is Role.ASSISTANT]
        return [Message(Role.ASSISTANT, "\n".join(texts) or None, tuple(calls))]
    return found


def result_text(value: JsonValue) -> str | None:
    """What a tool gave back: the text inside MCP's, LangChain's and other wrappings, else the value as it came."""
    for _ in range(_MAX_SHELLS):
        opened = open_json(value)
        if _are_blocks(opened):
            return read_content(opened)
        fields = as_dict(opened)
        if "lc" in fields or "data" in fields or "role" in fields or fields.get("type") in ("tool", "text"):
            body = as_dict(fields.get("kwargs")) or as_dict(fields.get("data")) or fields
            inner = body.get("content", body.get("value", body.get("text")))
        elif _are_blocks(fields.get("content")):
            inner = fields["content"]
        else:
            inner = next((fields[key] for key in ("output", "result", "content") if len(fields) == 1 and key in fields), None)
        if inner is None:
            break
        value = inner
    opened = open_json(value)
    if isinstance(value, str):
        return opened if isinstance(opened, str) else value
    return None if value is None else to_json(value).decode()


def finish_reason(value: JsonValue, *, depth: int = 0) -> str | None:
    """Why the model stopped, where a response says so."""
    opened = open_json(value)
    fields = as_dict(opened[0] if isinstance(opened, list) and opened and not isinstance(opened[0], list) else opened)
    if isinstance(opened, list) and opened and isinstance(opened[0], list):
        return finish_reason(opened[0], depth=depth + 1) if depth < _MAX_SHELLS else None
    for name in ("finish_reason", "stop_reason", "finishReason"):
        if text := as_text(fields.get(name)):
            return text
    below = (
        "choices",
        "generations",
        "candidates",
        "generation_info",
        "message",
        "kwargs",
        "response_metadata",
        "messages",
        "output",
    )
    reasons = (finish_reason(fields[name], depth=depth + 1) for name in below if depth < _MAX_SHELLS and name in fields)
    return next(filter(None, reasons), None) or as_text(as_dict(fields.get("incomplete_details")).get("reason"))


def read_specs(*places: JsonValue) -> tuple[ToolSpec, ...]:
    """Tools out of every place that may list them: lists, or objects from name to definition; each tool once."""
    found: dict[str, ToolSpec] = {}
    for place in map(open_json, places):
        items = (
            [{"name": name, **as_dict(open_json(item))} for name, item in place.items()]
            if isinstance(place, dict)
            else as_list(place)
        )
        for item in map(as_dict, map(open_json, items)):
            outer = as_dict(_spec_of_turn(item)) or item
            inner = as_dict(outer.get("function")) or outer
            names = ("parameters", "input_schema", "parameters_json_schema", "inputSchema", "jsonSchema")
            schema = next((as_dict(open_json(inner.get(name))) for name in names if inner.get(name)), {})
            is_spec = "role" not in inner and (schema or "description" in inner or outer is not inner)
            for spec in read_tools([{**inner, "parameters": schema}]) if is_spec else ():
                found.setdefault(spec.name, spec)
    return tuple(found.values())

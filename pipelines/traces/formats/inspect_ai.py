"""Inspect AI eval logs in JSON: a log with its samples, or a sample alone (as `.eval` archives hold them).

Field names as in `inspect_ai/log/_log.py`, `model/_chat_message.py`, `tool/_tool_call.py` and the manual's page on log files.
Each sample is a run; a sample that stands twice in a file counts as last written (a log is rewritten when resumed or edited).

A call names its tool in `function` and has its arguments as an object; where they could not be parsed, the text the model wrote
stands in `parse_error`. The model is shown a failed tool's error message, so that is the result's content. Long texts may stand
in the sample's `attachments`. Tools stand only in model events. `model_usage` counts graders too: the evaluated model's entry
counts, where it has one. Scores stay as they are (C, I, P, N or anything else) and decide no outcome: what is correct depends on
the scorer. A limit that ended the sample is its exit status (`message_limit`). The log's revision is the task's code, not what
the agent worked on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import digest, to_json
from pipelines.traces.model import Feedback, Message, Outcome, Role, Source, ToolCall, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
    ROLES,
    add_usage,
    as_dict,
    as_list,
    as_text,
    read_content,
    read_message,
    read_tool_call,
    read_tools,
    read_usage,
)
from pipelines.traces.timestamps import read_time

Fields = dict[str, JsonValue]

_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
_UNPARSED = re.compile(r"Error parsing the following tool call arguments:\n\n(.*)\n\nError details: ", re.DOTALL)
_NO_TEXT = frozenset({"reasoning", "data"})
"""Content parts that are no message: reasoning, and what a provider wants back."""
_MAX_COUNT = 1 << 40
"""No run has so many tokens; a larger count is damage."""


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    return 2 if _is_log(fields) or _is_sample(fields) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """Each sample of a log, with what the log says of all of them. Raises ValueError for a log without samples."""
    log = as_dict(record)
    if not _is_log(log):
        return []
    samples = [as_dict(sample) for sample in as_list(log.get("samples"))]
    if not samples:
        error = as_text(as_dict(log.get("error")).get("message"))
        raise ValueError(f"the log (status {log.get('status')!r}) has no samples" + (f": {error}" if error else ""))
    header: Fields = {"eval": log.get("eval"), "results": log.get("results")}
    return [(_key(as_dict(log.get("eval")), sample), {**header, "sample": sample}) for sample in samples]


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    part = as_dict(parts[-1])
    return _read(as_dict(part.get("sample")), as_dict(part.get("eval")), as_dict(part.get("results")), source)


def parse(record: JsonValue, source: Source) -> Trace:
    """A sample alone, or the only one of a log."""
    found = parts(record)
    if len(found) > 1:
        raise ValueError(f"the log has {len(found)} samples; each is a run of its own")
    return parse_parts([found[0][1]], source) if found else _read(as_dict(record), {}, {}, source)


def _read(sample: Fields, spec: Fields, results: Fields, source: Source) -> Trace:
    try:
        return _parse(sample, spec, results, source)
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def _is_log(fields: Fields) -> bool:
    spec = as_dict(fields.get("eval"))
    return (
        "task" in spec and "model" in spec and ("eval_id" in spec or "run_id" in spec or "task_id" in spec) and "status" in fields
    )


def _is_sample(fields: Fields) -> bool:
    has_all = all(name in fields for name in ("id", "epoch", "input", "target", "output"))
    return has_all and isinstance(fields.get("messages"), list) and isinstance(fields.get("output"), dict)


def _key(spec: Fields, sample: Fields) -> str:
    log = as_text(spec.get("eval_id")) or "/".join(str(spec.get(name)) for name in ("run_id", "task_id", "created"))
    return f"{log}/{sample.get('id')}/{sample.get('epoch')}"


def _parse(sample: Fields, spec: Fields, results: Fields, source: Source) -> Trace:
    output = as_dict(sample.get("output"))
    error, limit = _error(sample.get("error")), as_dict(sample.get("limit"))
    alone = f"{sample.get('id')}/{sample.get('epoch')}/{digest(sample)[:16]}"
    model = as_text(spec.get("model")) or as_text(output.get("model"))
    started = (sample.get("started_at"), *(as_dict(event).get("timestamp") for event in as_list(sample.get("events"))[:1]))
    duration = sample.get("total_time")
    return Trace(
        id=as_text(sample.get("uuid")) or (_key(spec, sample) if spec else alone),
        messages=_messages(sample, output),
        source=source,
        tools=_tools(sample),
        outcome=Outcome.FAILURE if error is not None or limit else Outcome.UNKNOWN,
        error=error,
        feedback=tuple(_feedback(sample, results)),
        usage=_usage(as_dict(sample.get("model_usage")), output, model),
        model=model,
        started_at=next((time for value in started if (time := read_time(value)) is not None), None),
        duration_s=float(duration) if isinstance(duration, int | float) and duration >= 0 else None,
        attributes=_attributes(sample, spec, limit),
    )


def _error(error: JsonValue) -> str | None:
    if not error:
        return None
    return as_text(as_dict(error).get("message")) or (error if isinstance(error, str) else to_json(error).decode())


def _messages(sample: Fields, output: Fields) -> tuple[Message, ...]:
    items = as_list(sample.get("messages"))
    if not items:
        asked, choice = sample.get("input"), as_dict(next(iter(as_list(output.get("choices"))), None))
        items = [*(asked if isinstance(asked, list) else [{"role": "user", "content": asked}] if asked else [])]
        items += [choice["message"]] if choice.get("message") else []
    attachments = as_dict(sample.get("attachments"))
    return tuple(_message(item, attachments) for item in items)


def _message(item: JsonValue, attachments: Mapping[str, JsonValue]) -> Message:
    fields = as_dict(item)
    if fields.get("role") not in tuple(ROLES):
        return read_message(item)
    error = as_text(as_dict(fields.get("error")).get("message")) or as_text(fields.get("tool_error"))
    content = fields.get("content")
    if isinstance(content, list):
        content = [part for part in content if as_text(as_dict(part).get("type")) not in _NO_TEXT]
    text = read_content(error or content)
    role = ROLES[str(fields["role"])]
    call_id = fields.get("tool_call_id")
    return Message(
        role=role,
        content=_ATTACHMENT.sub(lambda found: as_text(attachments.get(found[1])) or found[0], text) if text else text,
        tool_calls=tuple(_call(as_dict(call)) for call in as_list(fields.get("tool_calls"))),
        tool_call_id=as_text(call_id) if role is Role.TOOL else None,
    )


def _call(call: Fields) -> ToolCall:
    read = read_tool_call({"id": call.get("id"), "name": call.get("function"), "arguments": call.get("arguments")})
    problem = as_text(call.get("parse_error"))
    if problem is None:
        return read
    written = _UNPARSED.search(problem)
    return ToolCall(read.name, None, written[1] if written else read.raw_arguments, read.id)


def _tools(sample: Fields) -> tuple[ToolSpec, ...]:
    """Every tool the model was offered in some turn, as first offered."""
    found: dict[str, ToolSpec] = {}
    for event in map(as_dict, as_list(sample.get("events"))):
        if event.get("event") == "model":
            for tool in read_tools(event.get("tools")):
                found.setdefault(tool.name, tool)
    return tuple(found.values())


def _feedback(sample: Fields, results: Fields) -> Iterator[Feedback]:
    """Scores by name; `score` is the only one of the oldest logs. The log's results say which scorer a name belongs to."""
    scorers = {str(item.get("name")): str(item.get("scorer")) for item in map(as_dict, as_list(results.get("scores")))}
    scores = as_dict(sample.get("scores")) or ({next(iter(scorers), "score"): sample.get("score")} if sample.get("score") else {})
    for name, value in scores.items():
        score = as_dict(value)
        if "value" in score:
            judge = _judge(f"{name} {scorers.get(name, '')}", score)
            yield Feedback(name, score["value"], judge, as_text(score.get("explanation")))


def _judge(names: str, score: Fields) -> Literal["human", "code", "llm_judge"]:
    """A score that was edited by hand carries who did it."""
    edits = [as_dict(as_dict(edit).get("provenance")) for edit in as_list(score.get("history"))]
    if any(edit.get("author") for edit in edits):
        return "human"
    return "llm_judge" if "model_graded" in names else "code"


def _usage(used: Fields, output: Fields, model: str | None) -> Usage:
    entries = [used[model]] if model in used else list(used.values()) or [output.get("usage")]
    return add_usage([_counts(as_dict(entry)) for entry in entries])


def _counts(entry: Fields) -> Usage:
    read = read_usage({"cached_tokens": entry.get("input_tokens_cache_read"), **entry})
    counts = (read.input_tokens, read.output_tokens, read.cached_input_tokens)
    return Usage(*(count if count is not None and 0 <= count < _MAX_COUNT else None for count in counts))


def _attributes(sample: Fields, spec: Fields, limit: Fields) -> dict[str, str]:
    metadata, revision = as_dict(sample.get("metadata")), as_dict(spec.get("revision"))
    choice = as_dict(next(iter(as_list(as_dict(sample.get("output")).get("choices"))), None))
    found: dict[str, JsonValue] = {
        "target": sample.get("target"),
        "task": spec.get("task"),
        "task_version": spec.get("task_version"),
        "task_repository": revision.get("origin"),
        "task_commit": revision.get("commit"),
        "dataset": as_dict(spec.get("dataset")).get("name"),
        "eval_id": spec.get("eval_id"),
        "sample_id": sample.get("id"),
        "epoch": sample.get("epoch"),
        "inspect_version": as_dict(spec.get("packages")).get("inspect_ai"),
        "exit_status": f"{limit.get('type')}_limit" if limit else None,
        "limit": limit.get("limit"),
        "finish_reason": choice.get("stop_reason"),
        "repository": as_text(metadata.get("repo")),
        "base_commit": as_text(metadata.get("base_commit")),
        "failed_tools": "; ".join(_failures(sample)),
    }
    return {
        key: value if isinstance(value, str) else to_json(value).decode()
        for key, value in found.items()
        if value not in (None, "", [], {})
    }


def _failures(sample: Fields) -> Iterator[str]:
    for item in map(as_dict, as_list(sample.get("messages"))):
        if problem := as_text(as_dict(item.get("error")).get("message")):
            yield f"{as_text(item.get('function')) or 'tool'}: {problem}"

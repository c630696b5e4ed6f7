"""OpenAI chat completions as people log them.

Reads request/response pairs (flat, or under request/response, body or kwargs), rows of plain `messages`, bare message lists, lone
responses and streamed chunks. Beside them a row may carry `feedback` and `expectations` (lists of objects with name and value),
`conversation_id`, `user` and `id`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import digest, to_json
from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Expectation, Feedback, Message, Outcome, Source, Trace
from pipelines.traces.openai_messages import (
    as_dict,
    as_list,
    as_text,
    is_message_list,
    read_message,
    read_messages,
    read_tools,
    read_usage,
)
from pipelines.traces.timestamps import read_time

CHUNK = "chat.completion.chunk"
_JUDGES: dict[str, Literal["human", "code", "llm_judge"]] = {"human": "human", "code": "code", "llm_judge": "llm_judge"}


def match(record: JsonValue) -> int:
    if is_message_list(record):
        return 1
    fields = as_dict(record)
    if fields.get("object") in (CHUNK, "chat.completion"):
        return 2
    request, response = _request(fields), _response(fields)
    return 1 if isinstance(request.get("messages"), list) or isinstance(response.get("choices"), list) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    fields: dict[str, JsonValue] = {"messages": record} if isinstance(record, list) else as_dict(record)
    request, response = _request(fields), _response(fields)
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    messages = read_messages(request.get("messages") or [])
    error = _error(fields, response)
    metadata = {**as_dict(request.get("metadata")), **as_dict(fields.get("metadata"))}
    return Trace(
        id=as_text(fields.get("id")) or as_text(fields.get("request_id")) or as_text(response.get("id")) or digest(record)[:32],
        messages=(*messages, *_answer(choice, messages)),
        source=source,
        tools=read_tools(request.get("tools") or request.get("functions") or fields.get("tools")),
        outcome=Outcome.FAILURE if error else Outcome.UNKNOWN,
        error=error,
        feedback=read_feedback(fields.get("feedback")),
        expectations=read_expectations(fields.get("expectations")),
        usage=read_usage(response.get("usage")),
        model=as_text(response.get("model")) or as_text(request.get("model")),
        conversation_id=_first_text(fields, metadata, "conversation_id", "session_id", "thread_id"),
        user=_first_text(fields, {**metadata, "user": request.get("user")}, "user", "user_id"),
        started_at=_started_at(fields, response),
        attributes=_attributes(fields, choice),
    )


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """A streamed chunk belongs to the completion of its id; every other record is a run of its own."""
    fields = as_dict(record)
    return [(str(fields.get("id")), record)] if fields.get("object") == CHUNK else []


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """One run out of the chunks of a streamed completion."""
    return parse({"response": _assemble(list(parts))}, source)


def read_feedback(items: JsonValue) -> tuple[Feedback, ...]:
    fields = [as_dict(item) for item in as_list(items)]
    return tuple(
        Feedback(
            as_text(f.get("name")) or "feedback",
            f["value"],
            _JUDGES.get(str(f.get("source")), "human"),
            as_text(f.get("rationale")),
        )
        for f in fields
        if "value" in f
    )


def read_expectations(items: JsonValue) -> tuple[Expectation, ...]:
    fields = [as_dict(item) for item in as_list(items)]
    return tuple(
        Expectation(as_text(f.get("name")) or "expected", unwrap(f["value"]), as_text(f.get("author")))
        for f in fields
        if "value" in f
    )


def _request(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in ("request", "input", "kwargs"):
        inner = as_dict(unwrap(fields.get(name)))
        inner = as_dict(unwrap(inner.get("body"))) or inner
        if "messages" in inner:
            return inner
    body = as_dict(unwrap(fields.get("body")))
    return body if "messages" in body else fields


def _response(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in ("response", "output", "completion"):
        inner = as_dict(unwrap(fields.get(name)))
        inner = as_dict(unwrap(inner.get("body"))) or inner
        if "choices" in inner or "error" in inner:
            return inner
    return fields if "choices" in fields else {}


def _answer(choice: dict[str, JsonValue], asked: tuple[Message, ...]) -> tuple[Message, ...]:
    """The first choice's message, unless the logger had appended it to the request already."""
    message = as_dict(choice.get("message"))
    if not message:
        return ()
    answer = read_message({"role": "assistant", **message})
    return () if asked and asked[-1] == answer else (answer,)


def _error(fields: dict[str, JsonValue], response: dict[str, JsonValue]) -> str | None:
    error = response.get("error") or fields.get("error")
    if not error:
        return None
    return as_text(as_dict(error).get("message")) or (error if isinstance(error, str) else to_json(error).decode())


def _started_at(fields: dict[str, JsonValue], response: dict[str, JsonValue]) -> datetime | None:
    for value in (fields.get("timestamp"), fields.get("created_at"), fields.get("created"), response.get("created")):
        if (time := read_time(value)) is not None:
            return time.astimezone(UTC)
    return None


def _first_text(fields: dict[str, JsonValue], metadata: dict[str, JsonValue], *names: str) -> str | None:
    return next((text for name in names for place in (fields, metadata) if (text := as_text(place.get(name)))), None)


def _attributes(fields: dict[str, JsonValue], choice: dict[str, JsonValue]) -> dict[str, str]:
    found = {name: text for name in ("workload_id", "client_id", "name") if (text := as_text(fields.get(name)))}
    if reason := as_text(choice.get("finish_reason")):
        found["finish_reason"] = reason
    return found


def _assemble(chunks: list[JsonValue]) -> dict[str, JsonValue]:
    """One response out of streamed chunks: deltas joined, usage of the last chunk that has one (it is repeated, never added)."""
    first = as_dict(chunks[0]) if chunks else {}
    text: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    usage: JsonValue = None
    reason: JsonValue = None
    for chunk in map(as_dict, chunks):
        usage = chunk.get("usage") or usage
        choice = as_dict(next(iter(as_list(chunk.get("choices"))), None))
        reason = choice.get("finish_reason") or reason
        delta = as_dict(choice.get("delta"))
        text.append(as_text(delta.get("content")) or "")
        for part in map(as_dict, as_list(delta.get("tool_calls"))):
            _add_call_part(calls, part)
    called: list[JsonValue] = [
        {"id": c["id"], "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls.values()
    ]
    message: dict[str, JsonValue] = {"role": "assistant", "content": "".join(text) or None, "tool_calls": called}
    choices: list[JsonValue] = [{"message": message, "finish_reason": reason}]
    return {
        "id": first.get("id"),
        "model": first.get("model"),
        "created": first.get("created"),
        "usage": usage,
        "choices": choices,
    }


def _add_call_part(calls: dict[int, dict[str, str]], part: dict[str, JsonValue]) -> None:
    index = part.get("index")
    call = calls.setdefault(index if isinstance(index, int) else 0, {"id": "", "name": "", "arguments": ""})
    function = as_dict(part.get("function"))
    call["id"] = call["id"] or as_text(part.get("id")) or ""
    call["name"] += as_text(function.get("name")) or ""
    call["arguments"] += as_text(function.get("arguments")) or ""

"""MLflow traces as `Trace.to_dict()` gives them (schema 3, and schema 2's field names), AI Gateway traces among them.

The conversation is the chat span that saw most of it: its request's messages and the answer it got. Attribute values are JSON
inside strings. A trace whose state is OK may hold failed spans: those of tools are kept as attributes. Reads dicts only; fetching
is an adapter's work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import as_int, clean_text, unwrap
from pipelines.traces.model import Expectation, Feedback, Message, Outcome, Role, Source, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
    add_usage,
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

_FAILED = {"ERROR", "STATUS_CODE_ERROR", "TRACE_STATUS_ERROR", "2"}
_SOURCE_TYPES: dict[str, Literal["human", "code", "llm_judge"]] = {
    "HUMAN": "human",
    "1": "human",
    "LLM_JUDGE": "llm_judge",
    "AI_JUDGE": "llm_judge",
    "2": "llm_judge",
    "CODE": "code",
    "3": "code",
}
"""AssessmentSource.SourceType by name and by protobuf number."""


@dataclass(frozen=True, slots=True)
class _Span:
    name: str
    kind: str
    failed: bool
    status_message: str
    inputs: JsonValue
    outputs: JsonValue
    attributes: dict[str, JsonValue]
    start: int
    end: int

    @property
    def request(self) -> dict[str, JsonValue]:
        """The chat request among the span's inputs: itself, or one level down."""
        outer = as_dict(self.inputs)
        return next((f for f in (outer, *map(as_dict, outer.values())) if is_message_list(f.get("messages"))), {})

    @property
    def choice(self) -> dict[str, JsonValue]:
        return as_dict(next(iter(as_list(as_dict(self.outputs).get("choices"))), None))


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    info = as_dict(fields.get("info"))
    has_id = "trace_id" in info or "request_id" in info
    return 2 if has_id and isinstance(as_dict(fields.get("data")).get("spans"), list) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    info = as_dict(as_dict(record).get("info"))
    spans = [_read_span(as_dict(item)) for item in as_list(as_dict(as_dict(record).get("data")).get("spans"))]
    metadata = _metadata(info)
    chat = _conversation_span(spans)
    trace_id = as_text(info.get("trace_id")) or as_text(info.get("request_id"))
    if trace_id is None:
        raise ValueError("info has neither trace_id nor request_id")
    failed = str(info.get("state", info.get("status"))) in _FAILED
    return Trace(
        id=trace_id,
        messages=_messages(chat, spans, metadata),
        source=source,
        tools=_tools(chat),
        outcome=Outcome.FAILURE if failed else Outcome.UNKNOWN,
        error=_error(spans) if failed else None,
        feedback=tuple(_feedback(info)),
        expectations=tuple(_expectations(info)),
        usage=_usage(metadata, spans),
        model=_model(chat, spans),
        conversation_id=as_text(metadata.get("mlflow.trace.session")),
        user=_user(metadata, chat),
        started_at=_started_at(info),
        duration_s=_duration_s(info),
        attributes=_attributes(info, metadata, spans),
    )


def _read_span(fields: dict[str, JsonValue]) -> _Span:
    attributes = {key: unwrap(value) for key, value in as_dict(fields.get("attributes")).items()}
    status = as_dict(fields.get("status"))
    code = status.get("code", fields.get("status_code", fields.get("status")))
    return _Span(
        name=as_text(fields.get("name")) or "",
        kind=_plain_string(attributes.get("mlflow.spanType")),
        failed=str(code) in _FAILED,
        status_message=as_text(status.get("message")) or as_text(fields.get("status_message")) or _exception(fields),
        inputs=unwrap(attributes.get("mlflow.spanInputs")),
        outputs=unwrap(attributes.get("mlflow.spanOutputs")),
        attributes=attributes,
        start=as_int(fields.get("start_time_unix_nano", fields.get("start_time"))) or 0,
        end=as_int(fields.get("end_time_unix_nano", fields.get("end_time"))) or 0,
    )


def _conversation_span(spans: list[_Span]) -> _Span | None:
    """The chat span with the longest request; the later one of equals. Order in the file means nothing: spans arrive late."""
    chats = [span for span in spans if span.request]
    return max(chats, key=lambda s: (len(as_list(s.request["messages"])), bool(s.choice), s.start), default=None)


def _messages(chat: _Span | None, spans: list[_Span], metadata: dict[str, JsonValue]) -> tuple[Message, ...]:
    if chat is not None:
        asked = read_messages(chat.request["messages"])
        answer = as_dict(chat.choice.get("message"))
        return (*asked, read_message({"role": "assistant", **answer})) if answer else asked
    root = min(spans, key=lambda s: s.start, default=None)
    inputs = root.inputs if root and root.inputs is not None else unwrap(metadata.get("mlflow.traceInputs"))
    outputs = root.outputs if root and root.outputs is not None else unwrap(metadata.get("mlflow.traceOutputs"))
    turns = ((Role.USER, inputs), (Role.ASSISTANT, outputs))
    return tuple(Message(role, _as_content(value)) for role, value in turns if value is not None)


def _tools(chat: _Span | None) -> tuple[ToolSpec, ...]:
    if chat is None:
        return ()
    return read_tools(chat.request.get("tools") or chat.attributes.get("mlflow.chat.tools"))


def _metadata(info: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return as_dict(info.get("trace_metadata")) or as_dict(info.get("request_metadata"))


def _assessments(info: dict[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Assessments that still hold: a corrected one is kept by MLflow with valid = false."""
    for item in map(as_dict, as_list(info.get("assessments"))):
        if item.get("valid", True) not in (False, "false"):
            yield item


def _feedback(info: dict[str, JsonValue]) -> Iterator[Feedback]:
    for item in _assessments(info):
        feedback = item.get("feedback")
        if not isinstance(feedback, dict) or feedback.get("error"):
            continue  # an error is the judge's failure, no judgement of the run
        kind = str(as_dict(item.get("source")).get("source_type"))
        yield Feedback(
            _assessment_name(item), feedback.get("value"), _SOURCE_TYPES.get(kind, "code"), as_text(item.get("rationale"))
        )


def _expectations(info: dict[str, JsonValue]) -> Iterator[Expectation]:
    for item in _assessments(info):
        expectation = item.get("expectation")
        if isinstance(expectation, dict):
            serialised = as_dict(expectation.get("serialized_value")).get("value")
            value = unwrap(serialised if serialised is not None else expectation.get("value"))
            yield Expectation(_assessment_name(item), value, as_text(as_dict(item.get("source")).get("source_id")))


def _assessment_name(item: dict[str, JsonValue]) -> str:
    return as_text(item.get("assessment_name")) or as_text(item.get("name")) or "assessment"


def _usage(metadata: dict[str, JsonValue], spans: list[_Span]) -> Usage:
    total = read_usage(unwrap(metadata.get("mlflow.trace.tokenUsage")))
    if total != Usage():
        return total
    return add_usage([read_usage(usage) for span in spans if (usage := span.attributes.get("mlflow.chat.tokenUsage"))])


def _model(chat: _Span | None, spans: list[_Span]) -> str | None:
    """The model that answered; a gateway request names only the endpoint."""
    if chat is None:
        return None
    answered = as_text(as_dict(chat.outputs).get("model")) or as_text(chat.attributes.get("mlflow.llm.model"))
    others = (as_text(span.attributes.get("mlflow.llm.model")) for span in spans)
    return answered or next(filter(None, others), None) or as_text(chat.request.get("model"))


def _user(metadata: dict[str, JsonValue], chat: _Span | None) -> str | None:
    """The application's user, never `mlflow.user`, which is the account the server runs under."""
    asked = as_text(chat.request.get("user")) if chat else None
    return as_text(metadata.get("mlflow.trace.user")) or as_text(metadata.get("mlflow.auth.username")) or asked


def _started_at(info: dict[str, JsonValue]) -> datetime | None:
    return read_time(info.get("request_time")) or read_time(info.get("timestamp_ms"))


def _duration_s(info: dict[str, JsonValue]) -> float | None:
    """Milliseconds as a number or a string, or protobuf's "0.211s"."""
    duration_ms = as_int(info.get("execution_duration_ms", info.get("execution_time_ms")))
    if duration_ms is not None:
        return duration_ms / 1000
    text = as_text(info.get("execution_duration"))
    try:
        return float(text.removesuffix("s")) if text else None
    except ValueError:
        return None


def _attributes(info: dict[str, JsonValue], metadata: dict[str, JsonValue], spans: list[_Span]) -> dict[str, str]:
    own = as_dict(info.get("tags")).items()
    tags = {key: value for key, value in own if isinstance(value, str) and not key.startswith("mlflow.")}
    reasons = [reason for span in sorted(spans, key=lambda s: s.start) if (reason := as_text(span.choice.get("finish_reason")))]
    failed = [f"{span.name}: {span.status_message}" for span in spans if span.failed and span.kind == "TOOL"]
    found = {
        "endpoint": next(filter(None, (_plain_string(span.attributes.get("endpoint_name")) for span in spans)), ""),
        "name": as_text(as_dict(info.get("tags")).get("mlflow.traceName")) or "",
        "commit": as_text(metadata.get("mlflow.source.git.commit")) or "",
        "finish_reason": reasons[-1] if reasons else "",
        "num_truncated_turns": str(reasons.count("length") or ""),
        "failed_tools": "; ".join(failed),
    }
    return tags | {key: value for key, value in found.items() if value}


def _error(spans: list[_Span]) -> str:
    messages = [span.status_message for span in sorted(spans, key=lambda s: s.start) if span.failed and span.status_message]
    return messages[0] if messages else "the trace's state is ERROR"


def _exception(fields: dict[str, JsonValue]) -> str:
    """Message of the first exception event, in either place that exporters put it."""
    for event in map(as_dict, as_list(fields.get("events"))):
        attributes = as_dict(event.get("attributes"))
        if message := attributes.get("exception.message"):
            return _plain_string(unwrap(message))
    return ""


def _plain_string(value: JsonValue) -> str:
    """A string attribute, which is a JSON string inside a string."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else clean_text(str(value))
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _as_content(value: JsonValue) -> str:
    return value if isinstance(value, str) else to_json(value).decode()

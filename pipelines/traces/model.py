"""The canonical trace: one production run of an agent, whatever format it came from.

Owns the words Trace, Message, ToolCall, Rejection, Signal and EdgeCase. What a source format lacks is None or empty here,
never invented.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import digest


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model was offered it."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = field(default_factory=dict)
    """JSON Schema of the arguments object."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model made it."""

    name: str
    arguments: dict[str, JsonValue] | None
    """Parsed arguments; None when the raw string is not a JSON object."""
    raw_arguments: str
    """The argument string exactly as it came (re-serialised when the source had an object)."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """Of a tool message: the call it answers."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the run; None is unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """Somebody's or something's judgement of the run, given after it (thumbs, a check's result, a tool's outcome)."""

    name: str
    value: JsonValue
    source: Literal["human", "code", "llm_judge"]
    rationale: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the run should have done, by a person: the ground truth that makes a failure verifiable."""

    name: str
    value: JsonValue
    author: str | None = None


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a trace was read."""

    kind: Literal["mlflow", "file"]
    location: str
    """Experiment id, or the file's URL."""
    format: str
    """Module name in pipelines/traces/formats."""
    position: int | None = None
    """Byte offset of the record in the file, when there is one."""


@dataclass(frozen=True, slots=True)
class Trace:
    id: str
    """The source's own id, unique within the source."""
    messages: tuple[Message, ...]
    source: Source
    tools: tuple[ToolSpec, ...] = ()
    outcome: Outcome = Outcome.UNKNOWN
    error: str | None = None
    feedback: tuple[Feedback, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    conversation_id: str | None = None
    user: str | None = None
    started_at: datetime | None = None
    """UTC."""
    duration_s: float | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    """Other scalar facts of the source (repository, base_commit, exit_status, ...)."""


def trace_digest(trace: Trace) -> str:
    """Digest of what the trace says; the same run read again from elsewhere has the same digest."""
    return digest([trace.id, trace.messages, trace.tools, trace.outcome, trace.error, trace.feedback, trace.expectations])


class RejectionReason(StrEnum):
    UNREADABLE = "unreadable"
    """Not decodable: broken JSON, truncated line, wrong encoding."""
    UNKNOWN_FORMAT = "unknown_format"
    INVALID_RECORD = "invalid_record"
    """Decodable, but lacks what the format requires."""
    EMPTY = "empty"
    """No message in it."""
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that was refused; kept in quarantine with its reason."""

    reason: RejectionReason
    detail: str
    source: Source
    raw: str
    """The record, redacted and capped at `RAW_LIMIT_CHARS` characters."""


RAW_LIMIT_CHARS = 4096


class SignalKind(StrEnum):
    """Evidence that a trace is an edge case."""

    TOOL_ERROR = "tool_error"
    INVALID_CALL = "invalid_call"
    MISSING_CALL = "missing_call"
    NEGATIVE_FEEDBACK = "negative_feedback"
    HUMAN_CORRECTION = "human_correction"
    FAILED_TESTS = "failed_tests"
    LOOP = "loop"
    BUDGET_EXHAUSTED = "budget_exhausted"
    TRUNCATION = "truncation"
    RUN_ERROR = "run_error"
    TAKEOVER = "takeover"
    """A person took over, or stopped the run."""
    REFUSAL = "refusal"
    """The model declined."""
    GUARDRAIL = "guardrail"
    """A filter or a policy outside the model stopped it."""
    LATENCY_OUTLIER = "latency_outlier"
    COST_OUTLIER = "cost_outlier"
    """In money or tokens."""
    CUSTOM = "custom"
    """Found by a user's own signal, whose name leads the detail."""


@dataclass(frozen=True, slots=True)
class Signal:
    kind: SignalKind
    detail: str
    """What was seen, short enough for a table."""


@dataclass(frozen=True, slots=True)
class EdgeCase:
    trace: Trace
    signals: tuple[Signal, ...]
    cluster: str
    """Signature shared by failures of the same kind."""
    severity: float
    """In [0, 1]."""

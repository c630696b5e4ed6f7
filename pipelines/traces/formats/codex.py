"""Codex session files (`~/.codex/sessions/**/rollout-*.jsonl`): lines {timestamp, type, payload}; before September 2025
bare items behind a first line {id, timestamp, instructions, git}, and at first one document {session, items}.

Knowledge comes from openai/codex (codex-rs/protocol: protocol.rs and models.rs; codex-rs/rollout/src/policy.rs) and from public
descriptions of its files. Only the first line names the session, so all lines of a file belong to one run, under the constant id
"session"; several sessions in one file cannot be told apart, because a fork repeats its parent's first line too.

`response_item` is what the model saw. `event_msg` repeats its messages, and is read where it has none of that role. Context in
the user's name (environment, AGENTS.md, aborted turns) is a message only where nothing else says what was asked. Token totals are
cumulative and include cached tokens. Left out: reasoning, compaction summaries (the past stands before them), rolled back turns.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from pydantic import JsonValue

from pipelines.artifacts import digest
from pipelines.traces.json_text import as_int
from pipelines.traces.model import Message, Outcome, Role, Source, ToolCall, Trace, Usage
from pipelines.traces.openai_messages import ROLES, as_dict, as_list, as_text, read_content, read_tool_call
from pipelines.traces.timestamps import read_time

Line = dict[str, JsonValue]

RUN_ID = "session"
_ENVELOPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
_HEADER_KEYS = frozenset({"id", "timestamp", "instructions"})
_HOSTED_CALLS = {"local_shell_call": "action", "web_search_call": "action", "tool_search_call": "arguments"}
"""Calls of built-in tools and the field with their arguments; the tool is named like the type."""
_CALLS = ("function_call", "custom_tool_call", *_HOSTED_CALLS)
_RESULTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_BARE_ITEMS = ("message", "reasoning", *_CALLS, *_RESULTS)
_CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<user_shell_command>",
    "<skill>",
    "<subagent_notification>",
)
_CWD = re.compile(r"<cwd>([^<]{1,4096})</cwd>")
_BUDGET = "budget_limited"


class _Origin(Enum):
    ITEM = auto()
    EVENT = auto()
    CONTEXT = auto()


@dataclass(slots=True)
class _Session:
    """What has been read of a file so far."""

    meta: Line = field(default_factory=dict)
    entries: list[tuple[_Origin, Message]] = field(default_factory=list)
    seen: set[tuple[bool, str]] = field(default_factory=set)
    """Ids of calls (True) and results (False): a fork may bring its parent's along twice."""
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    model: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    kind = fields.get("type")
    if kind in _ENVELOPES and isinstance(fields.get("payload"), dict):
        return 2
    if fields.get("record_type") == "state" or _is_header(fields) or _is_document(fields):
        return 2
    return 1 if kind in _BARE_ITEMS and any(key in fields for key in ("call_id", "content", "summary", "action")) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    return parse_parts([part for _, part in parts(record)], source)


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    fields = as_dict(record)
    if _is_document(fields):
        return [(RUN_ID, part) for part in (fields["session"], *as_list(fields["items"]))]
    return [(RUN_ID, record)]


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """One run out of the lines of a file."""
    try:
        return _read_session(parts, source)
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def _is_header(fields: Line) -> bool:
    return fields.keys() >= _HEADER_KEYS and fields.keys() <= _HEADER_KEYS | {"git"}


def _is_document(fields: Line) -> bool:
    return isinstance(fields.get("items"), list) and _is_header(as_dict(fields.get("session")))


def _read_session(parts: Sequence[JsonValue], source: Source) -> Trace:
    lines = [as_dict(part) for part in parts]
    session = _Session()
    for line in lines:
        _read_line(session, line)
    times = [time for line in lines if (time := read_time(line.get("timestamp"))) is not None]
    session_id = as_text(session.meta.get("id"))
    has_failed = session.error is not None or session.attributes.get("exit_status") == _BUDGET
    return Trace(
        id=session_id or digest(list(parts))[:32],
        messages=_messages(session),
        source=source,
        outcome=Outcome.FAILURE if has_failed else Outcome.UNKNOWN,
        error=session.error,
        usage=session.usage,
        model=session.model,
        conversation_id=session_id,
        started_at=min(times, default=None),
        duration_s=(max(times) - min(times)).total_seconds() if times else None,
        attributes=_attributes(session),
    )


def _read_line(session: _Session, line: Line) -> None:
    kind, payload = line.get("type"), as_dict(line.get("payload"))
    if kind == "session_meta" or _is_header(line):
        session.meta = session.meta or payload or line
    elif kind == "turn_context":
        session.model = as_text(payload.get("model")) or session.model
        for name in ("cwd", "approval_policy", "effort"):
            if text := as_text(payload.get(name)):
                session.attributes.setdefault(name, text)
    elif kind == "event_msg":
        _read_event(session, payload)
    elif kind == "compacted":
        session.counts["num_compactions"] += 1
    else:
        _read_item(session, payload if kind == "response_item" else line)


def _read_item(session: _Session, item: Line) -> None:
    kind = item.get("type")
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    if kind == "message":
        _add_message(session, _Origin.ITEM, ROLES.get(str(item.get("role"))), read_content(item.get("content")))
    elif kind in _CALLS and _is_new(session, call_id, is_call=True):
        session.error = None
        session.entries.append((_Origin.ITEM, Message(Role.ASSISTANT, None, (_call(item, call_id),))))
    elif kind in _RESULTS and _is_new(session, call_id, is_call=False):
        session.entries.append((_Origin.ITEM, Message(Role.TOOL, _output(item), tool_call_id=call_id)))


def _add_message(session: _Session, origin: _Origin, role: Role | None, text: str | None) -> None:
    if role is None or not text:
        return
    if role is Role.ASSISTANT:
        session.error = None
    if role is Role.USER and text.lstrip().startswith(_CONTEXT):
        origin = _Origin.CONTEXT
        if cwd := _CWD.search(text):
            session.attributes.setdefault("cwd", cwd[1])
    session.entries.append((origin, Message(role, text)))


def _read_event(session: _Session, event: Line) -> None:
    kind = event.get("type")
    if kind == "user_message":
        _add_message(session, _Origin.EVENT, Role.USER, as_text(event.get("message")))
    elif kind == "agent_message":
        _add_message(session, _Origin.EVENT, Role.ASSISTANT, as_text(event.get("message")))
    elif kind == "token_count" and (total := as_dict(as_dict(event.get("info")).get("total_token_usage"))):
        counts = (as_int(total.get(name)) for name in ("input_tokens", "output_tokens", "cached_input_tokens"))
        session.usage = Usage(*counts)
    elif kind == "error":
        session.error = as_text(event.get("message")) or "error"
        session.counts["num_errors"] += 1
    elif kind in ("task_started", "turn_started"):
        session.attributes.pop("exit_status", None)
    elif kind == "turn_aborted":
        reason = as_text(event.get("reason")) or "aborted"
        session.attributes["exit_status"] = reason
        if reason in ("interrupted", "replaced"):
            session.attributes["interrupted"] = "true"
    elif kind == "thread_rolled_back":
        _roll_back(session, as_int(event.get("num_turns")) or 0)


def _roll_back(session: _Session, num_turns: int) -> None:
    """Drop the last turns, each of which begins with a prompt."""
    prompts = [i for i, (origin, message) in enumerate(session.entries) if origin is _Origin.ITEM and message.role is Role.USER]
    num_turns = min(num_turns, len(prompts))
    if num_turns > 0:
        del session.entries[prompts[-num_turns] :]
        session.counts["num_rolled_back_turns"] += num_turns


def _is_new(session: _Session, call_id: str | None, *, is_call: bool) -> bool:
    if call_id is None:
        return True
    is_new = (is_call, call_id) not in session.seen
    session.seen.add((is_call, call_id))
    return is_new


def _call(item: Line, call_id: str | None) -> ToolCall:
    """A custom tool takes free text, which is the whole of its arguments."""
    kind, given = str(item.get("type")), item.get("input")
    if kind == "custom_tool_call" and isinstance(given, str):
        return ToolCall(as_text(item.get("name")) or "", {"input": given}, given, call_id)
    name = kind.removesuffix("_call") if kind in _HOSTED_CALLS else item.get("name")
    arguments = item.get(_HOSTED_CALLS.get(kind, "arguments"))
    return read_tool_call({"id": call_id, "name": name, "arguments": arguments})


def _output(item: Line) -> str | None:
    """Text, content items, or (until 2025) {content, success}."""
    output = item.get("output", item.get("tools"))
    return read_content(output["content"] if isinstance(output, dict) and "content" in output else output)


def _messages(session: _Session) -> tuple[Message, ...]:
    """Items; events only of a role without items; context only where no user says anything. A call joins the answer before it."""
    told = {message.role for origin, message in session.entries if origin is _Origin.ITEM and message.content}
    asked = any(origin is not _Origin.CONTEXT and message.role is Role.USER for origin, message in session.entries)
    instructions = as_text(as_dict(session.meta.get("base_instructions")).get("text"))
    found = [Message(Role.SYSTEM, instructions)] if instructions else []
    for origin, message in session.entries:
        if (origin is _Origin.EVENT and message.role in told) or (origin is _Origin.CONTEXT and asked):
            continue
        if message.tool_calls and found and found[-1].role is Role.ASSISTANT:
            found[-1] = replace(found[-1], tool_calls=(*found[-1].tool_calls, *message.tool_calls))
        else:
            found.append(message)
    return tuple(found)


def _attributes(session: _Session) -> dict[str, str]:
    meta, git = session.meta, as_dict(session.meta.get("git"))
    found = {
        "cwd": as_text(meta.get("cwd")),
        "version": as_text(meta.get("cli_version")),
        "originator": as_text(meta.get("originator")),
        "model_provider": as_text(meta.get("model_provider")),
        "forked_from": as_text(meta.get("forked_from_id")),
        "repository": as_text(git.get("repository_url")),
        "base_commit": as_text(git.get("commit_hash")),
        "git_branch": as_text(git.get("branch")),
    }
    counts = {name: str(count) for name, count in session.counts.items()}
    return {**session.attributes, **counts, **{name: text for name, text in found.items() if text}}

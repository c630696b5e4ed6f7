"""OpenHands conversations: events of the agent SDK (v1), of the older server (v0), and lines of its evaluations' `output.jsonl`.

Field names as in `openhands/sdk/event` of OpenHands/software-agent-sdk and `openhands/events/serialization` of OpenHands. An
event names no conversation, or only some do: all events of one version in a file are one run, told apart only where they carry
a `conversation_id`. An evaluation line holds its events in `history` and is a run of its own.

An event is no message. Actions of one model response are one assistant message with parallel calls; a result stands behind the
call it answers (by action id or cause, else by call id), wherever the file has it. In v1 events may form a tree: what hangs on a
turn that was taken back is left out. v0 events are ordered by their number. What the condenser forgot stays: it was part of the
run. Token counts run up over the run: the last ones count. Timestamps have no zone. Results without a call that v0 agents see
(errors, commands of the user) are user messages, as the agent saw them. Calls of foreign agents (ACPToolCallEvent) are not read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import digest, to_json
from pipelines.traces.model import Feedback, Message, Outcome, Role, Source, ToolCall, ToolSpec, Trace, Usage
from pipelines.traces.openai_messages import (
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

_SOURCES = frozenset({"agent", "user", "environment", "hook"})
_KINDS = frozenset({"UserRejectObservation", "Condensation", "CondensationRequest"})
"""Kinds of v1 events whose name does not end with Event."""
_RESULTS = frozenset({"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"})
_FAILED = frozenset({"error", "stuck", "rejected"})
"""States a run may end in that are failures; the others (finished, paused, stopped, ...) say nothing of its worth."""
_UNDERWAY = frozenset({"init", "idle", "loading", "running"})
"""States that are no end: the file was written while the run went on."""
_UNSEEN_ACTIONS = frozenset(
    {"null", "recall", "change_agent_state", "condensation", "condensation_request", "loop_recovery", "streaming_chunk"}
)
_UNSEEN_OBSERVATIONS = frozenset({"null", "recall", "agent_state_changed", "condense", "loop_detection"})
"""Bookkeeping of v0 that its agents never see as text of the file."""
_MAX_COUNT = 1 << 40
"""No run has so many tokens; a larger count is damage."""


@dataclass(slots=True)
class _Turn:
    message: Message
    actions: list[str] = field(default_factory=list)
    """Ids of the events the message was put together from."""
    results: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class _Result:
    message: Message
    action: str | None
    """Id of the event it answers."""


@dataclass(slots=True)
class _Facts:
    """What the events tell of the run beside its messages."""

    state: str | None = None
    error: str | None = None
    code: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    conversation_id: str | None = None
    cost_usd: float | None = None
    cwd: str | None = None
    repository: str | None = None


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    return 2 if _version(fields) or any(_version(as_dict(event)) for event in _history(fields)[:3]) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """An event belongs to its conversation, or to the one of its version in the file; an evaluation line is a run of its own."""
    fields = as_dict(record)
    version = _version(fields)
    return [(f"{version} {as_text(fields.get('conversation_id')) or ''}", record)] if version else []


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    return _read([as_dict(part) for part in parts], {}, source)


def parse(record: JsonValue, source: Source) -> Trace:
    fields = as_dict(record)
    if _version(fields):
        return _read([fields], {}, source)
    return _read([as_dict(event) for event in _history(fields)], fields, source)


def _read(events: list[Fields], line: Fields, source: Source) -> Trace:
    try:
        return _parse(events, line, source)
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def _version(event: Fields) -> Literal["v0", "v1"] | None:
    kind, source = event.get("kind"), event.get("source")
    if not isinstance(source, str) or source not in _SOURCES:
        return None
    if isinstance(kind, str) and (kind.endswith("Event") or kind in _KINDS) and ("id" in event or "timestamp" in event):
        return "v1"
    is_action = isinstance(event.get("action"), str) and isinstance(event.get("args"), dict)
    is_observation = isinstance(event.get("observation"), str) and ("extras" in event or "cause" in event)
    return "v0" if is_action or is_observation else None


def _history(fields: Fields) -> list[JsonValue]:
    """Events of an evaluation line or of an exported trajectory; the oldest lines pair each action with its observation."""
    events = as_list(fields.get("history")) or as_list(fields.get("trajectory")) or as_list(fields.get("events"))
    is_paired = bool(events) and isinstance(events[0], list)
    return [event for pair in events for event in as_list(pair)] if is_paired else events


def _parse(events: list[Fields], line: Fields, source: Source) -> Trace:
    """One run out of its events; `line` is the evaluation line around them."""
    is_v1 = any(_version(event) == "v1" for event in events)
    known = [event for event in events if _version(event) == ("v1" if is_v1 else "v0")]
    known = _unique(known) if is_v1 else _numbered(known)
    steps = list(_v1_steps(_without_abandoned(known)) if is_v1 else _v0_steps(known))
    facts = _v1_facts(known) if is_v1 else _v0_facts(known)
    report = as_dict(as_dict(line.get("test_result")).get("report")) or as_dict(line.get("report"))
    error = facts.error or as_text(line.get("error"))
    times = [time for event in known if (time := read_time(event.get("timestamp"))) is not None]
    instance, key = as_text(line.get("instance_id")), digest([events, line])[:32]
    counted = as_dict(as_dict(line.get("metrics")).get("accumulated_token_usage"))
    return Trace(
        id=facts.conversation_id or (f"{instance}-{key[:16]}" if instance else key),
        messages=tuple(_in_order(steps)),
        source=source,
        tools=_tools(known),
        outcome=_outcome(report.get("resolved"), is_failed=error is not None or facts.state in _FAILED),
        error=error,
        feedback=_feedback(known),
        usage=_counts(counted) if facts.usage == Usage() else facts.usage,
        model=facts.model or as_text(as_dict(as_dict(line.get("metadata")).get("llm_config")).get("model")),
        conversation_id=facts.conversation_id,
        started_at=min(times, default=None),
        duration_s=(max(times) - min(times)).total_seconds() if times else None,
        attributes=_attributes(known, facts, line),
    )


def _outcome(resolved: JsonValue, *, is_failed: bool) -> Outcome:
    """Tests that judged the patch count more than how the run ended."""
    if isinstance(resolved, bool):
        return Outcome.SUCCESS if resolved else Outcome.FAILURE
    return Outcome.FAILURE if is_failed else Outcome.UNKNOWN


def _unique(events: list[Fields]) -> list[Fields]:
    """Each event once, where it first stood, as it was last written."""
    found: dict[str, Fields] = {}
    for index, event in enumerate(events):
        found[as_text(event.get("id")) or f"event {index}"] = event
    return list(found.values())


def _numbered(events: list[Fields]) -> list[Fields]:
    """v0 events by their number, each once; one without a number stays behind the one before it."""
    found: dict[int, Fields] = {}
    ordered: list[tuple[int, Fields]] = []
    last = -1
    for event in events:
        number = event.get("id")
        if isinstance(number, int) and not isinstance(number, bool):
            if found.setdefault(number, event) != event:
                raise ValueError(f"event {number} stands for two events: the file holds several conversations")
            if found[number] is not event:
                continue
            last = number
        ordered.append((last, event))
    return [event for _, event in sorted(ordered, key=lambda entry: entry[0])]


def _without_abandoned(events: list[Fields]) -> list[Fields]:
    """The events without those of branches that were taken back; the last event's ancestors are the branch that stayed."""
    parents = {str(event.get("id")): as_text(event.get("parent_id")) for event in events if event.get("parent_id")}
    if not parents:
        return events
    branch: set[str] = set()
    above: str | None = next(reversed(parents))
    while above is not None and above not in branch:
        branch.add(above)
        above = parents.get(above)
    abandoned: set[str] = set()
    for event, parent in parents.items():
        if event not in branch and (parent in branch or parent in abandoned):
            abandoned.add(event)
    return [event for event in events if str(event.get("id")) not in abandoned]


def _in_order(steps: list[_Turn | _Result]) -> Iterator[Message]:
    """Messages of the steps, every result behind the turn that made the call; a result of no known call stays where it is."""
    by_action = {action: step for step in steps if isinstance(step, _Turn) for action in step.actions}
    by_call: dict[str, list[tuple[int, _Turn]]] = {}
    for position, step in enumerate(steps):
        for call in step.message.tool_calls:
            if isinstance(step, _Turn) and call.id is not None:
                by_call.setdefault(call.id, []).append((position, step))
    orphans: set[int] = set()
    for position, step in enumerate(steps):
        if isinstance(step, _Result):
            callers = by_call.get(step.message.tool_call_id or "", [])
            before = [turn for place, turn in callers if place < position]
            caller = by_action.get(step.action or "") or next(iter([*before[-1:], *(turn for _, turn in callers)]), None)
            if caller is None:
                orphans.add(position)
            else:
                caller.results.append(step.message)
    for position, step in enumerate(steps):
        if isinstance(step, _Turn):
            yield from (step.message, *step.results)
        elif position in orphans:
            yield step.message


def _v1_steps(events: list[Fields]) -> Iterator[_Turn | _Result]:
    answers: dict[str, _Turn] = {}
    for event in events:
        kind = event.get("kind")
        if kind == "SystemPromptEvent":
            prompt: list[JsonValue] = [part for part in (event.get("system_prompt"), event.get("dynamic_context")) if part]
            yield _Turn(Message(Role.SYSTEM, read_content(prompt)))
        elif kind == "MessageEvent":
            message = as_dict(event.get("llm_message"))
            content = _with_more(message.get("content"), event.get("extended_content"))
            role = message.get("role") or ("assistant" if event.get("source") == "agent" else "user")
            yield _Turn(read_message({**message, "role": role, "content": content}))
        elif kind == "ActionEvent":
            response = as_text(event.get("llm_response_id")) or str(event.get("id"))
            call = _v1_call(event)
            if (turn := answers.get(response)) is None:
                turn = answers[response] = _Turn(Message(Role.ASSISTANT, _thought(event), (call,)))
                yield turn
            else:
                text = "\n".join(filter(None, (turn.message.content, _thought(event)))) or None
                turn.message = replace(turn.message, content=text, tool_calls=(*turn.message.tool_calls, call))
            turn.actions.append(str(event.get("id")))
        elif kind in _RESULTS:
            result = Message(Role.TOOL, _v1_result(event), tool_call_id=as_text(event.get("tool_call_id")))
            yield _Result(result, as_text(event.get("action_id")))


def _with_more(content: JsonValue, more: JsonValue) -> JsonValue:
    """A content field with what the agent's context added behind it."""
    added = as_list(more)
    return [*(content if isinstance(content, list) else [content] if content else []), *added] if added else content


def _thought(event: Fields) -> str | None:
    """Text of an action's answer, without the reasoning that some models repeat in front of it."""
    text = read_content(as_list(event.get("thought"))) or ""
    reasoning = as_text(event.get("reasoning_content"))
    if reasoning and text.startswith(repeated := f"<think>{reasoning}</think>"):
        text = text.removeprefix(repeated).lstrip("\n")
    return text or None


def _v1_call(event: Fields) -> ToolCall:
    made = as_dict(event.get("tool_call"))
    if made:
        call = read_tool_call(made)
    else:
        arguments = {name: value for name, value in as_dict(event.get("action")).items() if name != "kind"}
        call = read_tool_call({"name": event.get("tool_name"), "arguments": arguments})
    return replace(
        call, name=call.name or as_text(event.get("tool_name")) or "", id=call.id or as_text(event.get("tool_call_id"))
    )


def _v1_result(event: Fields) -> str | None:
    if event.get("kind") == "AgentErrorEvent":
        return read_content(event.get("error"))
    if event.get("kind") == "UserRejectObservation":
        return read_content(event.get("rejection_reason"))
    observation = as_dict(event.get("observation"))
    content = observation.get("content", observation.get("output"))
    return read_content(_with_more(content, event.get("extended_content")))


def _v1_facts(events: list[Fields]) -> _Facts:
    facts = _Facts()
    for event in events:
        facts.conversation_id = facts.conversation_id or as_text(event.get("conversation_id"))
        if event.get("kind") == "ConversationErrorEvent":
            facts.state, facts.code = "error", as_text(event.get("code"))
            facts.error = as_text(event.get("detail")) or facts.code
        elif event.get("kind") == "ConversationStateUpdateEvent":
            _update_state(facts, event)
    if facts.state not in _FAILED:
        facts.error = facts.code = None
    return facts


def _update_state(facts: _Facts, event: Fields) -> None:
    key, value = event.get("key"), event.get("value")
    state = as_dict(value) if key == "full_state" else {str(key): value}
    facts.state = as_text(state.get("execution_status")) or as_text(state.get("agent_status")) or facts.state
    if key == "full_state":
        facts.conversation_id = as_text(state.get("id")) or facts.conversation_id
        facts.model = as_text(as_dict(as_dict(state.get("agent")).get("llm")).get("model")) or facts.model
        facts.cwd = as_text(as_dict(state.get("workspace")).get("working_dir")) or facts.cwd
    metrics = [as_dict(item) for item in as_dict(as_dict(state.get("stats")).get("usage_to_metrics")).values()]
    if metrics:
        facts.usage = add_usage([_counts(as_dict(item.get("accumulated_token_usage"))) for item in metrics])
        facts.model = next((name for item in metrics if (name := as_text(item.get("model_name")))), None) or facts.model
        facts.cost_usd = sum(_cost(item.get("accumulated_cost")) for item in metrics)


def _counts(usage: Fields) -> Usage:
    read = read_usage({"cached_tokens": usage.get("cache_read_tokens"), **usage})
    counts = (read.input_tokens, read.output_tokens, read.cached_input_tokens)
    return Usage(*(count if count is not None and 0 <= count < _MAX_COUNT else None for count in counts))


def _cost(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _v0_steps(events: list[Fields]) -> Iterator[_Turn | _Result]:
    answers: dict[str, _Turn] = {}
    calls: dict[str, str] = {}
    for event in events:
        action, args = as_text(event.get("action")), as_dict(event.get("args"))
        if as_text(event.get("observation")):
            yield from _v0_result(event, calls)
        elif action in ("message", "system"):
            user = Role.SYSTEM if action == "system" else Role.USER
            yield _Turn(Message(Role.ASSISTANT if event.get("source") == "agent" and user is Role.USER else user, _said(event)))
        elif event.get("source") == "agent" and action not in _UNSEEN_ACTIONS:
            response = _response(event)
            turn = answers.get(str(response.get("id")))
            if turn is None:
                turn = _Turn(_v0_answer(event, response, args))
                yield turn
                if response.get("id"):
                    answers[str(response["id"])] = turn
            calls[str(event.get("id"))] = _add_call(turn, event, args)
            turn.actions.append(str(event.get("id")))


def _said(event: Fields) -> str | None:
    return read_content(as_dict(event.get("args")).get("content") or event.get("message"))


def _response(event: Fields) -> Fields:
    return as_dict(as_dict(event.get("tool_call_metadata")).get("model_response"))


def _v0_answer(event: Fields, response: Fields, args: Fields) -> Message:
    """The model's message, or the thought where the file lacks it."""
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    message = as_dict(choice.get("message"))
    return (
        read_message({**message, "role": "assistant"}) if message else Message(Role.ASSISTANT, read_content(args.get("thought")))
    )


def _add_call(turn: _Turn, event: Fields, args: Fields) -> str:
    """The id of the action's call, which joins the turn's calls unless the model's message has it."""
    metadata = as_dict(event.get("tool_call_metadata"))
    call_id = as_text(metadata.get("tool_call_id")) or f"event {event.get('id')}"
    if call_id not in (call.id for call in turn.message.tool_calls):
        name = as_text(metadata.get("function_name")) or as_text(event.get("action")) or ""
        given: Fields = {key: value for key, value in args.items() if key != "thought"}
        call = read_tool_call({"id": call_id, "name": name, "arguments": given})
        turn.message = replace(turn.message, tool_calls=(*turn.message.tool_calls, call))
    return call_id


def _v0_result(event: Fields, calls: Mapping[str, str]) -> Iterator[_Turn | _Result]:
    if as_text(event.get("observation")) in _UNSEEN_OBSERVATIONS:
        return
    cause = str(event["cause"]) if event.get("cause") is not None else None
    call_id = as_text(as_dict(event.get("tool_call_metadata")).get("tool_call_id")) or calls.get(cause or "")
    content = read_content(event.get("content") or event.get("message"))
    if call_id is None:
        yield _Turn(Message(Role.USER, content))
    else:
        yield _Result(Message(Role.TOOL, content, tool_call_id=call_id), cause)


def _v0_facts(events: list[Fields]) -> _Facts:
    facts = _Facts()
    responses: dict[str, Usage] = {}
    metered: Fields = {}
    for event in events:
        extras, metrics, response = as_dict(event.get("extras")), as_dict(event.get("llm_metrics")), _response(event)
        facts.conversation_id = facts.conversation_id or as_text(event.get("conversation_id"))
        if event.get("observation") == "agent_state_changed":
            facts.state = as_text(extras.get("agent_state")) or facts.state
            facts.error = as_text(extras.get("reason")) if facts.state in _FAILED else None
        facts.repository = facts.repository or as_text(extras.get("repo_name"))
        facts.model = as_text(response.get("model")) or facts.model
        if response.get("usage"):
            responses[str(response.get("id"))] = _counts(as_dict(response.get("usage")))
        metered = as_dict(metrics.get("accumulated_token_usage")) or metered
        facts.cost_usd = _cost(metrics.get("accumulated_cost")) or facts.cost_usd
    facts.usage = _counts(metered) if metered else add_usage(list(responses.values()))
    return facts


def _tools(events: list[Fields]) -> tuple[ToolSpec, ...]:
    """Tools as the agent was given them: OpenAI's shape in v0, definitions with a title in v1 (arguments only of MCP tools)."""
    for event in events:
        offered = as_list(event.get("tools")) or as_list(as_dict(event.get("args")).get("tools"))
        if event.get("kind") == "SystemPromptEvent" or event.get("action") == "system":
            return read_tools([_tool(as_dict(tool)) for tool in offered])
    return ()


def _tool(tool: Fields) -> JsonValue:
    title = tool.get("title")
    return {"name": title, "input_schema": as_dict(tool.get("mcp_tool")).get("inputSchema"), **tool} if title else tool


def _feedback(events: list[Fields]) -> tuple[Feedback, ...]:
    """The critic's last word; it scores the run so far at each turn."""
    scored = [result for event in events if "score" in (result := as_dict(event.get("critic_result")))]
    return tuple(Feedback("critic", result["score"], "llm_judge", as_text(result.get("message"))) for result in scored[-1:])


def _failures(events: Iterable[Fields]) -> Iterator[str]:
    """Results that are marked as errors; a command with a bad exit code is ordinary work."""
    for event in events:
        name = as_text(event.get("tool_name")) or "tool"
        if event.get("kind") == "AgentErrorEvent" or as_dict(event.get("observation")).get("is_error") is True:
            yield f"{name}: {_v1_result(event) or ''}"
        elif event.get("observation") == "error":
            name = as_text(as_dict(event.get("tool_call_metadata")).get("function_name")) or "tool"
            yield f"{name}: {read_content(event.get('content')) or ''}"


def _attributes(events: list[Fields], facts: _Facts, line: Fields) -> dict[str, str]:
    instance = as_dict(line.get("instance"))
    finish = next((as_dict(event.get("args")) for event in reversed(events) if event.get("action") == "finish"), {})
    condensed = sum(event.get("kind") == "Condensation" or event.get("action") == "condensation" for event in events)
    cost = facts.cost_usd or _cost(as_dict(line.get("metrics")).get("accumulated_cost"))
    completed = finish.get("task_completed")
    found = {
        "exit_status": facts.code or (facts.state if facts.state not in _UNDERWAY else None),
        "instance_id": as_text(line.get("instance_id")),
        "repository": as_text(instance.get("repo")) or facts.repository,
        "base_commit": as_text(instance.get("base_commit")),
        "submission": as_text(as_dict(line.get("test_result")).get("git_patch")),
        "cwd": facts.cwd,
        "cost_usd": str(cost) if cost else None,
        "task_completed": completed
        if isinstance(completed, str)
        else to_json(completed).decode()
        if completed is not None
        else None,
        "num_condensations": str(condensed or ""),
        "failed_tools": "; ".join(_failures(events)),
    }
    return {key: value for key, value in found.items() if value}

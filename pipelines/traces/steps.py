"""Steps of a run - model calls, tool calls and what holds them - joined into the one conversation they tell.

Shared by the formats that log a run as a tree of observations, runs or spans. Refuses to read any of those formats.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.message_shapes import (
    call_mark,
    finish_reason,
    flat_turns,
    open_json,
    read_turns,
    result_text,
)
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec, Usage
from pipelines.traces.openai_messages import (
    add_usage,
)

MAX_COUNT = 1 << 50
"""No run has used so many tokens; sums of such counts would leave 64 bits."""
UNKNOWN_USAGE = Usage()
_CUT_OFF = ("length", "max_tokens", "MAX_TOKENS", "max_output_tokens")


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
        Usage(*(count if count is not None and 0 <= count < MAX_COUNT else None for count in counts))
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
    return (flat_turns(content) if role is Role.USER else []) or [Message(role, content)]


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


def _step_mark(step: Step) -> str:
    """Name and arguments of a tool's step, which some frameworks put one level down."""
    arguments = open_json(step.inputs)
    if isinstance(arguments, dict) and len(arguments) == 1:
        arguments = next(
            (inner for key in ("input", "arguments", "args") if isinstance(inner := arguments.get(key), dict)), arguments
        )
    return call_mark(step.name, arguments)


_MARKS: tuple[tuple[Callable[[ToolCall], str | None], Callable[[Step], str | None]], ...] = (
    (lambda call: call.id, lambda step: step.call_id),
    (lambda call: call_mark(call.name, call.arguments), _step_mark),
    (lambda call: call.name, lambda step: step.name),
)


def _result_of(step: Step) -> str | None:
    return result_text(step.outputs) or step.problem

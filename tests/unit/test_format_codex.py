import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import codex, parse_file
from pipelines.traces.model import Outcome, Rejection, Role, Trace
from pipelines.traces.records import Record, split_records
from pipelines.traces.table import rejection_from_row, rejection_to_row, trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Line = dict[str, object]

GIT = {"commit_hash": "c0ffee", "branch": "main", "repository_url": "https://example.org/app.git"}
META: Line = {
    "timestamp": "2026-01-27T12:00:00.000Z",
    "type": "session_meta",
    "payload": {
        "id": "019e",
        "timestamp": "2026-01-27T11:59:59.000Z",
        "cwd": "/home/dev/app",
        "originator": "codex_exec",
        "cli_version": "0.128.0",
        "model_provider": "openai",
        "base_instructions": {"text": "You are Codex."},
        "git": GIT,
    },
}
CONTEXT = "<environment_context>\n  <cwd>/home/dev/old</cwd>\n</environment_context>"


def parse(data: bytes) -> list[Trace | Rejection]:
    return list(parse_file(data, location="somewhere"))


def rollout(*lines: Line) -> Trace:
    (trace,) = parse(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert isinstance(trace, Trace), trace
    return trace


def line(kind: str, second: int = 0, **payload: object) -> Line:
    return {"timestamp": f"2026-01-27T12:00:{second:02}.000Z", "type": kind, "payload": payload}


def item(kind: str, **fields: object) -> Line:
    return line("response_item", 1, **{"type": kind, **fields})


def event(kind: str, **fields: object) -> Line:
    return line("event_msg", 2, **{"type": kind, **fields})


def message(role: str, *texts: str) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text} for text in texts])


def tokens(read: int, written: int) -> Line:
    total = {"input_tokens": read, "cached_input_tokens": read // 2, "output_tokens": written, "total_tokens": read + written}
    return event("token_count", info={"total_token_usage": total, "last_token_usage": total}, rate_limits=None)


def said(trace: Trace) -> list[tuple[Role, str | None]]:
    return [(message.role, message.content) for message in trace.messages]


def test_a_rollout_gives_the_conversation_once_with_the_last_token_total() -> None:
    broken = '{"command": ["ls", '
    trace = rollout(
        META,
        message("developer", "<permissions instructions>read only"),
        message("user", CONTEXT),
        line("turn_context", 1, model="gpt-5.1-codex", cwd="/home/dev/app/sub", approval_policy="never", effort="high"),
        message("user", "fix the tests"),
        event("user_message", message="fix the tests", images=[]),
        item("reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="gAAA"),
        message("assistant", "Looking."),
        event("agent_message", message="Looking."),
        item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
        item("function_call", name="shell", arguments=broken, call_id="c2"),
        item("function_call_output", call_id="c1", output="a.py"),
        item("function_call_output", call_id="c2", output={"content": "failed to parse", "success": False}),
        tokens(100, 7),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c3", status="completed"),
        item("custom_tool_call_output", call_id="c3", output=[{"type": "input_text", "text": "Done!"}]),
        message("assistant", "Fixed."),
        event("agent_message", message="Fixed."),
        tokens(250, 20),
        line("event_msg", 30, type="task_complete", last_agent_message="Fixed."),
    )
    assert said(trace) == [
        (Role.SYSTEM, "You are Codex."),
        (Role.SYSTEM, "<permissions instructions>read only"),
        (Role.USER, "fix the tests"),
        (Role.ASSISTANT, "Looking."),
        (Role.TOOL, "a.py"),
        (Role.TOOL, "failed to parse"),
        (Role.ASSISTANT, None),
        (Role.TOOL, "Done!"),
        (Role.ASSISTANT, "Fixed."),
    ]
    calls = [(call.name, call.arguments, call.raw_arguments, call.id) for m in trace.messages for call in m.tool_calls]
    assert calls == [
        ("shell", {"command": ["ls"]}, '{"command": ["ls"]}', "c1"),
        ("shell", None, broken, "c2"),
        ("apply_patch", {"input": "*** Begin Patch"}, "*** Begin Patch", "c3"),
    ]
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.cached_input_tokens) == (250, 20, 125)
    assert (trace.id, trace.conversation_id, trace.model, trace.outcome) == ("019e", "019e", "gpt-5.1-codex", Outcome.UNKNOWN)
    assert (trace.started_at, trace.duration_s) == (datetime(2026, 1, 27, 12, tzinfo=UTC), 30)
    assert trace.attributes == {
        "cwd": "/home/dev/app",
        "approval_policy": "never",
        "effort": "high",
        "version": "0.128.0",
        "originator": "codex_exec",
        "model_provider": "openai",
        "repository": "https://example.org/app.git",
        "base_commit": "c0ffee",
        "git_branch": "main",
    }


BARE: list[Line] = [
    {"id": "1b2c", "timestamp": "2025-08-18T01:16:13.522Z", "instructions": None, "git": GIT},
    {"record_type": "state"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CONTEXT}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list files"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
    {"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "ls"}},
]


@pytest.mark.parametrize("is_document", [False, True])
def test_the_shapes_without_envelopes_are_read(is_document: bool) -> None:
    header = {key: value for key, value in BARE[0].items() if key != "git"}
    trace = rollout({"session": header, "items": BARE[2:]}) if is_document else rollout(*BARE)
    assert said(trace) == [
        (Role.USER, "list files"),
        (Role.ASSISTANT, None),
        (Role.TOOL, "a.py"),
        (Role.ASSISTANT, None),
    ]
    calls = [(call.name, call.arguments) for m in trace.messages for call in m.tool_calls]
    assert calls == [
        ("local_shell", {"type": "exec", "command": ["ls"]}),
        ("web_search", {"type": "search", "query": "ls"}),
    ]
    assert (trace.id, trace.attributes["cwd"], trace.usage.input_tokens) == ("1b2c", "/home/dev/old", None)
    assert trace.attributes.get("base_commit") == (None if is_document else "c0ffee")


def test_what_the_user_asked_is_looked_for_in_items_then_events_then_context() -> None:
    context, told = message("user", CONTEXT), event("user_message", message="from the event")
    answer = event("agent_message", message="yes")
    assert said(rollout(context, told, answer)) == [(Role.USER, "from the event"), (Role.ASSISTANT, "yes")]
    assert said(rollout(context, answer)) == [(Role.USER, CONTEXT), (Role.ASSISTANT, "yes")]


def test_a_fork_repeats_its_parents_first_line_and_calls_without_effect() -> None:
    child: Line = {**META, "payload": {"id": "child", "forked_from_id": "019e"}}
    called = item("function_call", name="shell", arguments="{}", call_id="c1")
    done = item("function_call_output", call_id="c1", output="ok")
    trace = rollout(child, META, message("user", "go"), called, done, called, done)
    assert (trace.id, trace.attributes["forked_from"], len(trace.messages)) == ("child", "019e", 3)


def test_a_compaction_and_turns_rolled_back_leave_each_turn_once() -> None:
    trace = rollout(
        META,
        message("user", "one"),
        message("assistant", "1"),
        line("compacted", message="summary", replacement_history=[{"type": "message", "role": "user", "content": "one"}]),
        message("user", "two"),
        message("assistant", "2"),
        event("thread_rolled_back", num_turns=1),
        message("user", "three"),
    )
    assert [m.content for m in trace.messages[1:]] == ["one", "1", "three"]
    assert (trace.attributes["num_compactions"], trace.attributes["num_rolled_back_turns"]) == ("1", "1")


def test_errors_and_interruptions_that_end_a_run_are_told_and_those_it_got_over_are_not() -> None:
    failed = rollout(META, message("user", "go"), event("error", message="stream disconnected"), event("task_complete"))
    assert (failed.outcome, failed.error) == (Outcome.FAILURE, "stream disconnected")
    start = [META, message("user", "go"), event("error", message="stream disconnected"), message("assistant", "done")]
    assert (rollout(*start).error, rollout(*start).attributes["num_errors"]) == (None, "1")

    stopped = rollout(META, message("user", "go"), event("turn_aborted", reason="interrupted"))
    assert (stopped.outcome, stopped.attributes["interrupted"], stopped.attributes["exit_status"]) == (
        Outcome.UNKNOWN,
        "true",
        "interrupted",
    )
    resumed = rollout(META, message("user", "go"), event("turn_aborted", reason="budget_limited"), event("task_started"))
    assert (resumed.outcome, "exit_status" in resumed.attributes) == (Outcome.UNKNOWN, False)
    spent = rollout(META, message("user", "go"), event("turn_aborted", reason="budget_limited"))
    assert (spent.outcome, spent.attributes["exit_status"]) == (Outcome.FAILURE, "budget_limited")


def test_no_record_of_another_format_is_claimed() -> None:
    for folder in ("langfuse", "openai-chat", "openhands-v1", "otlp", "swe-agent-traj", "claude-code", "mlflow"):
        for file in sample_files(folder):
            records = [item.value for item in split_records(file.read_bytes()) if isinstance(item, Record)]
            assert not any(map(codex.match, records)), file


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "c1", CONTEXT, "\ud800", "1e999", "message"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "text", "content"]), inner),
    max_leaves=5,
)
GOOD: list[Line] = [
    META,
    message("user", "go"),
    item("function_call", name="shell", arguments="{}", call_id="c1"),
    item("function_call_output", call_id="c1", output="ok"),
    tokens(1, 2),
    event("turn_aborted", reason="interrupted"),
    event("thread_rolled_back", num_turns=1),
    line("turn_context", model="m"),
    *BARE,
]
OUTER = ["type", "timestamp", "payload", "id", "call_id", "action", "role", "content"]
INNER = ["type", "id", "git", "role", "content", "call_id", "output", "arguments", "info", "reason", "num_turns", "model"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(GOOD), st.booleans(), st.sampled_from(OUTER), st.sampled_from(INNER), WRONG), max_size=6)
)
def test_mangled_lines_never_raise_and_can_always_be_stored(changes: list[tuple[Line, bool, str, str, object]]) -> None:
    lines = []
    for good, is_inner, outer, inner, value in changes:
        payload = good.get("payload")
        inside: Line = {"payload": {**payload, inner: value}} if is_inner and isinstance(payload, dict) else {outer: value}
        lines.append({**good, **inside})
    for result in parse("\n".join(map(json.dumps, lines)).encode()):
        if isinstance(result, Trace):
            assert trace_from_row(trace_to_row(result)) == result
        else:
            assert rejection_from_row(rejection_to_row(result)) == result

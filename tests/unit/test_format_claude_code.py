import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import claude_code, parse_file
from pipelines.traces.model import Outcome, Rejection, RejectionReason, Role, Trace
from pipelines.traces.records import Record, split_records
from pipelines.traces.table import rejection_from_row, rejection_to_row, trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Line = dict[str, object]


def parse(data: bytes) -> list[Trace | Rejection]:
    return list(parse_file(data, location="somewhere"))


def sample(name: str) -> list[Trace | Rejection]:
    (file,) = (file for file in sample_files("claude-code") if file.name == name)
    return parse(file.read_bytes())


def session(*lines: Line) -> Trace:
    (trace,) = parse(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert isinstance(trace, Trace), trace
    return trace


def user(uuid: str, content: object, parent: str | None = None, **fields: object) -> Line:
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **fields}


def answer(
    uuid: str, block: object, parent: str | None = None, *, message_id: str = "", output: int = 1, **fields: object
) -> Line:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": output}
    blocks = [{"type": "text", "text": block}] if isinstance(block, str) else [block]
    message = {"id": message_id or f"m-{uuid}", "role": "assistant", "model": "claude-x", "content": blocks, "usage": usage}
    line: Line = {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "requestId": "r", "message": message}
    return {**line, **fields}


def call(call_id: str, name: str = "Bash") -> Line:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}}


def result(call_id: str, content: object = "ok", **fields: object) -> list[object]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}]


def said(trace: Trace) -> list[tuple[Role, str | None]]:
    return [(message.role, message.content) for message in trace.messages]


def test_the_representative_sample_is_one_session_and_its_summary_names_none() -> None:
    (trace,) = sample("representative_messages.jsonl")
    assert isinstance(trace, Trace)
    assert (trace.id, trace.conversation_id, trace.model) == ("test_session", "test_session", "claude-3-sonnet-20240229")
    kinds = "user assistant user assistant tool assistant user assistant tool assistant user"
    assert " ".join(message.role for message in trace.messages) == kinds
    calls = [(call.name, call.id) for message in trace.messages for call in message.tool_calls]
    assert calls == [("Edit", "tool_001"), ("Bash", "tool_002")]
    assert trace.messages[8].content == "\n".join(["Hello, Alice!"] * 3)
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.cached_input_tokens) == (218, 445, 0)
    assert (trace.started_at, trace.duration_s) == (datetime(2025, 6, 14, 10, tzinfo=UTC), 240)
    assert trace.attributes == {"cwd": "/tmp", "version": "1.0.0", "finish_reason": "end_turn"}


def test_the_sample_of_edge_cases_gives_two_sessions_and_rejects_what_is_no_line() -> None:
    results = sample("edge_cases.jsonl")
    first, *_, second = results
    reasons = [item.reason for item in results if isinstance(item, Rejection)]
    assert reasons == [RejectionReason.UNKNOWN_FORMAT] * 4
    assert isinstance(first, Trace)
    assert isinstance(second, Trace)
    assert (first.id, len(first.messages), second.id, len(second.messages)) == ("edge_cases", 9, "todowrite_session", 1)
    texts = [message.content or "" for message in first.messages]
    assert "test-command --verbose --output /tmp/test.log" in texts
    assert not any("Caveat" in text or "local-command-stdout" in text for text in texts)
    assert texts[-2] == "wow error", "the line written again under its uuid, whose first version had no content"
    assert "中文" in texts[-1]
    assert (first.usage.input_tokens, first.usage.output_tokens) == (320, 350)
    assert first.attributes["failed_tools"].startswith("FailingTool: Error: Tool execution failed")


def test_the_short_sample_keeps_text_and_call_of_one_answer_together() -> None:
    (trace,) = sample("sample_session.jsonl")
    assert isinstance(trace, Trace)
    assert (trace.id, len(trace.messages), trace.attributes["git_branch"]) == ("test-session-id", 7, "main")
    assert trace.messages[1].content == "I'll create that function for you."
    assert trace.messages[1].tool_calls[0].arguments == {
        "file_path": "/project/hello.py",
        "content": "def hello():\n    return 'Hello, World!'\n",
    }
    assert trace.usage.input_tokens is None


def test_an_answer_spread_over_lines_is_one_message_with_its_usage_counted_once() -> None:
    trace = session(
        user("u", "go"),
        answer("a1", {"type": "thinking", "thinking": "hm"}, "u", message_id="m"),
        answer("a2", "Both.", "a1", message_id="m"),
        answer("a3", call("c1"), "a2", message_id="m", output=1),
        user("r1", result("c1"), "a3"),
        answer("a4", call("c2"), "a3", message_id="m", output=70),
        user("r2", result("c2", [{"type": "text", "text": "two"}, {"type": "image", "source": {"data": "A" * 999}}]), "a4"),
    )
    assert said(trace)[1:] == [(Role.ASSISTANT, "Both."), (Role.TOOL, "ok"), (Role.TOOL, "two\n[image]")]
    assert [call.id for call in trace.messages[1].tool_calls] == ["c1", "c2"]
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.cached_input_tokens) == (3210, 70, 3000)


def test_turns_follow_their_parents_and_neither_the_file_nor_the_clock() -> None:
    lines = [
        user("u2", "second", "a1", timestamp="2026-01-01T00:00:00Z"),
        answer("a2", "two", "u2", timestamp="2026-01-01T00:00:01Z"),
        user("u1", "first", None, timestamp="2026-01-02T00:00:00Z"),
        answer("a1", "one", "u1", timestamp="2026-01-02T00:00:01Z"),
        user("lost", "orphan", "nowhere"),
        user("x", "x", "y"),
        answer("y", "y", "x"),
        user("z", "z", "z"),
    ]
    trace = session(*lines)
    assert [message.content for message in trace.messages] == ["first", "one", "second", "two", "orphan", "x", "y", "z"]
    assert trace.duration_s == 86401


def test_compaction_repeats_nothing() -> None:
    summary = user("cs", "This session is being continued.", "cb", isCompactSummary=True)
    boundary: Line = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "cb",
        "parentUuid": None,
        "logicalParentUuid": "r1",
    }
    lines = [
        user("u1", "go"),
        answer("a1", call("c1"), "u1"),
        user("r1", result("c1", "long output"), "a1"),
        boundary | {"sessionId": "s"},
        summary,
        answer("a1", call("c1"), "u1"),
        user("r1", result("c1", "[cleared]"), "a1"),
        answer("a2", "done", "cs"),
    ]
    trace = session(*lines)
    assert [message.content for message in trace.messages] == ["go", None, "long output", "done"]
    assert (trace.attributes["num_compactions"], trace.usage.output_tokens) == ("1", 2)
    continued = session(summary, answer("a2", "done", "cs"))
    assert [message.content for message in continued.messages] == ["This session is being continued.", "done"]


def test_a_sidechain_is_counted_and_no_turn_but_alone_it_is_a_run_of_its_own() -> None:
    side = [
        user("s1", "look around", None, isSidechain=True, agentId="ab12"),
        answer("s2", "seen", "s1", isSidechain=True, agentId="ab12", output=5),
    ]
    trace = session(user("u", "go"), answer("a", "done", "u"), *side)
    assert [message.content for message in trace.messages] == ["go", "done"]
    assert (trace.attributes["num_sidechain_lines"], trace.usage.output_tokens) == ("2", 6)
    alone = session(*side)
    assert (alone.id, alone.conversation_id, len(alone.messages)) == ("s/ab12", "s", 2)


def test_a_branch_the_user_went_back_on_is_counted_and_no_turn() -> None:
    trace = session(
        user("u1", "hello"),
        answer("a1", "hi", "u1"),
        user("u2", "delete it", "a1"),
        answer("a2", "deleted", "u2"),
        user("u3", "rename it", "a1"),
        answer("a3", "renamed", "u3"),
    )
    assert [message.content for message in trace.messages] == ["hello", "hi", "rename it", "renamed"]
    assert (trace.attributes["num_rewound_lines"], trace.usage.output_tokens) == ("2", 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<system-reminder>be brief</system-reminder>fix it<system-reminder>x</system-reminder>", "fix it"),
        ("what does <system-reminder> do?", "what does <system-reminder> do?"),
        (
            "<command-message>fix</command-message>\n<command-name>/fix</command-name>\n<command-args>7</command-args>",
            "/fix 7",
        ),
        ("<local-command-stdout>Set model</local-command-stdout>", None),
        ("<local-command-caveat>Caveat: ignore</local-command-caveat>", None),
        ("<bash-input>ls</bash-input>", None),
        ("<task-notification>done</task-notification>", None),
    ],
)
def test_of_a_users_text_only_the_users_own_words_are_kept(text: str, expected: str | None) -> None:
    trace = session(user("u0", "first"), user("u1", "by the program", "u0", isMeta=True), user("u", text, "u1"))
    assert [message.content for message in trace.messages[1:]] == ([expected] if expected else [])


def test_an_api_error_fails_the_run_unless_the_model_answered_after_it() -> None:
    error = answer("e", "API Error: 529 Overloaded", "u", isApiErrorMessage=True)
    trace = session(user("u", "go"), error)
    assert (trace.outcome, trace.error, len(trace.messages)) == (Outcome.FAILURE, "API Error: 529 Overloaded", 1)
    assert (trace.model, trace.usage.output_tokens) == (None, None)
    again = session(user("u", "go"), error, user("u2", "again", "e"), answer("a", "done", "u2"))
    assert (again.outcome, again.error, again.attributes["num_api_errors"]) == (Outcome.UNKNOWN, None, "1")


def test_interruptions_refusals_and_edits_changed_by_the_user_are_told() -> None:
    refusal = "The user doesn't want to proceed with this tool use."
    trace = session(
        user("u", "go"),
        answer("a1", call("c1", "Edit"), "u"),
        user("r1", result("c1", "edited"), "a1", toolUseResult={"userModified": True}),
        answer("a2", call("c2"), "r1"),
        user("r2", result("c2", "exit 1", is_error=True), "a2"),
        answer("a3", call("c3", "Write"), "r2"),
        user("r3", result("c3", refusal, is_error=True), "a3"),
        user("i", [{"type": "text", "text": "[Request interrupted by user for tool use]"}], "r3"),
    )
    assert trace.attributes == {"interrupted": "true", "num_refused_calls": "1", "num_edits_changed_by_user": "1"}
    assert said(trace)[-2:] == [(Role.TOOL, refusal), (Role.USER, "[Request interrupted by user for tool use]")]


def test_prompts_queued_while_the_agent_worked_and_answers_cut_off_are_read() -> None:
    queued: Line = {"type": "attachment", "uuid": "q", "parentUuid": "a", "sessionId": "s"}
    cut = answer("a", "I will", "u")
    cut["message"] = {**cut["message"], "stop_reason": "max_tokens"}  # type: ignore[dict-item]
    trace = session(
        user("u", "go"),
        cut,
        queued | {"attachment": {"type": "queued_command", "prompt": "tests too", "commandMode": "prompt"}},
        {"type": "queue-operation", "operation": "enqueue", "content": "tests too", "sessionId": "s"},
        {"type": "custom-title", "customTitle": "Tidy up", "sessionId": "s"},
    )
    assert [message.content for message in trace.messages] == ["go", "I will", "tests too"]
    assert trace.attributes == {"title": "Tidy up", "finish_reason": "max_tokens", "num_truncated_turns": "1"}


def test_no_record_of_another_format_is_claimed() -> None:
    for folder in ("langfuse", "openai-chat", "openhands-v1", "otlp", "swe-agent-traj", "mini-swe-agent", "mlflow"):
        for file in sample_files(folder):
            records = [item.value for item in split_records(file.read_bytes()) if isinstance(item, Record)]
            assert not any(map(claude_code.match, records)), file


def test_nesting_deeper_than_can_be_stored_is_a_rejection() -> None:
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    line = answer("a", {"type": "tool_use", "id": "c", "name": "f", "input": {"x": deep}})
    (rejection,) = parse(json.dumps(line).encode())
    assert isinstance(rejection, Rejection)
    assert rejection.reason is RejectionReason.UNREADABLE


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "u1", "<command-name>", "\ud800", "1e999"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "text", "content"]), inner),
    max_leaves=5,
)
GOOD = [user("u1", "go"), answer("a1", call("c1"), "u1"), user("r1", result("c1"), "a1"), answer("a2", "done", "r1")]
OUTER = ["type", "uuid", "parentUuid", "sessionId", "isSidechain", "timestamp", "message", "attachment", "toolUseResult"]
INNER = ["id", "model", "content", "usage", "stop_reason"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(GOOD), st.sampled_from(OUTER + INNER), WRONG), min_size=1, max_size=6))
def test_mangled_lines_never_raise_and_can_always_be_stored(changes: list[tuple[Line, str, object]]) -> None:
    lines = []
    for line, field, value in changes:
        inner: Line = {"message": {**line["message"], field: value}}  # type: ignore[dict-item]
        lines.append({**line, field: value} if field in OUTER else {**line, **inner})
    for item in parse("\n".join(map(json.dumps, lines)).encode()):
        if isinstance(item, Trace):
            assert trace_from_row(trace_to_row(item)) == item
        else:
            assert rejection_from_row(rejection_to_row(item)) == item

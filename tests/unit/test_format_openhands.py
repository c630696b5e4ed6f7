import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import parse_file
from pipelines.traces.model import Outcome, Rejection, RejectionReason, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Event = dict[str, object]


def parse(data: bytes) -> list[Trace | Rejection]:
    return list(parse_file(data, location="somewhere"))


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def only(data: bytes) -> Trace:
    (trace,) = parse(data)
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "openhands"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def sample(folder: str, name: str) -> bytes:
    (path,) = [path for path in sample_files(folder) if path.name == name]
    return path.read_bytes()


def event(kind: str, number: int, source: str = "agent", /, **fields: object) -> Event:
    return {"kind": kind, "id": f"e{number}", "timestamp": f"2026-06-16T05:39:{number:02}", "source": source, **fields}


def said(number: int, text: str, source: str = "user", **fields: object) -> Event:
    message = {"role": "user" if source == "user" else "assistant", "content": [{"type": "text", "text": text}]}
    return event("MessageEvent", number, source, llm_message=message, **fields)


def call(number: int, response: str, **fields: object) -> Event:
    made = {"id": f"c{number}", "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}
    return event("ActionEvent", number, thought=[], tool_name="terminal", tool_call=made, llm_response_id=response, **fields)


def result(number: int, action: int, text: str, **fields: object) -> Event:
    observation = {"content": [{"type": "text", "text": text}], "is_error": False}
    answered: Event = {
        "tool_name": "terminal",
        "tool_call_id": f"c{action}",
        "action_id": f"e{action}",
        "observation": observation,
    }
    return event("ObservationEvent", number, "environment", **answered, **fields)


def state(number: int, key: str, value: object) -> Event:
    return event("ConversationStateUpdateEvent", number, "environment", key=key, value=value)


def contents(trace: Trace) -> list[str | None]:
    return [message.content for message in trace.messages]


def test_the_v1_sample_keeps_calls_and_the_result_whose_call_is_missing_and_counts_usage_once() -> None:
    trace = only(sample("openhands-v1", "events.jsonl"))
    assert [message.role for message in trace.messages] == [Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.ASSISTANT, Role.TOOL]
    ids = ["chatcmpl-tool-9d0341c7a033ae28", "chatcmpl-tool-9051d3d10f914188", "chatcmpl-tool-9fa678118a57807d"]
    assert [message.tool_call_id for message in trace.messages if message.role is Role.TOOL] == ids
    (first,) = trace.messages[0].tool_calls
    assert first.raw_arguments.startswith('{"security_risk": "LOW", "summary": "Build session URL')
    assert (trace.messages[0].content or "").startswith("I'll help you review PR #3745")
    assert trace.messages[3].content is None
    assert trace.usage == Usage(107458, 1347, 68193)
    assert (trace.model, trace.outcome, trace.duration_s) == ("litellm_proxy/minimax-m2.7", Outcome.UNKNOWN, 42.365548)
    assert trace.attributes["failed_tools"].count("terminal: Cannot execute multiple commands") == 2
    assert set(trace.attributes) == {"failed_tools"}


def test_a_state_file_is_no_run() -> None:
    (rejection,) = parse(sample("openhands-v1", "base_state.json"))
    assert isinstance(rejection, Rejection)
    assert rejection.reason is RejectionReason.UNKNOWN_FORMAT


def test_the_v0_sample_is_one_conversation_with_the_call_as_the_model_made_it() -> None:
    trace = only(sample("openhands-v0", "basic_interactions.json"))
    assert [message.role for message in trace.messages] == [Role.USER, Role.ASSISTANT] * 3
    (finish,) = trace.messages[-1].tool_calls
    assert (finish.name, finish.id, finish.raw_arguments) == ("finish", "call_IpyczPgEAwtpRWFZ2RNokTdH", "{}")
    assert (trace.usage, trace.model) == (Usage(2473, 10, 2304), "gpt-4o-2024-08-06")


@pytest.mark.parametrize("as_list", [True, False])
def test_actions_of_one_response_are_one_message_and_results_stand_behind_it(as_list: bool) -> None:
    events = [said(0, "go"), result(3, 1, "one"), call(1, "r"), result(4, 2, "two"), said(5, "wait"), call(2, "r"), call(6, "s")]
    trace = only(json.dumps(events).encode() if as_list else lines(*events))
    assert [(m.role, m.content, [c.id for c in m.tool_calls]) for m in trace.messages] == [
        (Role.USER, "go", []),
        (Role.ASSISTANT, None, ["c1", "c2"]),
        (Role.TOOL, "one", []),
        (Role.TOOL, "two", []),
        (Role.USER, "wait", []),
        (Role.ASSISTANT, None, ["c6"]),
    ]


def test_a_call_id_used_again_is_answered_at_the_call_before_it() -> None:
    answers = [{**result(number, 1, f"answer {number}"), "action_id": None} for number in (2, 4)]
    trace = only(lines(call(1, "r"), answers[0], {**call(3, "s"), "tool_call": call(1, "s")["tool_call"]}, answers[1]))
    assert contents(trace) == [None, "answer 2", None, "answer 4"]


def test_errors_and_refusals_answer_their_calls_and_the_prompt_carries_tools() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [
        {"title": "terminal", "kind": "TerminalTool"},
        {"title": "read", "mcp_tool": {"name": "read", "inputSchema": schema}},
    ]
    prompt = event("SystemPromptEvent", 0, system_prompt={"type": "text", "text": "You code"}, tools=tools)
    error = event("AgentErrorEvent", 3, tool_name="terminal", tool_call_id="c1", error="no such tool")
    refusal = event("UserRejectObservation", 4, "user", tool_name="terminal", tool_call_id="c2", rejection_reason="not that")
    trace = only(lines(prompt, said(9, "go", extended_content=[{"text": "skill"}]), call(1, "r"), call(2, "r"), error, refusal))
    assert contents(trace) == ["You code", "go\nskill", None, "no such tool", "not that"]
    assert [message.tool_call_id for message in trace.messages[-2:]] == ["c1", "c2"]
    assert [(tool.name, tool.parameters) for tool in trace.tools] == [("terminal", {}), ("read", schema)]
    assert trace.attributes["failed_tools"] == "terminal: no such tool"


def test_a_conversation_error_is_a_failure_unless_the_run_went_on() -> None:
    failed = [said(0, "go"), event("ConversationErrorEvent", 1, "environment", code="MaxIterationsReached", detail="500 steps")]
    trace = only(lines(*failed, state(2, "execution_status", "error")))
    assert (trace.outcome, trace.error, trace.attributes["exit_status"]) == (Outcome.FAILURE, "500 steps", "MaxIterationsReached")
    trace = only(lines(*failed, state(2, "execution_status", "finished")))
    assert (trace.outcome, trace.error, trace.attributes["exit_status"]) == (Outcome.UNKNOWN, None, "finished")
    full = {"id": "conv", "execution_status": "stuck", "agent": {"llm": {"model": "m"}}, "workspace": {"working_dir": "/w"}}
    trace = only(lines(said(0, "go"), state(1, "full_state", full)))
    assert (trace.id, trace.conversation_id, trace.outcome, trace.model) == ("conv", "conv", Outcome.FAILURE, "m")
    assert trace.attributes["cwd"] == "/w"


def test_repeated_events_count_once_and_branches_that_were_taken_back_are_left_out() -> None:
    tree = [
        said(0, "go"),
        said(1, "bad", "agent", parent_id="e0"),
        said(2, "worse", parent_id="e1"),
        said(3, "ok", "agent", parent_id="e0"),
    ]
    assert contents(only(lines(*tree, tree[0]))) == ["go", "ok"]
    circle = [said(0, "a", parent_id="e1"), said(1, "b", parent_id="e0"), said(2, "c", parent_id="gone")]
    assert contents(only(lines(*circle))) == ["a", "b", "c"]


def test_conversations_are_told_apart_where_events_name_them() -> None:
    results = parse(
        lines(said(0, "one", conversation_id="a"), said(1, "two", conversation_id="b"), said(2, "more", conversation_id="a"))
    )
    assert [contents(r) for r in results if isinstance(r, Trace)] == [["one", "more"], ["two"]]


def test_the_critics_last_score_is_feedback() -> None:
    scored = [said(n, "done", "agent", critic_result={"score": score, "message": "hm"}) for n, score in ((1, 0.9), (2, 0.2))]
    assert [(f.name, f.value, f.source) for f in only(lines(said(0, "go"), *scored)).feedback] == [("critic", 0.2, "llm_judge")]


def old(number: int, source: str, **fields: object) -> Event:
    return {"id": number, "timestamp": f"2025-02-01T00:14:{number:02}", "source": source, "message": "", **fields}


def metadata(call_id: str, *calls: str) -> Event:
    made = [
        {"id": name, "type": "function", "function": {"name": "execute_bash", "arguments": '{"command": "ls"}'}} for name in calls
    ]
    message = {"role": "assistant", "content": "look", "tool_calls": made}
    response = {
        "id": "r1",
        "model": "m",
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    return {"tool_call_id": call_id, "function_name": "execute_bash", "model_response": response}


V0_RUN = [
    old(
        0,
        "agent",
        action="system",
        args={"content": "You code", "tools": [{"type": "function", "function": {"name": "execute_bash"}}]},
    ),
    old(1, "user", action="message", args={"content": "fix it"}),
    old(2, "environment", observation="recall", content="Added workspace context", extras={"repo_name": "x/y"}),
    old(3, "agent", action="run", args={"command": "ls", "thought": "look"}, tool_call_metadata=metadata("c1", "c1", "c2")),
    old(5, "agent", observation="run", content="a.py", cause=3, extras={}, tool_call_metadata=metadata("c1", "c1", "c2")),
    old(4, "agent", action="run", args={"command": "ls", "thought": ""}, tool_call_metadata=metadata("c2", "c1", "c2")),
    old(6, "agent", observation="error", content="no", cause=4, extras={}, tool_call_metadata=metadata("c2", "c1", "c2")),
    old(7, "agent", action="edit", args={"path": "a.py", "thought": "now edit"}),
    old(8, "agent", observation="edit", content="edited", cause=7, extras={}),
    old(
        9,
        "environment",
        observation="agent_state_changed",
        content="",
        extras={"agent_state": "error", "reason": "out of budget"},
    ),
]


def test_v0_events_are_ordered_by_number_and_calls_without_metadata_are_read_from_the_action() -> None:
    trace = only(json.dumps(V0_RUN).encode())
    assert [(m.role, m.content, m.tool_call_id) for m in trace.messages] == [
        (Role.SYSTEM, "You code", None),
        (Role.USER, "fix it", None),
        (Role.ASSISTANT, "look", None),
        (Role.TOOL, "a.py", "c1"),
        (Role.TOOL, "no", "c2"),
        (Role.ASSISTANT, "now edit", None),
        (Role.TOOL, "edited", "event 7"),
    ]
    assert [(c.name, c.id) for m in trace.messages for c in m.tool_calls] == [
        ("execute_bash", "c1"),
        ("execute_bash", "c2"),
        ("edit", "event 7"),
    ]
    assert trace.messages[5].tool_calls[0].arguments == {"path": "a.py"}
    assert (trace.usage, trace.outcome, trace.error) == (Usage(5, 2), Outcome.FAILURE, "out of budget")
    assert (trace.attributes["repository"], trace.attributes["failed_tools"]) == ("x/y", "execute_bash: no")


def test_an_evaluation_line_is_a_run_with_its_instance_and_the_verdict_of_its_tests() -> None:
    line = {
        "instance_id": "x__y-1",
        "instance": {"repo": "x/y", "base_commit": "abc"},
        "history": V0_RUN,
        "metrics": {"accumulated_cost": 0.5},
        "metadata": {"llm_config": {"model": "m2"}},
        "test_result": {"git_patch": "diff", "report": {"resolved": False}},
        "error": None,
    }
    first, second = parse(lines(line, {**line, "test_result": {"report": {"resolved": True}}}))
    assert isinstance(first, Trace)
    assert isinstance(second, Trace)
    assert (first.outcome, second.outcome, len(first.messages)) == (Outcome.FAILURE, Outcome.SUCCESS, 7)
    wanted = {"instance_id": "x__y-1", "repository": "x/y", "base_commit": "abc", "submission": "diff", "cost_usd": "0.5"}
    assert wanted.items() <= first.attributes.items()


def test_two_v0_conversations_in_one_file_are_refused() -> None:
    (rejection,) = parse(lines(V0_RUN[1], {**V0_RUN[1], "args": {"content": "another"}}))
    assert isinstance(rejection, Rejection)
    assert "several conversations" in rejection.detail


def test_nesting_that_cannot_be_stored_is_refused() -> None:
    (rejection,) = parse(lines(said(0, "go", deep=json.loads("[" * 300 + "]" * 300))))
    assert isinstance(rejection, Rejection)
    assert rejection.detail == "no JSON: nested too deeply: more than 100 levels"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["agent", "user", "e1", "c1", "message", "run", "{", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "text", "id", "role", "tool_calls", "choices", "message", "arguments"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
GOOD = [said(0, "go"), call(1, "r"), result(2, 1, "one"), state(3, "stats", {"usage_to_metrics": {}}), *V0_RUN]
KEYS = st.sampled_from(sorted({key for good in GOOD for key in good}))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(GOOD), st.dictionaries(KEYS, VALUES, max_size=3)), min_size=1, max_size=5))
def test_mangled_events_are_traces_or_rejections(changed: list[tuple[Event, Event]]) -> None:
    events = [{**good, **changes} for good, changes in changed]
    for data in (lines(*events), json.dumps({"history": events, "instance_id": "i"}).encode()):
        for found in parse(data):
            assert isinstance(found, Rejection) or trace_from_row(trace_to_row(found)) == found

import json
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import langsmith, parse_file
from pipelines.traces.model import Message, Outcome, Rejection, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files


def lc(kind: str, **kwargs: object) -> dict[str, object]:
    """A message as LangChain serialises it."""
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


ASK = lc("HumanMessage", content="refund order 7")
RAW = '{"order_id":  "7"}'
CALLED = lc(
    "AIMessage",
    content="",
    tool_calls=[{"name": "refund", "args": {"order_id": "7"}, "id": "c1", "type": "tool_call"}],
    additional_kwargs={"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": RAW}}]},
    usage_metadata={"input_tokens": 20, "output_tokens": 5, "input_token_details": {"cache_read": 8}},
    response_metadata={"token_usage": {"prompt_tokens": 20, "completion_tokens": 5}, "finish_reason": "tool_calls"},
)
RESULT = lc("ToolMessage", content="refunded", tool_call_id="c1", name="refund")
DONE = lc("AIMessage", content="Done.")


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(*records: object) -> Trace:
    (trace,) = parse(*records)
    assert isinstance(trace, Trace), trace
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def run(path: str, kind: str, **fields: object) -> dict[str, object]:
    """A run row; its path names it, its parents, and (by the number in each name) the second each began in."""
    names = path.split("/")
    dotted = ".".join(f"20261130T2100{int(name[1:]):02}000000Z{name}" for name in names)
    base = {"id": names[-1], "trace_id": names[0], "parent_run_id": names[-2] if len(names) > 1 else None, "run_type": kind}
    return {**base, "dotted_order": dotted, "name": names[-1], "start_time": "2026-11-30T21:00:00", "error": None, **fields}


def generated(message: object, **llm_output: object) -> dict[str, object]:
    return {"generations": [[{"text": "", "type": "ChatGeneration", "message": message}]], "llm_output": llm_output or None}


def agent_rows() -> list[dict[str, object]]:
    """A LangChain agent: two model runs with a tool between them, all said to start at the same time."""
    metadata = {"thread_id": "conv", "user_id": "u1", "ls_model_name": "gpt-x", "repository": "acme/shop"}
    root = run("r0", "chain", name="agent", extra={"metadata": metadata}, session_id="project", tags=["prod"])
    root |= {
        "inputs": {"messages": [ASK]},
        "outputs": {"messages": [ASK, CALLED, RESULT, DONE]},
        "end_time": "2026-11-30T21:00:04",
    }
    root |= {"prompt_tokens": 60, "completion_tokens": 12, "feedback_stats": {"thumbs": {"n": 1, "avg": 0.0, "comments": ["no"]}}}
    params = {"tools": [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}], "model": "gpt-x"}
    first = run("r0/m1", "llm", inputs={"messages": [[ASK]]}, extra={"invocation_params": params})
    first["outputs"] = generated(CALLED, token_usage={"prompt_tokens": 20, "completion_tokens": 5}, model_name="gpt-x-2026")
    tool = run("r0/t2", "tool", name="refund", inputs={"input": "{'order_id': '7'}"}, outputs={"output": RESULT})
    last = run("r0/m3", "llm", inputs={"messages": [[ASK, CALLED, RESULT]]}, outputs=generated(DONE))
    last |= {"prompt_tokens": 40, "completion_tokens": 7}
    return [last, tool, root, first]


def test_the_samples_patch_completes_the_post_and_usage_is_counted_once() -> None:
    files = sample_files("langsmith")
    first, second = (trace for file in files for trace in parse_file(file.read_bytes(), location="somewhere"))
    assert isinstance(first, Trace)
    assert isinstance(second, Trace)
    assert first.id == "d0d84d31-923d-4cb5-94a8-40a0a0087578"
    assert first.messages == (Message(Role.USER, "howdy"), Message(Role.ASSISTANT, "Howdy! How can I assist you today?"))
    assert (first.usage, first.model, first.source.format) == (Usage(9, 9, 0), "gpt-4o-mini-2024-07-18", "langsmith")
    assert first.started_at == datetime(2024, 10, 11, 20, 58, 23, 298773, UTC)
    assert (first.duration_s, first.attributes["finish_reason"], first.outcome) == (1.118333, "stop", Outcome.UNKNOWN)
    assert (len(second.messages), second.usage) == (2, Usage(43, 2497, 0))


def test_an_agents_runs_are_one_conversation_in_dotted_order() -> None:
    trace = only(*agent_rows())
    assert [message.role.value for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    (call,) = trace.messages[1].tool_calls
    assert (call.name, call.raw_arguments, call.arguments, call.id) == ("refund", RAW, {"order_id": "7"}, "c1")
    assert trace.messages[2] == Message(Role.TOOL, "refunded", tool_call_id="c1")
    assert trace.usage == Usage(20 + 40, 5 + 7, None)
    assert (trace.model, [tool.name for tool in trace.tools]) == ("gpt-x-2026", ["refund"])
    assert (trace.conversation_id, trace.user, trace.attributes["project_id"]) == ("conv", "u1", "project")
    assert (trace.attributes["repository"], trace.duration_s) == ("acme/shop", 4.0)
    assert [(f.name, f.value, f.source, f.rationale) for f in trace.feedback] == [("thumbs", 0.0, "code", "no")]


def test_export_rows_with_json_in_strings_say_the_same() -> None:
    rows = agent_rows()
    written = [{k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in item.items()} for item in rows]
    assert only(*written).messages == only(*rows).messages
    assert only(*written).feedback == only(*rows).feedback


def test_a_tools_result_that_only_its_own_run_holds_stands_behind_its_call() -> None:
    asked = run("r0/m1", "llm", inputs={"messages": [[ASK]]}, outputs=generated(CALLED))
    tool = run("r0/t2", "tool", name="refund", outputs={"output": "refunded"})
    assert only(asked, tool).messages[-1] == Message(Role.TOOL, "refunded", tool_call_id="c1")
    failed = only(asked, {**tool, "outputs": None, "error": "TimeoutError()"})
    assert (failed.messages[-1].content, failed.attributes["failed_tools"]) == ("TimeoutError()", "refund: TimeoutError()")
    assert failed.outcome is Outcome.UNKNOWN


def test_a_patch_may_come_before_its_post_and_in_another_body() -> None:
    post = run("r0", "llm", inputs={"messages": [{"role": "user", "content": "hi"}]}, outputs={}, extra={"metadata": {"a": "1"}})
    patch = {"id": "r0", "trace_id": "r0", "dotted_order": post["dotted_order"], "end_time": "2026-11-30T21:00:02"}
    patch |= {"outputs": {"role": "assistant", "content": "hello", "usage_metadata": {"input_tokens": 3, "output_tokens": 2}}}
    patch |= {"extra": {"metadata": {"b": "2"}}, "inputs": None}
    trace = only({"post": [], "patch": [patch]}, {"post": [post]})
    assert [message.content for message in trace.messages] == ["hi", "hello"]
    assert (trace.usage, trace.attributes["a"], trace.attributes["b"]) == (Usage(3, 2, None), "1", "2")


def test_a_patch_that_names_no_trace_belongs_to_the_post_beside_it() -> None:
    post = run("r0/m1", "llm", inputs={"prompts": ["System: be brief\nHuman: hi"]})
    done = {"id": "m1", "outputs": {"generations": [[{"text": "hello", "generation_info": {"finish_reason": "length"}}]]}}
    trace = only({"post": [post], "patch": [{**done, "dotted_order": ""}]})
    assert [(m.role.value, m.content) for m in trace.messages] == [("system", "be brief"), ("user", "hi"), ("assistant", "hello")]
    assert (trace.id, trace.attributes["finish_reason"], trace.attributes["num_truncated_turns"]) == ("r0", "length", "1")


def test_a_body_with_runs_of_two_traces_gives_two() -> None:
    body = {"post": [run(name, "llm", inputs={"messages": [[ASK]]}, outputs=generated(DONE)) for name in ("a0", "b0")]}
    assert [trace.id for trace in parse(body) if isinstance(trace, Trace)] == ["a0", "b0"]


def test_a_failed_root_fails_the_run_but_a_pause_for_a_person_does_not() -> None:
    model = run("r0/m1", "llm", inputs={"messages": [[ASK]]}, outputs=generated(DONE))
    failed = only(run("r0", "chain", error="ValueError('no order')"), model)
    assert (failed.outcome, failed.error) == (Outcome.FAILURE, "ValueError('no order')")
    paused = only(run("r0", "chain", error="GraphInterrupt((Interrupt(value='ok?'),))", status="error"), model)
    assert (paused.outcome, paused.error) == (Outcome.UNKNOWN, None)


def test_feedback_rows_tell_who_judged_and_a_correction_is_an_expectation() -> None:
    model = run("r0", "llm", inputs={"messages": [[ASK]]}, outputs=generated(DONE))
    model["feedback_stats"] = {
        "correct": {"n": 1, "avg": 0},
        "tone": {"n": 1, "values": {"rude": 1}, "sources": ['{"type": "model"}']},
    }
    row = {"id": "f1", "run_id": "r0", "trace_id": "r0", "key": "correct", "score": 0, "comment": "order 8"}
    row |= {
        "feedback_source": {"type": "app", "user_id": "ann"},
        "correction": {"name": "refund", "arguments": {"order_id": "8"}},
    }
    trace = only(model, row)
    assert [(f.name, f.value, f.source, f.rationale) for f in trace.feedback] == [
        ("correct", 0, "human", "order 8"),
        ("tone", "rude", "llm_judge", None),
    ]
    assert [(e.name, e.value, e.author) for e in trace.expectations] == [("correct", row["correction"], "ann")]


def test_a_broken_call_that_langchain_set_aside_stays_a_call() -> None:
    broken = lc("AIMessage", content="", invalid_tool_calls=[{"name": "refund", "args": '{"order', "id": "c9", "error": "bad"}])
    trace = only(run("r0", "llm", inputs={"messages": [[ASK]]}, outputs=generated(broken)))
    (call,) = trace.messages[-1].tool_calls
    assert (call.name, call.arguments, call.raw_arguments, call.id) == ("refund", None, '{"order', "c9")


def test_dumped_messages_nested_children_and_lists_of_runs_are_read() -> None:
    said = {"messages": [{"type": "system", "content": "s"}, {"type": "human", "data": {"content": "hi"}}]}
    child = run("r0/m1", "llm", inputs=said, outputs={"message": {"type": "ai", "content": [{"type": "text", "text": "yo"}]}})
    trace = only({"runs": [{**run("r0", "chain"), "child_runs": [child]}], "cursors": {}})
    assert [(m.role.value, m.content) for m in trace.messages] == [("system", "s"), ("user", "hi"), ("assistant", "yo")]


def test_runs_without_a_dotted_order_go_by_parent_and_clock_and_circles_end() -> None:
    rows = [
        run("r0/m2", "llm", start_time="2026-11-30T21:00:02", inputs={"messages": [[ASK, DONE, ASK]]}, outputs=generated(DONE)),
        run("r0/m1", "llm", start_time="2026-11-30T21:00:01", inputs={"messages": [[ASK]]}, outputs=generated(DONE)),
        run("r0/x3", "chain", parent_run_id="x4"),
        run("r0/x4", "chain", parent_run_id="x3"),
    ]
    trace = only(*[{**item, "dotted_order": None} for item in rows])
    assert [message.content for message in trace.messages] == ["refund order 7", "Done.", "refund order 7", "Done."]


def test_a_trace_without_a_model_run_falls_back_on_its_first_run() -> None:
    trace = only(run("r0", "chain", inputs={"question": "why?"}, outputs={"output": "because"}))
    assert [message.content for message in trace.messages] == ["why?", "because"]


def test_records_of_other_formats_are_not_claimed() -> None:
    folders = ("claude-code", "inspect-ai", "langfuse", "litellm-log", "mini-swe-agent", "mlflow", "openai-chat")
    for folder in (*folders, "openhands-v0", "openhands-v1", "openinference", "otlp", "swe-agent-traj"):
        for file in sample_files(folder):
            for line in (file.read_text(), *file.read_text().split("\n")):
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                for item in value if isinstance(value, list) else [value]:
                    assert langsmith.match(item) == 0, file.name


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
# fmt: off
NAMES = [
    "id", "trace_id", "parent_run_id", "dotted_order", "run_type", "inputs", "outputs", "extra", "metadata", "error", "tags",
    "start_time", "end_time", "feedback_stats", "messages", "generations", "message", "lc", "kwargs", "content", "type", "role",
    "tool_calls", "usage_metadata", "llm_output", "token_usage", "values", "avg", "sources", "child_runs", "post",
    "patch", "runs",
    "invocation_params", "tools", "name", "args", "prompts", "run_id", "key", "score", "feedback_source", "correction",
]
WORDS = ["llm", "tool", "chain", "r0", "m1", "user", "ai", "HumanMessage", "NaN", "1e999", "[[{}]]", '{"role":"user"}',
    "r0Z.Z", "app"]
# fmt: on
LIKELY = st.recursive(
    JSON_VALUES | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=16,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(agent_rows()), st.dictionaries(st.sampled_from(NAMES), LIKELY, max_size=4)), max_size=5)
)
def test_mangled_rows_never_raise_and_what_is_read_can_be_stored(
    mangled: list[tuple[dict[str, object], dict[str, object]]],
) -> None:
    rows = [{**good, **bad} for good, bad in mangled]
    for result in parse(*rows, {"post": rows, "patch": [bad for _, bad in mangled]}, {"runs": rows}):
        if isinstance(result, Trace):
            assert trace_from_row(trace_to_row(result)) == result

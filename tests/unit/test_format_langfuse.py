import csv
import io
import json
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import langfuse, parse_file
from pipelines.traces.formats.langfuse import read_turns, result_text
from pipelines.traces.model import Message, Outcome, Rejection, RejectionReason, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

SYSTEM = {"role": "system", "content": "be brief"}
ASK = {"role": "user", "content": "refund order 7"}
CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": "7"}'}}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "refunded"}
DONE = {"role": "assistant", "content": "Done."}


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(*records: object) -> Trace:
    (trace,) = parse(*records)
    assert isinstance(trace, Trace), trace
    return trace


def sample(name: str) -> Trace:
    (file,) = (file for file in sample_files("langfuse") if file.name.startswith(name))
    (trace,) = parse_file(file.read_bytes(), location="somewhere")
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "langfuse"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def row(number: int, kind: str = "GENERATION", parent: str | None = "root", **fields: object) -> dict[str, object]:
    """An observation row of the bulk export; its number is its id and the second it started in."""
    start = f"2026-11-30 21:00:{number:02}.000000"
    base = {"id": f"o{number}", "trace_id": "t1", "parent_observation_id": parent, "type": kind, "start_time": start}
    return {**base, "end_time": f"2026-11-30 21:00:{number:02}.500000", "name": f"step {number}", "level": "DEFAULT", **fields}


ROOT = row(0, "SPAN", None, id="root")


def roles(trace: Trace) -> list[str]:
    return [message.role.value for message in trace.messages]


def texts(trace: Trace) -> list[str | None]:
    return [message.content for message in trace.messages]


def test_a_claude_agent_export_is_ordered_and_its_tool_results_stand_behind_their_calls() -> None:
    trace = sample("claude-agent")
    assert roles(trace) == ["system", "user", "assistant", "assistant", "tool", "assistant", "tool", "assistant"]
    calls = [call for message in trace.messages for call in message.tool_calls]
    assert [(call.name, call.arguments) for call in calls] == [
        ("mcp__weather__get_weather", {"city": "Berlin"}),
        ("mcp__weather__get_weather", {"city": "New York"}),
    ]
    assert [m.tool_call_id for m in trace.messages if m.role is Role.TOOL] == [call.id for call in calls]
    assert trace.messages[4].content == "Weather in Berlin: Cloudy, 59°F"
    assert (trace.usage, trace.model) == (Usage(34, 232, None), "claude-sonnet-4-5-20250929")
    assert [(f.name, f.value, f.source) for f in trace.feedback] == [
        ("correctness", 0, "llm_judge"),
        ("hallucination", 1, "llm_judge"),
        ("toxicity", 0, "llm_judge"),
    ]
    assert trace.duration_s == 7.36


def test_responses_items_of_an_openai_agents_export_become_one_conversation() -> None:
    trace = sample("openai-agents")
    assert roles(trace) == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = trace.messages[2].tool_calls
    assert (call.name, call.raw_arguments, call.id) == ("get_weather", '{"city":"Tokyo"}', "call_Kud0j0DxWSmLzv9W5m6qVqXn")
    assert (trace.messages[0].content, trace.messages[3].tool_call_id) == ("You are a helpful agent.", call.id)
    assert (trace.usage, [tool.name for tool in trace.tools]) == (Usage(140, 44, 0), ["get_weather"])


def test_a_pydantic_ai_export_tells_the_longest_conversation_and_counts_the_usage_of_all_generations_once() -> None:
    trace = sample("pydantic-ai")
    assert roles(trace) == ["system", "user", "assistant", "tool", "tool", "tool", "assistant", "user", "assistant"]
    assert len(trace.messages[2].tool_calls) == 3
    assert texts(trace)[-1] == "Why do programmers hate nature?  \nIt has too many bugs!"
    assert trace.usage == Usage(265 + 417 + 502 + 131, 73 + 53 + 14 + 69, None)
    assert (len(trace.tools), trace.attributes["num_conversations"]) == (5, "2")


def test_an_autogen_export_whose_prompt_is_one_text_is_cut_at_its_speakers() -> None:
    trace = sample("autogen")
    assert roles(trace) == ["system", "user", "assistant"]
    assert texts(trace)[1:] == ["Say 'Hello World!'", "Hello World!"]
    assert (trace.user, trace.conversation_id, trace.usage) == ("user_123", "session_abc", Usage(41, 3, None))
    assert trace.attributes["tags"] == "autogen, dev"


def bulk_rows() -> list[dict[str, object]]:
    """A run in the bulk export, its rows out of order, one written twice; its tool's result only in the tool's own row."""
    first = row(
        1, input=json.dumps([SYSTEM, ASK]), output=json.dumps(ANSWER), usage_details={"input": 10, "output": 5, "total": 15}
    )
    last = row(3, input=json.dumps([SYSTEM, ASK, ANSWER, RESULT]), output=json.dumps(json.dumps(DONE)))
    last |= {"usage_details": {"input": 8, "input_cached_tokens": 12, "output": 2, "output_reasoning_tokens": 1, "total": 23}}
    score = {"id": "s1", "trace_id": "t1", "name": "thumbs", "value": 0, "string_value": None, "data_type": "BOOLEAN"}
    scores = [
        {**score, "source": "ANNOTATION", "comment": "wrong order"},
        {**score, "id": "s2", "name": "tone", "data_type": "CATEGORICAL", "string_value": "rude", "source": "EVAL"},
        {**score, "id": "s3", "name": "cost", "data_type": "NUMERIC", "value": 0.25, "source": "API"},
    ]
    tool = row(2, "TOOL", name="refund", input='{"order_id": "7"}', output="refunded")
    trace: dict[str, object] = {
        "id": "t1",
        "timestamp": "2026-11-30 21:00:00.000000",
        "name": "support",
        "user_id": "u1",
        "session_id": "conv",
    }
    trace |= {"bookmarked": False, "public": False, "tags": ["a"], "release": "v2", "metadata": {"repository": "acme/shop"}}
    agent = row(0, "AGENT", None, id="root", usage_details={"input": 99, "output": 99})
    return [last, *scores, tool, first, agent, trace, {**first, "output": None, "usage_details": {}}]


def test_rows_of_one_trace_are_one_run_whatever_their_order() -> None:
    trace = only(*bulk_rows())
    assert trace.id == "t1"
    assert roles(trace) == ["system", "user", "assistant", "tool", "assistant"]
    assert texts(trace)[-1] == "Done."
    assert trace.usage == Usage(10 + 20, 5 + 3, 12)
    assert [(f.name, f.value, f.source, f.rationale) for f in trace.feedback] == [
        ("thumbs", False, "human", "wrong order"),
        ("tone", "rude", "llm_judge", None),
        ("cost", 0.25, "code", None),
    ]
    assert (trace.user, trace.conversation_id, trace.attributes["repository"]) == ("u1", "conv", "acme/shop")
    assert (trace.started_at, trace.duration_s) == (datetime(2026, 11, 30, 21, tzinfo=UTC), 3.5)


def test_rows_that_were_csv_say_the_same() -> None:
    rows = bulk_rows()
    written = [{k: v if isinstance(v, str) else "" if v is None else json.dumps(v) for k, v in item.items()} for item in rows]
    by_kind: dict[frozenset[str], list[dict[str, str]]] = {}
    for item in written:
        by_kind.setdefault(frozenset(item), []).append(item)
    read: list[object] = []
    for names, items in by_kind.items():
        table = io.StringIO()
        writer = csv.DictWriter(table, sorted(names))
        writer.writeheader()
        writer.writerows(items)
        read.extend(csv.DictReader(io.StringIO(table.getvalue())))
    from_csv, from_json = only(*read), only(*rows)
    assert (from_csv.messages, from_csv.usage, set(map(repr, from_csv.feedback))) == (
        from_json.messages,
        from_json.usage,
        set(map(repr, from_json.feedback)),
    )


def test_interleaved_traces_are_told_apart_and_an_enriched_row_names_user_and_session() -> None:
    other = {"trace_id": "t2", "user_id": "u2", "session_id": "s2", "trace_name": "billing"}
    one, two = parse(row(1, input=[ASK], output=DONE), row(1, parent="", input=[ASK], output=DONE, **other), ROOT)
    assert isinstance(one, Trace)
    assert isinstance(two, Trace)
    assert (one.id, two.id, two.user, two.conversation_id, two.attributes["name"]) == ("t1", "t2", "u2", "s2", "billing")


def test_a_score_of_no_trace_and_scores_without_their_run_are_rejected() -> None:
    score = {
        "id": "s",
        "trace_id": None,
        "name": "csat",
        "value": 1,
        "string_value": None,
        "data_type": "NUMERIC",
        "source": "API",
    }
    found = parse(score, {**score, "id": "s2", "trace_id": "t9"})
    assert [item.reason for item in found if isinstance(item, Rejection)] == [
        RejectionReason.INVALID_RECORD,
        RejectionReason.EMPTY,
    ]


def test_a_correction_is_an_expectation_and_no_feedback() -> None:
    score = {"id": "s", "traceId": "t1", "name": "output", "value": 0, "dataType": "CORRECTION", "longStringValue": "Refund 8."}
    trace = only({"trace": {"id": "t1", "projectId": "p", "corrections": [{**score, "authorUserId": "ann"}]}, "observations": [
        row(1, input=[ASK], output=DONE)
    ]})  # fmt: skip
    assert [(e.name, e.value, e.author) for e in trace.expectations] == [("corrected_output", "Refund 8.", "ann")]
    assert trace.feedback == ()


def test_a_failed_tool_is_a_fact_and_a_failed_root_is_the_runs_error() -> None:
    tool = row(2, "TOOL", name="refund", level="ERROR", status_message="timeout", input={"order_id": "7"})
    asked = row(1, input=[ASK], output=ANSWER)
    trace = only(ROOT, asked, tool, row(3, input=[], output=DONE))
    assert (trace.outcome, trace.attributes["failed_tools"]) == (Outcome.UNKNOWN, "refund: timeout")
    assert trace.messages[2] == Message(Role.TOOL, "timeout", tool_call_id="c1")
    failed = only({**ROOT, "level": "ERROR", "status_message": "429 too many requests"}, asked)
    assert (failed.outcome, failed.error) == (Outcome.FAILURE, "429 too many requests")


def test_a_generation_that_was_retried_is_no_failure_and_is_told_once() -> None:
    first = row(1, input=[ASK], output=None, level="ERROR", status_message="429")
    trace = only(ROOT, first, row(2, input=[ASK], output=DONE))
    assert (texts(trace), trace.error) == (["refund order 7", "Done."], None)
    resampled = only(ROOT, row(1, input=[ASK], output=ANSWER), row(2, input=[ASK], output=DONE))
    assert texts(resampled) == ["refund order 7", "Done."]


def test_a_generation_around_another_repeats_it() -> None:
    usage = {"input": 7, "output": 3}
    outer = row(1, input=[ASK], output="Done.", usage_details=usage)
    inner = row(2, parent="o1", input=[ASK], output=DONE, usage_details=usage)
    trace = only(ROOT, outer, inner)
    assert (len(trace.messages), trace.usage, "num_conversations" in trace.attributes) == (2, Usage(7, 3, None), False)


def test_a_sub_agent_that_a_tool_began_is_not_the_conversation_however_long_it_is() -> None:
    asked = row(1, input=[ASK], output=ANSWER)
    tool = row(2, "TOOL", name="refund", input={"order_id": "7"}, output="refunded")
    inner = [{"role": "user", "content": "sub"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    trace = only(ROOT, asked, tool, row(3, parent="o2", input=[*inner, *inner[1:]], output=DONE))
    assert texts(trace) == ["refund order 7", None, "refunded"]


def test_a_history_that_was_cut_short_is_not_told_twice() -> None:
    first = row(1, input=[SYSTEM, ASK, ANSWER, RESULT], output=DONE)
    more = {"role": "user", "content": "and order 8"}
    trace = only(ROOT, first, row(2, input=[SYSTEM, RESULT, DONE, more], output={"role": "assistant", "content": "No."}))
    assert texts(trace) == ["be brief", "refund order 7", None, "refunded", "Done.", "and order 8", "No."]


def test_circles_orphans_and_rows_without_a_time_are_all_read() -> None:
    circle = [row(1, "SPAN", "o2"), row(2, "SPAN", "o1"), row(3, parent="o2", input=[ASK], output=DONE), row(4, "SPAN", "gone")]
    own = row(5, parent="o5", start_time=None, input=[ASK, DONE, ASK], output=DONE)
    assert texts(only(*circle, own)) == ["refund order 7", "Done.", "refund order 7", "Done."]


def test_a_run_without_generations_falls_back_on_what_the_trace_says() -> None:
    trace = only({**ROOT, "input": '{"question": "why?"}', "output": '"\\"because\\""'})
    assert trace.messages == (Message(Role.USER, "why?"), Message(Role.ASSISTANT, "because"))


def test_tools_that_langchains_callback_appends_to_the_messages_are_tools() -> None:
    spec = {"type": "function", "function": {"name": "refund", "description": "d", "parameters": {"type": "object"}}}
    trace = only(ROOT, row(1, input=[ASK, {"role": "tool", "content": spec}], output=DONE))
    assert (roles(trace), [tool.name for tool in trace.tools]) == (["user", "assistant"], ["refund"])


def test_anthropic_blocks_keep_calls_and_results_and_leave_thinking_out() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "u1", "name": "look", "input": {"q": 1}},
    ]
    back = [
        {"type": "tool_result", "tool_use_id": "u1", "content": [{"type": "text", "text": "seen"}]},
        {"type": "text", "text": "go"},
    ]
    request = {"system": "s", "messages": [{"role": "assistant", "content": blocks}, {"role": "user", "content": back}]}
    system, answer, result, user = read_turns(json.dumps(request), Role.USER)
    assert (system.role, answer.content, answer.tool_calls[0].arguments) == (Role.SYSTEM, "Let me see.", {"q": 1})
    assert (result, user.content) == (Message(Role.TOOL, "seen", tool_call_id="u1"), "go")


def test_gemini_pydantic_vercel_and_autogen_shapes_are_read() -> None:
    gemini = {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]}]}
    pydantic = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": '{"a": 1}', "tool_call_id": "p"}]},
    ]
    vercel = [{"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "v", "toolName": "f", "input": {"a": 1}}]}]
    autogen = [
        {"type": "AssistantMessage", "content": [{"id": "g", "name": "f", "arguments": '{"a": 1}'}], "source": "x"},
        {"type": "FunctionExecutionResultMessage", "content": [{"call_id": "g", "content": "ok", "name": "f"}]},
    ]
    for shape in (gemini, pydantic, vercel, autogen):
        turns = read_turns(json.dumps(shape), Role.USER)
        (call,) = [call for message in turns for call in message.tool_calls]
        assert (call.name, call.arguments) == ("f", {"a": 1})
    assert turns[1] == Message(Role.TOOL, "ok", tool_call_id="g")


def test_a_tools_result_keeps_its_own_text_when_that_is_json() -> None:
    assert result_text('{"temp":  5}') == '{"temp":  5}'
    assert result_text({"output": {"type": "tool", "content": "5", "tool_call_id": "c"}}) == "5"
    assert result_text('{"content": [{"type": "text", "text": "5"}]}') == "5"


def test_arguments_that_were_cut_off_or_nest_without_end_stay_raw() -> None:
    deep = '{"a":' * 700 + "1" + "}" * 700
    calls = [{"id": n, "function": {"name": "f", "arguments": text}} for n, text in (("c1", '{"a": '), ("c2", deep))]
    trace = only(ROOT, row(1, input=[ASK], output={"role": "assistant", "content": None, "tool_calls": calls}))
    assert [(call.arguments, call.raw_arguments) for call in trace.messages[1].tool_calls] == [(None, '{"a": '), (None, deep)]


def test_text_that_would_be_json_nested_beyond_storing_stays_text() -> None:
    deep = "[" * 200 + "]" * 200
    (found,) = parse(ROOT, row(1, input=deep, output=DONE))
    assert isinstance(found, Trace)
    assert deep in [message.content for message in found.messages]


def test_records_of_other_formats_are_not_claimed() -> None:
    folders = ("claude-code", "inspect-ai", "langsmith", "litellm-log", "mini-swe-agent", "mlflow", "openai-chat")
    for folder in (*folders, "openhands-v0", "openhands-v1", "openinference", "otlp", "swe-agent-traj"):
        for file in sample_files(folder):
            for line in (file.read_text(), *file.read_text().split("\n")):
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                for item in value if isinstance(value, list) else [value]:
                    assert langfuse.match(item) == 0, file.name


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
# fmt: off
NAMES = [
    "id", "trace_id", "parent_observation_id", "type", "name", "start_time", "end_time", "input", "output", "level",
    "metadata", "usage_details", "model", "role", "content", "tool_calls", "function", "arguments", "parts", "kind",
    "messages", "choices", "message", "text", "source", "value", "string_value", "data_type", "observations", "trace",
    "scores", "corrections", "projectId", "tags", "tool_definitions", "system", "prompt", "lc", "kwargs", "call_id",
]
# fmt: on
# fmt: off
WORDS = [
    "GENERATION", "TOOL", "SPAN", "ERROR", "o1", "t1", "user", "assistant", "tool", "API", "CORRECTION", "BOOLEAN",
    "tool_use", "tool_result", "function_call", "text", "request", "NaN", "1e999", "[[{}]]", '{"role":"user"}',
    '{"content":[{"type":"text"}]}',
]
# fmt: on
LIKELY = st.recursive(
    JSON_VALUES | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=16,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(bulk_rows()), st.dictionaries(st.sampled_from(NAMES), LIKELY, max_size=4)), max_size=5))
def test_mangled_rows_never_raise_and_what_is_read_can_be_stored(
    mangled: list[tuple[dict[str, object], dict[str, object]]],
) -> None:
    rows = [{**good, **bad} for good, bad in mangled]
    for result in parse(*rows, {"trace": {"id": "t1", "projectId": "p"}, "observations": rows}):
        if isinstance(result, Trace):
            assert trace_from_row(trace_to_row(result)) == result

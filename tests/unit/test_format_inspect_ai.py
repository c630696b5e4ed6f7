import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.traces.formats import detect, parse_file
from pipelines.traces.model import Outcome, Rejection, RejectionReason, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files

Fields = dict[str, object]
SPEC = {"eval_id": "e", "run_id": "r", "task": "t", "model": "openai/m"}
CALL = {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}
ASK: dict[str, JsonValue] = {"role": "user", "content": "fix it", "source": "input"}
SAMPLE: Fields = {
    "id": "s1",
    "epoch": 1,
    "input": "fix it",
    "target": ["a", "b"],
    "messages": [ASK, {"role": "assistant", "content": "look", "tool_calls": [CALL]}],
    "output": {"model": "m", "choices": [{"message": {"role": "assistant", "content": "done"}, "stop_reason": "max_tokens"}]},
    "scores": {"includes": {"value": "I", "answer": "x", "explanation": "x is wrong"}},
}


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(*records: object) -> Trace:
    (trace,) = parse(*records)
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "inspect_ai"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def log(*samples: Fields, **fields: object) -> Fields:
    return {"version": 2, "status": "success", "eval": SPEC, "samples": list(samples), **fields}


def sample(**changes: object) -> Fields:
    return {**SAMPLE, **changes}


def test_the_sample_log_is_one_run_with_its_score_target_and_usage_counted_once() -> None:
    trace = only(json.loads(sample_files("inspect-ai")[0].read_bytes()))
    assert [message.role for message in trace.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT]
    assert trace.messages[2].content == "Yes\n"
    assert (trace.id, trace.model, trace.usage) == ("8rN5WC55fErMswTifp3eVJ", "ollama/gemma3", Usage(66, 3))
    assert [(f.name, f.value, f.source, f.rationale) for f in trace.feedback] == [("match", "C", "code", "Yes\n")]
    assert (trace.started_at, trace.duration_s) == (datetime(2025, 7, 5, 13, 59, 40, 952956, UTC), 2.113)
    assert (trace.outcome, trace.error) == (Outcome.UNKNOWN, None)
    assert trace.attributes == {
        "target": " Yes",
        "task": "popularity",
        "task_version": "0",
        "task_repository": "git@github.com:UKGovernmentBEIS/inspect_ai.git",
        "task_commit": "2c576e260",
        "dataset": "popularity",
        "eval_id": "hj8C8q8gxzHhwyCT67xh4L",
        "sample_id": "1",
        "epoch": "1",
        "inspect_version": "0.3.95.dev16+g6527d0861",
        "finish_reason": "stop",
    }


def test_each_sample_and_epoch_is_a_run_and_a_repeated_log_counts_once_as_last_written() -> None:
    first = log(sample(), sample(epoch=2), sample(id=7))
    results = parse(first, log(sample(messages=[ASK, ASK])))
    assert [result.id for result in results if isinstance(result, Trace)] == ["e/s1/1", "e/s1/2", "e/7/1"]
    assert [len(result.messages) for result in results if isinstance(result, Trace)] == [2, 2, 2]
    assert isinstance(results[0], Trace)
    assert results[0].messages[1].role is Role.USER
    assert results[0].attributes["target"] == '["a","b"]'


def test_a_sample_alone_is_a_run_with_the_same_score() -> None:
    trace = only(SAMPLE)
    assert (trace.model, [(f.name, f.value) for f in trace.feedback]) == ("m", [("includes", "I")])


@pytest.mark.parametrize("samples", [{"samples": []}, {"samples": None}])
def test_a_log_that_failed_before_its_samples_is_refused_with_the_reason(samples: Fields) -> None:
    (rejection,) = parse({**log(), "status": "error", "error": {"message": "no such model"}, **samples})
    assert isinstance(rejection, Rejection)
    assert rejection.reason is RejectionReason.INVALID_RECORD
    assert rejection.detail == "the log (status 'error') has no samples: no such model"


def test_calls_results_and_reasoning_are_read_as_the_model_saw_them() -> None:
    problem = 'Error parsing the following tool call arguments:\n\n{"cmd": "ls\n\nError details: Unterminated string'
    broken = {"id": "c2", "function": "bash", "arguments": {}, "parse_error": problem}
    thought = [{"type": "reasoning", "reasoning": "hm", "signature": "s"}, {"type": "text", "text": "look"}]
    messages = [
        {"role": "user", "content": "read attachment://0123456789abcdef0123456789abcdef"},
        {"role": "assistant", "content": thought, "tool_calls": [CALL, broken]},
        {"role": "tool", "content": "a.py", "tool_call_id": "c1", "function": "bash"},
        {
            "role": "tool",
            "content": "",
            "tool_call_id": "c2",
            "function": "bash",
            "error": {"type": "parsing", "message": problem},
        },
    ]
    event = {"event": "model", "tools": [{"name": "bash", "description": "runs", "parameters": {"type": "object"}}]}
    attachments = {"0123456789abcdef0123456789abcdef": "the long text"}
    trace = only(log(sample(messages=messages, events=[event, event], attachments=attachments)))
    assert [message.content for message in trace.messages] == ["read the long text", "look", "a.py", problem]
    first, second = trace.messages[1].tool_calls
    assert (first.name, first.arguments, first.raw_arguments) == ("bash", {"cmd": "ls"}, '{"cmd":"ls"}')
    assert (second.id, second.arguments, second.raw_arguments) == ("c2", None, '{"cmd": "ls')
    assert [message.tool_call_id for message in trace.messages] == [None, None, "c1", "c2"]
    assert [(tool.name, tool.description) for tool in trace.tools] == [("bash", "runs")]
    assert trace.attributes["failed_tools"].startswith("bash: Error parsing")


def test_errors_and_limits_are_failures_and_say_why() -> None:
    error = only(log(sample(error={"message": "sandbox died", "traceback": "..."})))
    assert (error.outcome, error.error) == (Outcome.FAILURE, "sandbox died")
    limit = only(log(sample(limit={"type": "message", "limit": 30})))
    assert (limit.outcome, limit.error, limit.attributes["exit_status"], limit.attributes["limit"]) == (
        Outcome.FAILURE,
        None,
        "message_limit",
        "30",
    )
    assert limit.attributes["finish_reason"] == "max_tokens"


def test_who_judged_is_told_from_the_scorer_and_from_edits() -> None:
    edited = {"value": "C", "history": [{"value": "I"}, {"value": "C", "provenance": {"author": "ann"}}]}
    scores = {"model_graded_qa": {"value": "P"}, "quality": {"value": 0.5}, "fixed": edited, "tests": {"value": {"a": 1}}}
    results = {"scores": [{"name": "quality", "scorer": "model_graded_fact"}]}
    trace = only(log(sample(scores=scores), results=results))
    assert [(f.name, f.value, f.source) for f in trace.feedback] == [
        ("model_graded_qa", "P", "llm_judge"),
        ("quality", 0.5, "llm_judge"),
        ("fixed", "C", "human"),
        ("tests", {"a": 1}, "code"),
    ]


def test_the_evaluated_model_is_counted_and_its_grader_is_not() -> None:
    used = {"openai/m": {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 4}, "grader": {"input_tokens": 100}}
    assert only(log(sample(model_usage=used))).usage == Usage(5, 2, 4)


def test_a_sample_without_messages_falls_back_on_input_and_output() -> None:
    assert [message.content for message in only(log(sample(messages=[]))).messages] == ["fix it", "done"]


def test_other_records_with_the_same_words_are_left_alone() -> None:
    assert detect({"eval": {"task": "t"}, "samples": [], "status": "error"}) is None
    assert detect({"id": 1, "messages": [ASK], "output": {}}) != "inspect_ai"


def test_nesting_that_cannot_be_stored_is_refused() -> None:
    (rejection,) = parse(sample(deep=json.loads("[" * 300 + "]" * 300)))
    assert isinstance(rejection, Rejection)
    assert rejection.detail == "no JSON: nested too deeply: more than 100 levels"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["user", "tool", "attachment://", "C", "{"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "value", "message", "openai/m", "input_tokens", "event", "tools"]), inner
        )
    ),
    max_leaves=8,
)
KEYS = st.sampled_from([*SAMPLE, "events", "error", "limit", "model_usage", "attachments", "metadata", "total_time", "uuid"])


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["eval", "results", "samples"]), VALUES, max_size=1),
)
def test_mangled_logs_are_traces_or_rejections(changes: Fields, header: Fields) -> None:
    for result in parse({**log(sample(**changes)), **header}, sample(**changes)):
        assert isinstance(result, Rejection) or trace_from_row(trace_to_row(result)) == result

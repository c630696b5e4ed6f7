from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from pipelines.errors import ConfigError
from pipelines.rewards.model import Split
from pipelines.rewards.synthesis import SkipReason, SynthesisOptions, build_reward_tasks
from pipelines.rewards.verifiers import verify
from pipelines.traces.model import EdgeCase, Expectation, Message, Role, Source, ToolCall, ToolSpec, Trace

REFUND = ToolSpec(
    "refund",
    "Refund an order.",
    {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "amount": {"type": "number", "minimum": 0}},
        "required": ["order_id", "amount"],
    },
)
LOOKUP = ToolSpec("lookup", "", {"type": "object", "properties": {"order_id": {"type": "string"}}})
CORRECTION: JsonValue = {"name": "refund", "arguments": {"order_id": "A1", "amount": 5}}
WRONG = Message(Role.ASSISTANT, None, (ToolCall("lookup", {"order_id": "A1"}, '{"order_id": "A1"}'),))
SYSTEM = Message(Role.SYSTEM, "You help.")
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def case(
    correction: JsonValue = CORRECTION,
    *,
    messages: tuple[Message, ...] = (SYSTEM, Message(Role.USER, "Refund 5 for A1"), WRONG),
    tools: tuple[ToolSpec, ...] = (REFUND, LOOKUP),
    trace_id: str = "tr-1",
    days: int = 0,
    name: str = "expected_tool_call",
) -> EdgeCase:
    trace = Trace(
        id=trace_id,
        messages=messages,
        tools=tools,
        source=Source("mlflow", "1", "mlflow"),
        expectations=(Expectation(name, correction, "operator"),),
        started_at=WHEN + timedelta(days=days),
    )
    return EdgeCase(trace, (), "wrong_tool", 0.5)


def skip_reason(edge_case: EdgeCase) -> SkipReason:
    built = build_reward_tasks([edge_case], SynthesisOptions())
    assert not built.tasks
    assert not built.sft_rows
    return built.skipped[0].reason


def test_a_correction_becomes_a_task_and_a_supervised_row() -> None:
    tasks, rows, skipped = build_reward_tasks([case()], SynthesisOptions())
    assert not skipped
    (task,), (row,) = tasks, rows
    assert task.kind == "tool_call"
    assert task.prompt == (SYSTEM, Message(Role.USER, "Refund 5 for A1"))
    assert task.arguments == CORRECTION
    assert (task.split, task.cluster, task.provenance, task.occurred_at) == (Split.TRAIN, "wrong_tool", ("tr-1",), WHEN)
    assert (row.task_id, row.source, row.provenance) == (task.id, "correction", ("tr-1",))
    assert verify(task, row.answer).score == 1.0
    assert verify(task, WRONG).passed is False


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "refund", "arguments": {"order_id": "A1", "amount": 5}}',
        [CORRECTION],
        {"type": "function", "function": {"name": "refund", "arguments": '{"order_id": "A1", "amount": 5}'}},
        {"name": "refund", "arguments": {"order_id": "A1", "amount": 5}, "comment": "seen by Ann"},
    ],
)
def test_a_correction_is_read_however_people_write_it(written: JsonValue) -> None:
    (task,) = build_reward_tasks([case(written)], SynthesisOptions()).tasks
    assert task.arguments == CORRECTION


@pytest.mark.parametrize(
    ("correction", "reason"),
    [
        ({"name": "refund", "arguments": {"order_id": "A1"}}, SkipReason.INVALID_EXPECTATION),
        ({"name": "refund", "arguments": {"order_id": "A1", "amount": -5}}, SkipReason.INVALID_EXPECTATION),
        ({"name": "refund", "arguments": {"order_id": "A1", "amount": 5, "amuont": 5}}, SkipReason.INVALID_EXPECTATION),
        ({"name": "delete_all", "arguments": {}}, SkipReason.UNKNOWN_TOOL),
        ([CORRECTION, CORRECTION], SkipReason.SEVERAL_CALLS),
        ([], SkipReason.SEVERAL_CALLS),
        ("refund it", SkipReason.UNREADABLE_EXPECTATION),
        ({"arguments": {}}, SkipReason.UNREADABLE_EXPECTATION),
        (None, SkipReason.UNREADABLE_EXPECTATION),
        ({"name": "lookup", "arguments": {"order_id": "a1"}}, SkipReason.FAILED_ANSWER_PASSES),
    ],
)
def test_a_correction_that_cannot_be_verified_is_skipped_with_its_reason(correction: JsonValue, reason: SkipReason) -> None:
    assert skip_reason(case(correction)) is reason


def test_a_case_without_a_correction_is_skipped() -> None:
    assert skip_reason(case(name="expected_text")) is SkipReason.NO_EXPECTATION


def test_a_schema_that_points_elsewhere_is_skipped_and_nothing_is_downloaded() -> None:
    elsewhere = ToolSpec("refund", "", {"$ref": "http://192.0.2.1/schema.json"})
    assert skip_reason(case(tools=(elsewhere,))) is SkipReason.UNUSABLE_SCHEMA
    assert skip_reason(case(tools=(ToolSpec("refund", "", {"type": "no-such-type"}),))) is SkipReason.UNUSABLE_SCHEMA


def test_a_prompt_that_is_too_long_or_not_encodable_is_skipped() -> None:
    built = build_reward_tasks([case()], SynthesisOptions(max_prompt_chars=10))
    assert built.skipped[0].reason is SkipReason.PROMPT_TOO_LONG
    assert skip_reason(case(messages=(Message(Role.USER, "\ud800"), WRONG))) is SkipReason.NOT_SERIALISABLE
    assert skip_reason(case(messages=(SYSTEM, WRONG))) is SkipReason.NO_PROMPT


def test_a_run_that_answered_nothing_gives_a_task_with_the_whole_prompt() -> None:
    (task,) = build_reward_tasks([case(messages=(SYSTEM, Message(Role.USER, "Refund 5 for A1")))], SynthesisOptions()).tasks
    assert len(task.prompt) == 2


def test_the_prompt_ends_before_the_first_call_of_the_expected_tool_in_the_last_request() -> None:
    wrong_amount = Message(Role.ASSISTANT, None, (ToolCall("refund", {"order_id": "A1", "amount": 9}, "{}"),))
    messages = (Message(Role.USER, "hi"), WRONG, Message(Role.USER, "Refund"), WRONG, Message(Role.TOOL, "{}"), wrong_amount)
    (task,) = build_reward_tasks([case(messages=messages)], SynthesisOptions()).tasks
    assert task.prompt == messages[:5]
    at_turn: JsonValue = {"name": "refund", "arguments": {"order_id": "A1", "amount": 5}, "turn": 0}
    (named,) = build_reward_tasks([case(at_turn, messages=messages)], SynthesisOptions()).tasks
    assert named.prompt == messages[:1]


def test_the_same_failure_twice_is_one_task_of_both_traces() -> None:
    tasks, rows, skipped = build_reward_tasks([case(), case(trace_id="tr-2", days=3)], SynthesisOptions())
    assert not skipped
    assert [t.provenance for t in tasks] == [("tr-1", "tr-2")] == [r.provenance for r in rows]
    assert tasks[0].occurred_at == WHEN + timedelta(days=3)


def test_two_different_corrections_of_one_prompt_are_both_refused() -> None:
    other: JsonValue = {"name": "refund", "arguments": {"order_id": "A1", "amount": 6}}
    built = build_reward_tasks([case(), case(other, trace_id="tr-2")], SynthesisOptions())
    assert not built.tasks
    assert not built.sft_rows
    assert {(s.trace_id, s.reason) for s in built.skipped} == {("tr-1", SkipReason.CONFLICTING), ("tr-2", SkipReason.CONFLICTING)}


def test_an_unknown_kind_or_option_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="have tool_call"):
        build_reward_tasks([], SynthesisOptions(kinds={"haiku": {}}))
    with pytest.raises(ConfigError, match="option expectaton"):
        build_reward_tasks([], SynthesisOptions(kinds={"tool_call": {"expectaton": "x"}}))

"""Real Great Expectations on real frames."""

import re
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.validation import require_valid, validate
from pipelines.errors import InfrastructureError, ValidationFailed
from pipelines.rewards.expectations import (
    ExpectationOptions,
    Rule,
    Suite,
    task_frame,
    tasks_suite,
    trace_frame,
    traces_suite,
)
from pipelines.rewards.model import RewardDataset, RewardTask, SftRow, Split
from pipelines.traces.model import Message, Role, Source, ToolCall, Trace

OPTIONS = ExpectationOptions(min_train_tasks=4, min_holdout_tasks=3)


def task(number: int, split: Split) -> RewardTask:
    return RewardTask(
        id=f"t{number}",
        kind="tool_call",
        prompt=(Message(Role.USER, f"refund number {number}"),),
        tools=(),
        verifier="tool_call",
        arguments={"name": "refund", "arguments": {"n": number}},
        split=split,
        group=f"g{number}",
        cluster="wrong_tool",
        provenance=(f"tr-{number}",),
    )


def row(of: RewardTask) -> SftRow:
    return SftRow(of.prompt, of.tools, Message(Role.ASSISTANT, "x"), of.id, "correction", of.provenance)


TASKS = (*(task(n, Split.TRAIN) for n in range(4)), *(task(n, Split.HOLDOUT) for n in range(4, 7)))
GOOD = RewardDataset(TASKS, tuple(row(t) for t in TASKS[:4]))


def test_a_good_dataset_passes_and_its_data_docs_are_a_site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = validate(task_frame(GOOD), tasks_suite(OPTIONS), docs_folder=tmp_path / "docs")
    assert [check.rule for check in outcome.checks if not check.passed] == []
    assert outcome.success
    assert outcome.num_rows == 7
    require_valid(outcome)
    assert outcome.docs is not None
    assert "reward_tasks" in outcome.docs.read_text(encoding="utf-8")
    (page,) = (tmp_path / "docs" / "validations").rglob("*.html")
    assert "a group stands in one split" in page.read_text(encoding="utf-8")
    captured = capfd.readouterr()
    assert not re.search(r"\d+%\|", captured.out + captured.err)


BAD = {
    "no task twice": replace(GOOD, tasks=(*TASKS, TASKS[0])),
    "a group stands in one split": replace(GOOD, tasks=(*TASKS[:-1], replace(TASKS[-1], group="g0"))),
    "a prompt stands in one split": replace(GOOD, tasks=(*TASKS[:-1], replace(TASKS[-1], prompt=TASKS[0].prompt))),
    "prompts say something and fit": replace(GOOD, tasks=(*TASKS[:-1], replace(TASKS[-1], prompt=(Message(Role.USER, ""),)))),
    "every verifier exists and accepts its arguments": replace(GOOD, tasks=(*TASKS[:-1], replace(TASKS[-1], arguments={}))),
    "supervised rows are of training tasks only": replace(GOOD, sft_rows=(row(TASKS[-1]),)),
    "no supervised row without its task": replace(GOOD, sft_rows=(row(task(99, Split.TRAIN)),)),
    "enough held-out tasks": replace(GOOD, tasks=TASKS[:-1]),
    "every task has a group": replace(GOOD, tasks=(replace(TASKS[0], group=""), *TASKS[1:])),
    "every task comes from a trace": replace(GOOD, tasks=(replace(TASKS[0], provenance=()), *TASKS[1:])),
}


@pytest.mark.parametrize("rule", BAD)
def test_a_bad_dataset_is_stopped_by_the_rule_it_breaks(rule: str) -> None:
    outcome = validate(task_frame(BAD[rule]), tasks_suite(OPTIONS))
    assert rule in [check.rule for check in outcome.failed]
    assert not outcome.broken
    with pytest.raises(ValidationFailed, match=re.escape(rule)):
        require_valid(outcome)


def test_a_broken_check_is_told_from_bad_data() -> None:
    suite = Suite("s", (Rule("a column nobody has", "ExpectColumnValuesToNotBeNull", {"column": "zz"}),))
    outcome = validate(task_frame(GOOD), suite)
    assert not outcome.success
    assert outcome.failed == ()
    assert "zz" in outcome.broken[0].error
    with pytest.raises(InfrastructureError, match="could not run: a column nobody has"):
        require_valid(outcome)


def test_an_empty_dataset_is_stopped() -> None:
    outcome = validate(task_frame(RewardDataset((), ())), tasks_suite(OPTIONS))
    assert "there are tasks" in [check.rule for check in outcome.failed]


def trace(number: int) -> Trace:
    messages = (
        Message(Role.USER, "hi"),
        Message(Role.ASSISTANT, None, (ToolCall("look", {}, "{}", "c1"),)),
        Message(Role.TOOL, "{}", tool_call_id="c1"),
    )
    return Trace(f"tr-{number}", messages, Source("file", "a.jsonl", "openai_chat"), started_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_traces_have_a_suite_of_their_own() -> None:
    good = [trace(n) for n in range(5)]
    outcome = validate(trace_frame(good), traces_suite(OPTIONS))
    assert [c for c in outcome.checks if not c.passed] == []
    bad = [*good, trace(0), replace(trace(7), messages=(), duration_s=-1.0)]
    failed = [check.rule for check in validate(trace_frame(bad), traces_suite(OPTIONS)).failed]
    assert failed == ["no trace twice", "every trace has a message", "no negative duration"]


def test_validation_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage statistics are off: a socket that cannot connect changes nothing."""
    addresses: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _self, address: addresses.append(address))
    assert validate(task_frame(GOOD), tasks_suite(OPTIONS)).success
    assert addresses == []

"""The pure steps from edge cases to a dataset, in the order the stage runs them."""

from datetime import UTC, datetime, timedelta

from pipelines.rewards.decontamination import DecontaminationOptions, Material, decontaminate
from pipelines.rewards.expectations import task_frame
from pipelines.rewards.model import Split
from pipelines.rewards.splits import LinkedTask, SplitOptions, assign_splits, keep_training_rows, linking_keys, shared_values
from pipelines.rewards.synthesis import SynthesisOptions, build_reward_tasks
from pipelines.rewards.verifiers import verify
from pipelines.traces.deduplication import near_duplicate_groups, user_text
from pipelines.traces.model import EdgeCase, Expectation, Message, Role, Source, ToolCall, ToolSpec, Trace

TOOL = ToolSpec("refund", "", {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]})
WORDINGS = (
    "please give me my money back for {}",
    "the parcel {} arrived in pieces, I want a refund",
    "cancel and repay order number {}",
    "nothing came of {} after three weeks, return what I paid",
    "our accountant says {} was charged twice",
    "I changed my mind about {}",
    "wrong colour in {}, reimburse it",
    "you promised to repay {} last week",
)


def edge_case(number: int) -> EdgeCase:
    order = f"ORD-{number:04}"
    messages = (
        Message(Role.SYSTEM, "You are the shop's support agent."),
        Message(Role.USER, WORDINGS[number % len(WORDINGS)].format(order)),
        Message(Role.ASSISTANT, None, (ToolCall("refund", {"order": order}, "{}"),)),
    )
    trace = Trace(
        id=f"tr-{number}",
        messages=messages,
        source=Source("mlflow", "1", "mlflow"),
        tools=(TOOL,),
        expectations=(Expectation("expected_tool_call", {"name": "refund", "arguments": {"order_id": order}}),),
        started_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number),
    )
    return EdgeCase(trace, (), "wrong_arguments:refund", 0.5)


def test_edge_cases_become_a_dataset_whose_hold_out_shares_no_wording_and_no_value_with_training() -> None:
    cases = [edge_case(n) for n in range(40)]
    traces = {case.trace.id: case.trace for case in cases}
    built = build_reward_tasks(cases, SynthesisOptions())
    assert (len(built.tasks), len(built.skipped)) == (40, 0)

    labels = near_duplicate_groups([user_text(traces[task.provenance[0]]) for task in built.tasks], 0.6)
    linked = [
        LinkedTask(task, linking_keys(task, [traces[t] for t in task.provenance], wording_group=label, group_by=("user",)))
        for task, label in zip(built.tasks, labels, strict=True)
    ]
    splits = assign_splits(linked, SplitOptions(holdout_share=0.3))
    protected = [Material("row", "completely other words about a parser of dates", {"instance_id": "toy__dates-1"})]
    clean = decontaminate(splits.tasks, protected, DecontaminationOptions(), traces=traces)
    dataset = keep_training_rows(clean.tasks, built.sft_rows)

    frame = task_frame(dataset)
    assert frame["num_splits_of_group"].max() == 1
    assert frame["sft_rows_allowed"].all()
    by_split = {split: {_wording(t.prompt) for t in dataset.tasks if t.split is split} for split in Split}
    assert by_split[Split.TRAIN]
    assert by_split[Split.HOLDOUT]
    assert not by_split[Split.TRAIN] & by_split[Split.HOLDOUT]
    assert shared_values(dataset.tasks) == ()
    assert len(dataset.sft_rows) == splits.count(Split.TRAIN) - len(clean.hits)
    answers = {row.task_id: row.answer for row in dataset.sft_rows}
    assert all(verify(t, answers[t.id]).passed for t in dataset.tasks if t.id in answers)


def _wording(prompt: tuple[Message, ...]) -> str:
    return " ".join(word for word in (prompt[-1].content or "").split() if "ORD-" not in word)

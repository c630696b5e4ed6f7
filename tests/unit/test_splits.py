from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.rewards.model import RewardTask, SftRow, Split
from pipelines.rewards.splits import (
    LinkedTask,
    SplitOptions,
    assign_splits,
    connected_components,
    keep_training_rows,
    linking_keys,
    shared_values,
)
from pipelines.traces.model import Message, Role, Source, ToolSpec, Trace

START = datetime(2026, 1, 1, tzinfo=UTC)
REASONS: JsonValue = {"type": "string", "enum": ["late", "broken"]}
TOOL = ToolSpec("refund", "", {"properties": {"order_id": {"type": "string"}, "reason": REASONS}})


def task(number: int, *, split: Split = Split.TRAIN, order_id: str = "A1", day: int | None = 0) -> RewardTask:
    return RewardTask(
        id=f"t{number:03}",
        kind="tool_call",
        prompt=(Message(Role.USER, f"request {number}"),),
        tools=(TOOL,),
        verifier="tool_call",
        arguments={"name": "refund", "arguments": {"order_id": order_id, "reason": "late", "quick": True}},
        split=split,
        group="",
        cluster="wrong_tool",
        provenance=(f"tr-{number}",),
        occurred_at=None if day is None else START + timedelta(days=day),
    )


def link(number: int, *keys: str, day: int | None = 0) -> LinkedTask:
    return LinkedTask(task(number, day=day), frozenset(keys or {f"wording:{number}"}))


def ids(tasks: tuple[RewardTask, ...], split: Split) -> set[str]:
    return {t.id for t in tasks if t.split is split}


LINKS = st.lists(
    st.tuples(
        st.integers(0, 60), st.lists(st.sampled_from([f"k{i}" for i in range(30)]), min_size=1, max_size=3), st.integers(0, 9)
    ),
    max_size=40,
    unique_by=lambda t: t[0],
).map(lambda rows: [link(number, *keys, day=day) for number, keys, day in rows])


@given(LINKS, LINKS, st.floats(0.05, 0.9), st.randoms())
def test_no_key_or_group_is_ever_in_two_splits_and_order_does_not_matter(
    new: list[LinkedTask],
    frozen: list[LinkedTask],
    share: float,
    random: object,
) -> None:
    options = SplitOptions(holdout_share=share)
    splits = assign_splits(new, options, frozen=frozen)
    by_id = {t.id: t for t in splits.tasks}
    frozen_ids = {f.task.id for f in frozen}
    kept = [*frozen, *(n for n in new if n.task.id not in frozen_ids)]
    assert by_id.keys() == {k.task.id for k in kept}

    splits_of_key: dict[str, set[Split]] = {}
    for kept_link in kept:
        for key in kept_link.keys:
            splits_of_key.setdefault(key, set()).add(by_id[kept_link.task.id].split)
    assert all(len(found) == 1 for found in splits_of_key.values())
    splits_of_group: dict[str, set[Split]] = {}
    for placed in splits.tasks:
        splits_of_group.setdefault(placed.group, set()).add(placed.split)
    assert all(len(found) == 1 for found in splits_of_group.values())

    assert all(by_id[task_id].split is Split.REGRESSION for task_id in frozen_ids)
    assert splits.count(Split.HOLDOUT) <= splits.holdout_target + max(1, int(splits.holdout_target * 0.2))
    assert assign_splits(new[::-1], options, frozen=frozen[::-1]) == splits


def test_the_newest_incidents_are_held_out() -> None:
    splits = assign_splits([link(n, day=n) for n in range(10)], SplitOptions(holdout_share=0.3))
    assert ids(splits.tasks, Split.HOLDOUT) == {"t007", "t008", "t009"}
    assert splits.holdout_target == 3
    assert splits.num_groups == 10


def test_tasks_without_a_time_count_as_the_oldest() -> None:
    splits = assign_splits([link(1, day=None), link(2, day=1)], SplitOptions(holdout_share=0.5))
    assert ids(splits.tasks, Split.HOLDOUT) == {"t002"}


def test_a_group_that_would_swallow_the_hold_out_trains_instead() -> None:
    new = [*(link(n, "user:busy", day=9) for n in range(8)), link(8, day=1), link(9, day=2)]
    splits = assign_splits(new, SplitOptions(holdout_share=0.2))
    assert ids(splits.tasks, Split.HOLDOUT) == {"t008", "t009"}
    assert splits.largest_group == 8


def test_a_new_task_tied_to_a_fixed_incident_joins_the_regression_suite() -> None:
    splits = assign_splits([link(1, "wording:7"), link(2)], SplitOptions(), frozen=[link(9, "wording:7")])
    assert ids(splits.tasks, Split.REGRESSION) == {"t001", "t009"}
    assert splits.joined_regression == ("t001",)


def test_the_least_number_of_held_out_tasks_wins_over_the_share() -> None:
    splits = assign_splits([link(n) for n in range(20)], SplitOptions(holdout_share=0.1, min_holdout=6, max_holdout=8))
    assert splits.count(Split.HOLDOUT) == 6


def test_components_are_joined_through_others() -> None:
    labels = connected_components([["a"], ["b"], ["a", "b"], ["c"]])
    assert labels[0] == labels[1] == labels[2] != labels[3]


def test_linking_keys_come_from_the_traces_that_made_the_task() -> None:
    trace = Trace(
        "tr-1", (), Source("mlflow", "1", "mlflow"), conversation_id="c1", user="u1", attributes={"repository": "acme/shop"}
    )
    keys = linking_keys(task(1), [trace], wording_group=4, group_by=("conversation", "user", "repository"))
    assert keys == {"wording:4", "conversation:c1", "user:u1", "repository:acme/shop"}
    assert linking_keys(task(1), [], wording_group=4, group_by=("cluster",)) == {"wording:4"}


def test_shared_values_are_reported_and_closed_choices_are_not() -> None:
    tasks = [task(1), task(2, split=Split.HOLDOUT, order_id=" a1"), task(3, split=Split.HOLDOUT, order_id="B2")]
    (shared,) = shared_values(tasks)
    assert (shared.argument, shared.value, shared.num_train, shared.num_holdout) == ("order_id", "a1", 1, 1)


def test_only_training_tasks_keep_their_supervised_rows() -> None:
    tasks = [task(1), task(2, split=Split.HOLDOUT)]
    rows = [SftRow(t.prompt, t.tools, Message(Role.ASSISTANT, "x"), t.id, "correction", t.provenance) for t in tasks]
    assert [r.task_id for r in keep_training_rows(tasks, rows).sft_rows] == ["t001"]

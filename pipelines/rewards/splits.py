"""Splits: which tasks train, which are held out, which guard against regressions.

Tasks that share a key (near-duplicate wording, conversation, user, repository) form one group, directly or through others, and a
group stands in one split only. The groups with the newest incidents are held out, until the target is met. Tasks frozen by an
earlier cycle keep the split `regression` for ever, and what is linked to one joins it: it can neither train nor count as unseen.
It refuses to measure wording itself: near-duplicate labels are an input.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipelines.rewards.model import RewardDataset, RewardTask, SftRow, Split
from pipelines.rewards.verifiers.tool_call import normalise_text
from pipelines.traces.model import Trace

KeyKind = Literal["conversation", "user", "repository", "cluster"]
OLDEST = datetime.min.replace(tzinfo=UTC)
OVERSHOOT = 0.2


class SplitOptions(BaseModel):
    """How much is held out, and what ties tasks together besides their wording."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    holdout_share: float = Field(0.3, gt=0.0, lt=1.0)
    """Share of the new tasks to hold out."""
    min_holdout: int = Field(0, ge=0)
    """Hold out at least this many, even if that is more than the share; 0: the share alone."""
    max_holdout: int | None = Field(None, ge=1)
    """Hold out at most about this many; None: no limit."""
    group_by: tuple[KeyKind, ...] = ("conversation", "user", "repository")
    """Which facts of a trace tie its tasks to others, besides near-duplicate wording. `cluster` holds out whole failure kinds."""


@dataclass(frozen=True, slots=True)
class LinkedTask:
    """A task with the keys that tie it to others."""

    task: RewardTask
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Splits:
    tasks: tuple[RewardTask, ...]
    """Every task with its split and group, sorted by id; the frozen ones are among them."""
    num_groups: int
    largest_group: int
    holdout_target: int
    """How many tasks were to be held out."""
    joined_regression: tuple[str, ...]
    """Ids of new tasks that went to the regression split because they are tied to a frozen one."""

    def count(self, split: Split) -> int:
        return sum(task.split is split for task in self.tasks)


def linking_keys(
    task: RewardTask, traces: Collection[Trace], *, wording_group: int | str, group_by: Sequence[KeyKind]
) -> frozenset[str]:
    """The keys of a task made from these traces, whose wording carries this near-duplicate label.

    Labels mean something only within one labelling: label the wording of new and frozen tasks together.
    """
    keys = {f"wording:{wording_group}"}
    for trace in traces:
        facts: dict[str, str | None] = {
            "conversation": trace.conversation_id,
            "user": trace.user,
            "repository": trace.attributes.get("repository"),
            "cluster": task.cluster,
        }
        keys |= {f"{kind}:{facts[kind]}" for kind in group_by if facts[kind]}
    return frozenset(keys)


def assign_splits(new: Sequence[LinkedTask], options: SplitOptions, *, frozen: Sequence[LinkedTask] = ()) -> Splits:
    """Assign split and group to every task; the same tasks in any order give the same result."""
    frozen_ids = {link.task.id for link in frozen}
    # The same task cannot be new and frozen; the frozen one stays as it was.
    unique = {link.task.id: link for link in new if link.task.id not in frozen_ids}
    links = sorted([*unique.values(), *frozen], key=lambda link: link.task.id)
    components = connected_components([link.keys for link in links])
    groups: dict[int, list[RewardTask]] = {}
    for link, component in zip(links, components, strict=True):
        groups.setdefault(component, []).append(link.task)

    regression = [g for g in groups.values() if any(t.id in frozen_ids for t in g)]
    free = [g for g in groups.values() if not any(t.id in frozen_ids for t in g)]
    target = holdout_target(sum(map(len, free)), options)
    held = _newest_groups(free, target)
    tasks = [
        *(_placed(task, group, Split.REGRESSION) for group in regression for task in group),
        *(_placed(task, group, Split.HOLDOUT if group[0].id in held else Split.TRAIN) for group in free for task in group),
    ]
    return Splits(
        tasks=tuple(sorted(tasks, key=lambda task: task.id)),
        num_groups=len(groups),
        largest_group=max(map(len, groups.values()), default=0),
        holdout_target=target,
        joined_regression=tuple(sorted(t.id for g in regression for t in g if t.id not in frozen_ids)),
    )


def holdout_target(num_tasks: int, options: SplitOptions) -> int:
    """How many of so many new tasks to hold out."""
    wanted = max(math.ceil(num_tasks * options.holdout_share), options.min_holdout)
    return min(wanted, options.max_holdout or wanted, num_tasks)


def connected_components(keys: Sequence[Collection[str]]) -> list[int]:
    """One label per item: items that share a key, directly or through others, share a label."""
    parent = list(range(len(keys)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    owner: dict[str, int] = {}
    for item, item_keys in enumerate(keys):
        for key in item_keys:
            first = owner.setdefault(key, item)
            parent[root(item)] = root(first)
    return [root(item) for item in range(len(keys))]


@dataclass(frozen=True, slots=True)
class SharedValue:
    """An argument value that stands in training and in the hold-out."""

    argument: str
    value: str
    num_train: int
    num_holdout: int


def shared_values(tasks: Sequence[RewardTask]) -> tuple[SharedValue, ...]:
    """Argument values that training and hold-out have in common, so that a gain could come from memory.

    Values from a closed choice (enum, const, boolean in the tool's schema) must be shared and are left out.
    """
    seen: dict[tuple[str, str], dict[Split, int]] = {}
    for task in tasks:
        for key in _open_values(task):
            counts = seen.setdefault(key, {})
            counts[task.split] = counts.get(task.split, 0) + 1
    return tuple(
        SharedValue(argument, value, counts[Split.TRAIN], counts[Split.HOLDOUT])
        for (argument, value), counts in sorted(seen.items())
        if Split.TRAIN in counts and Split.HOLDOUT in counts
    )


def keep_training_rows(tasks: Sequence[RewardTask], sft_rows: Sequence[SftRow]) -> RewardDataset:
    """A dataset of these tasks with the supervised rows of those that train; the other answers are not to be learned."""
    training = {task.id for task in tasks if task.split is Split.TRAIN}
    return RewardDataset(tuple(tasks), tuple(row for row in sft_rows if row.task_id in training))


def _newest_groups(groups: Sequence[list[RewardTask]], target: int) -> set[str]:
    """First task ids of the groups to hold out: newest first, skipping a group that would overshoot the target."""
    newest_first = sorted(groups, key=lambda g: (max(t.occurred_at or OLDEST for t in g), g[0].id), reverse=True)
    limit = target + max(1, int(target * OVERSHOOT))
    held: set[str] = set()
    count = 0
    for group in newest_first:
        if count >= target:
            break
        if count + len(group) <= limit:
            held.add(group[0].id)
            count += len(group)
    return held


def _placed(task: RewardTask, group: Sequence[RewardTask], split: Split) -> RewardTask:
    return replace(task, split=split, group=group[0].id)


def _open_values(task: RewardTask) -> set[tuple[str, str]]:
    arguments = task.arguments.get("arguments")
    if not isinstance(arguments, dict):
        return set()
    schema = next((tool.parameters for tool in task.tools if tool.name == task.arguments.get("name")), {})
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    return {(name, leaf) for name, value in arguments.items() if not _is_closed(declared.get(name)) for leaf in _leaves(value)}


def _is_closed(schema: JsonValue) -> bool:
    return isinstance(schema, dict) and ("enum" in schema or "const" in schema or schema.get("type") == "boolean")


def _leaves(value: JsonValue) -> set[str]:
    if isinstance(value, dict):
        return {leaf for part in value.values() for leaf in _leaves(part)}
    if isinstance(value, list):
        return {leaf for part in value for leaf in _leaves(part)}
    if isinstance(value, bool) or value is None:
        return set()
    return {normalise_text(str(value))}

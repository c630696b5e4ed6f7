"""What traces and reward tasks have to look like: expectation suites as data, and the flat frames they are checked on.

Owns the suites and the columns they speak of. It refuses to run them: `infra.validation` hands them to Great Expectations.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipelines.artifacts import digest
from pipelines.errors import ConfigError
from pipelines.rewards.model import RewardDataset, RewardTask, Split
from pipelines.rewards.verifiers import load_verifier, parse_options
from pipelines.traces.model import Outcome, Role, Trace


@dataclass(frozen=True, slots=True)
class Rule:
    """One expectation: a Great Expectations class and its arguments."""

    name: str
    """What is expected, for people; unique in its suite."""
    expectation: str
    """Class name in great_expectations.expectations."""
    arguments: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    rules: tuple[Rule, ...]


class ExpectationOptions(BaseModel):
    """The limits the suites enforce."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_train_tasks: int = Field(1, ge=0)
    min_holdout_tasks: int = Field(1, ge=0)
    """Fewer held-out tasks than this stop the dataset: nothing could be proved on it."""
    max_prompt_chars: int = Field(32_000, ge=1)
    """Longest prompt of a task, characters of all messages' content."""
    max_trace_chars: int = Field(4_000_000, ge=1)
    """Longest trace, characters of all messages' content."""
    max_group_share: float = Field(1.0, gt=0.0, le=1.0)
    """Largest share of the tasks one group may hold; 1: no limit. One giant group makes the split meaningless."""


def traces_suite(options: ExpectationOptions) -> Suite:
    """For `trace_frame`: one row per trace."""
    return Suite(
        "traces",
        (
            Rule("there are traces", "ExpectTableRowCountToBeBetween", {"min_value": 1}),
            Rule("every trace has an id", "ExpectColumnValueLengthsToBeBetween", {"column": "id", "min_value": 1}),
            Rule("no trace twice", "ExpectCompoundColumnsToBeUnique", {"column_list": ["location", "id"]}),
            _between("every trace has a message", "num_messages", at_least=1),
            _between("no trace is beyond the size limit", "num_chars", at_least=0, at_most=options.max_trace_chars),
            Rule("outcomes are known words", "ExpectColumnValuesToBeInSet", {"column": "outcome", "value_set": list(Outcome)}),
            _between("no negative duration", "duration_s", at_least=0),
            _between("no negative token count", "input_tokens", at_least=0),
            _between("no negative output token count", "output_tokens", at_least=0),
            _true("every tool result answers a call", "results_answer_calls", mostly=0.9),
        ),
    )


def tasks_suite(options: ExpectationOptions) -> Suite:
    """For `task_frame`: one row per task."""
    return Suite(
        "reward_tasks",
        (
            Rule("there are tasks", "ExpectTableRowCountToBeBetween", {"min_value": 1}),
            Rule("no task twice", "ExpectColumnValuesToBeUnique", {"column": "id"}),
            Rule("splits are known words", "ExpectColumnValuesToBeInSet", {"column": "split", "value_set": list(Split)}),
            Rule("every task has a group", "ExpectColumnValueLengthsToBeBetween", {"column": "group", "min_value": 1}),
            _between("a group stands in one split", "num_splits_of_group", at_least=1, at_most=1),
            _between("a prompt stands in one split", "num_splits_of_prompt", at_least=1, at_most=1),
            _between("no group dominates", "group_share", at_least=0, at_most=options.max_group_share),
            _between("prompts say something and fit", "prompt_chars", at_least=1, at_most=options.max_prompt_chars),
            _between("every prompt has a user's message", "num_user_messages", at_least=1),
            _true("every verifier exists and accepts its arguments", "verifier_usable"),
            _between("every task comes from a trace", "num_traces", at_least=1),
            _true("supervised rows are of training tasks only", "sft_rows_allowed"),
            _between("one supervised row per task at most", "num_sft_rows", at_least=0, at_most=1),
            Rule(
                "no supervised row without its task", "ExpectColumnMaxToBeBetween", {"column": "num_orphan_rows", "max_value": 0}
            ),
            _sum_at_least("enough training tasks", "is_train", options.min_train_tasks),
            _sum_at_least("enough held-out tasks", "is_holdout", options.min_holdout_tasks),
        ),
    )


def trace_frame(traces: Sequence[Trace]) -> pl.DataFrame:
    """Flat facts of traces, one row each."""
    return pl.DataFrame(
        {
            "id": [t.id for t in traces],
            "location": [t.source.location for t in traces],
            "format": [t.source.format for t in traces],
            "outcome": [t.outcome.value for t in traces],
            "num_messages": [len(t.messages) for t in traces],
            "num_chars": [sum(len(m.content or "") for m in t.messages) for t in traces],
            "num_tools": [len(t.tools) for t in traces],
            "num_calls": [sum(len(m.tool_calls) for m in t.messages) for t in traces],
            "results_answer_calls": [_results_answer_calls(t) for t in traces],
            "num_expectations": [len(t.expectations) for t in traces],
            "num_feedback": [len(t.feedback) for t in traces],
            "input_tokens": [t.usage.input_tokens for t in traces],
            "output_tokens": [t.usage.output_tokens for t in traces],
            "duration_s": [t.duration_s for t in traces],
            "started_at": [t.started_at for t in traces],
        },
        schema_overrides={
            "input_tokens": pl.Int64,
            "output_tokens": pl.Int64,
            "duration_s": pl.Float64,
            "started_at": pl.Datetime("us", "UTC"),
        },
    )


def task_frame(dataset: RewardDataset) -> pl.DataFrame:
    """Flat facts of tasks, one row each, with what can only be seen across tasks as columns."""
    tasks = dataset.tasks
    prompts = [digest(t.prompt) for t in tasks]
    splits_of_group: dict[str, set[Split]] = defaultdict(set)
    splits_of_prompt: dict[str, set[Split]] = defaultdict(set)
    for task, prompt in zip(tasks, prompts, strict=True):
        splits_of_group[task.group].add(task.split)
        splits_of_prompt[prompt].add(task.split)
    group_sizes = Counter(t.group for t in tasks)
    rows_of_task = Counter(row.task_id for row in dataset.sft_rows)
    task_ids = {t.id for t in tasks}
    num_orphans = sum(count for task_id, count in rows_of_task.items() if task_id not in task_ids)
    return pl.DataFrame(
        {
            "id": [t.id for t in tasks],
            "kind": [t.kind for t in tasks],
            "verifier": [t.verifier for t in tasks],
            "split": [t.split.value for t in tasks],
            "group": [t.group for t in tasks],
            "cluster": [t.cluster for t in tasks],
            "num_splits_of_group": [len(splits_of_group[t.group]) for t in tasks],
            "num_splits_of_prompt": [len(splits_of_prompt[prompt]) for prompt in prompts],
            "group_share": [group_sizes[t.group] / len(tasks) for t in tasks],
            "prompt_chars": [sum(len(m.content or "") for m in t.prompt) for t in tasks],
            "num_user_messages": [sum(m.role is Role.USER for m in t.prompt) for t in tasks],
            "num_tools": [len(t.tools) for t in tasks],
            "verifier_usable": [_verifier_usable(t) for t in tasks],
            "num_traces": [len(t.provenance) for t in tasks],
            "num_sft_rows": [rows_of_task[t.id] for t in tasks],
            "sft_rows_allowed": [t.split is Split.TRAIN or rows_of_task[t.id] == 0 for t in tasks],
            "num_orphan_rows": [num_orphans for _ in tasks],
            "is_train": [int(t.split is Split.TRAIN) for t in tasks],
            "is_holdout": [int(t.split is Split.HOLDOUT) for t in tasks],
        }
    )


def _between(name: str, column: str, *, at_least: float, at_most: float | None = None) -> Rule:
    return Rule(name, "ExpectColumnValuesToBeBetween", {"column": column, "min_value": at_least, "max_value": at_most})


def _true(name: str, column: str, *, mostly: float = 1.0) -> Rule:
    return Rule(name, "ExpectColumnValuesToBeInSet", {"column": column, "value_set": [True], "mostly": mostly})


def _sum_at_least(name: str, column: str, at_least: int) -> Rule:
    return Rule(name, "ExpectColumnSumToBeBetween", {"column": column, "min_value": at_least})


def _results_answer_calls(trace: Trace) -> bool:
    """Whether each tool message that names a call names one that was made before it."""
    made: set[str] = set()
    for message in trace.messages:
        made |= {call.id for call in message.tool_calls if call.id is not None}
        if message.tool_call_id is not None and message.tool_call_id not in made:
            return False
    return True


def _verifier_usable(task: RewardTask) -> bool:
    try:
        parse_options(load_verifier(task.verifier), task)
    except ConfigError:
        return False
    return True

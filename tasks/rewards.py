"""Reward dataset: a batch of traces into edge cases, admitted tasks with splits, and SFT rows, validated and stored."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from prefect import task
from pydantic import JsonValue

from infra.benchmarks.swebench_slice import load_tasks
from infra.cycles import read_batch
from infra.lake import Lake
from infra.validation import ValidationOutcome, require_valid, validate
from pipelines.artifacts import StageRecord
from pipelines.config import RewardsConfig
from pipelines.errors import ArtifactError
from pipelines.rewards.dataset_table import dataset_to_files
from pipelines.rewards.decontamination import DecontaminationOptions, Material, decontaminate, task_material
from pipelines.rewards.expectations import ExpectationOptions, Suite, task_frame, tasks_suite, trace_frame, traces_suite
from pipelines.rewards.model import RewardDataset, RewardTask, Split
from pipelines.rewards.splits import LinkedTask, SplitOptions, assign_splits, keep_training_rows, linking_keys, shared_values
from pipelines.rewards.synthesis import Synthesis, build_reward_tasks
from pipelines.rewards.table import task_from_row, task_to_row
from pipelines.traces.clusters import find_edge_cases
from pipelines.traces.deduplication import near_duplicate_groups
from pipelines.traces.leaks import require_clean
from pipelines.traces.model import EdgeCase, Role, Trace
from pipelines.traces.table import edge_case_to_row, trace_from_row
from tasks.stage import CycleRef, Product, Stage, may_retry, run_stage


@task(name="build rewards", retries=1, retry_delay_seconds=5, retry_condition_fn=may_retry, tags=["lake"])
async def build_rewards(cycle: CycleRef, traces: StageRecord, config: RewardsConfig) -> StageRecord:
    """Make the reward dataset of a cycle's traces."""
    return await asyncio.to_thread(
        run_stage, "build_reward_dataset", cycle, config, (traces,), lambda stage: _build(stage, config)
    )


def _build(stage: Stage, config: RewardsConfig) -> Product:
    traces = read_traces(stage.lake, stage.cycle.id)
    options = ExpectationOptions(min_train_tasks=0, min_holdout_tasks=0)
    if traces:
        _check(stage, trace_frame(traces), traces_suite(options), "traces")
    cases = find_edge_cases(traces)
    stage.lake.append("edge_cases", [edge_case_to_row(c) for c in cases], transaction=(f"rewards/{stage.key}", 1))
    synthesis = build_reward_tasks(cases, config.synthesis)
    dataset, facts = _split_and_clean(stage.lake, synthesis, traces, config)
    if dataset.tasks:
        _check(stage, task_frame(dataset), tasks_suite(options), "tasks")
    uri, content = _store(stage, dataset)
    counts = {
        "traces": len(traces),
        "edge_cases": len(cases),
        "train_tasks": sum(t.split is Split.TRAIN for t in dataset.tasks),
        "holdout_tasks": sum(t.split is Split.HOLDOUT for t in dataset.tasks),
        "regression_tasks": sum(t.split is Split.REGRESSION for t in dataset.tasks),
        "sft_rows": len(dataset.sft_rows),
        "skipped": len(synthesis.skipped),
    }
    stage.say(f"rewards: {counts['train_tasks']} tasks to train on, {counts['holdout_tasks']} held out")
    return Product(
        uri,
        content,
        counts,
        {**_describe_cases(cases), **facts, "skipped": dict(Counter(s.reason.value for s in synthesis.skipped))},
    )


def read_traces(lake: Lake, cycle_id: str) -> list[Trace]:
    """The traces of a cycle's batch, in time order. Raises ArtifactError when the lake no longer holds all of them."""
    digests = read_batch(lake, cycle_id) or ()
    rows = lake.read("traces", predicate=pl.col("digest").is_in(list(digests)))
    by_digest = {row["digest"]: row for row in rows.iter_rows(named=True)}
    if len(by_digest) < len(digests):
        raise ArtifactError(
            f"batch of cycle {cycle_id}: {len(digests) - len(by_digest)} of {len(digests)} traces are not in the lake"
        )
    traces = [trace_from_row(by_digest[d]) for d in digests]
    return sorted(traces, key=lambda t: (t.started_at.timestamp() if t.started_at else 0.0, t.id))


def _split_and_clean(
    lake: Lake, synthesis: Synthesis, traces: Sequence[Trace], config: RewardsConfig
) -> tuple[RewardDataset, dict[str, JsonValue]]:
    by_id = {t.id: t for t in traces}
    rows = lake.read("tasks", predicate=pl.col("split") == Split.REGRESSION.value)
    frozen = [task_from_row(row) for row in rows.iter_rows(named=True)]
    tasks = [*synthesis.tasks, *frozen]
    labels = near_duplicate_groups([_request(t) for t in tasks], config.near_duplicate_threshold)
    options = SplitOptions(holdout_share=config.holdout_share)
    linked = [
        LinkedTask(
            t, linking_keys(t, [by_id[i] for i in t.provenance if i in by_id], wording_group=label, group_by=options.group_by)
        )
        for t, label in zip(tasks, labels, strict=True)
    ]
    splits = assign_splits(linked[: len(synthesis.tasks)], options, frozen=linked[len(synthesis.tasks) :])
    train = [t for t in splits.tasks if t.split is Split.TRAIN]
    held = [t for t in splits.tasks if t.split is not Split.TRAIN]
    protected = [Material(b.id, b.instance.problem_statement) for b in load_tasks()]
    protected += [task_material(t, by_id) for t in held]
    clean = decontaminate(train, protected, DecontaminationOptions(), traces=by_id)
    kept = [*clean.tasks, *held]
    dataset = keep_training_rows(kept, synthesis.sft_rows)
    facts: dict[str, JsonValue] = {
        "contaminated": len(clean.hits),
        "shared_values": len(shared_values(kept)),
        "groups": splits.num_groups,
    }
    return dataset, facts


def _request(task: RewardTask) -> str:
    return "\n".join(m.content or "" for m in task.prompt if m.role is Role.USER)


def _check(stage: Stage, frame: pl.DataFrame, suite: Suite, name: str) -> ValidationOutcome:
    with tempfile.TemporaryDirectory() as folder:
        outcome = validate(frame, suite, docs_folder=Path(folder))
        for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
            stage.tracking.log_file(stage.run_id, path, folder=f"data_docs/{name}/{path.parent.relative_to(folder)}".rstrip("/."))
    require_valid(outcome)
    return outcome


def _store(stage: Stage, dataset: RewardDataset) -> tuple[str, str]:
    files = dataset_to_files(dataset, title=f"Reward dataset of cycle {stage.cycle.id}")
    require_clean(
        (text.decode(errors="replace") for path, text in files.items() if path.endswith(".jsonl")), where="reward dataset"
    )
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        artifact = stage.lake.write_artifact("dataset", Path(folder))
    digest = artifact.manifest.digest
    rows = [task_to_row(t, dataset=digest) for t in dataset.tasks if t.split is not Split.REGRESSION]
    stage.lake.append("tasks", rows, transaction=(f"rewards/{stage.key}", 1))
    name = f"everloop-{stage.cycle.id}"
    counts = {"tasks": len(dataset.tasks), "sft_rows": len(dataset.sft_rows)}
    for run_id in (stage.run_id, stage.cycle.run_id):
        stage.tracking.log_dataset(run_id, name=name, uri=artifact.uri, digest=digest, context="training", counts=counts)
    return artifact.uri, digest


def _describe_cases(cases: Sequence[EdgeCase]) -> dict[str, JsonValue]:
    signals = Counter(s.kind.value for c in cases for s in c.signals)
    clusters = Counter(c.cluster for c in cases)
    return {"edge_cases_by_signal": dict(signals), "edge_cases_by_cluster": dict(clusters)}

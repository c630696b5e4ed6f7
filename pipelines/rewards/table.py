"""Rows of the lake's reward tables: scalar columns to query by, and `body`, the exact record as JSON.

Owns the schemas of `tasks` and `verdicts`, and pure conversions both ways. Refuses to read or write tables.
"""

from typing import Any

import pyarrow as pa

from pipelines.artifacts import from_json, to_json
from pipelines.rewards.model import RewardTask, Verdict

TASKS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("verifier", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("provenance", pa.list_(pa.string()), nullable=False),
        pa.field("occurred_at", pa.timestamp("us", tz="UTC")),
        pa.field("body", pa.string(), nullable=False),
    ]
)

VERDICTS_SCHEMA = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("model_digest", pa.string(), nullable=False),
        pa.field("benchmark", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("passed", pa.bool_()),
        pa.field("failure", pa.string()),
        pa.field("body", pa.string(), nullable=False),
    ]
)


def task_to_row(task: RewardTask, *, dataset: str) -> dict[str, Any]:
    """`dataset` is the digest of the dataset version the task stands in."""
    return {
        "id": task.id,
        "dataset": dataset,
        "kind": task.kind,
        "verifier": task.verifier,
        "split": task.split.value,
        "group": task.group,
        "cluster": task.cluster,
        "provenance": list(task.provenance),
        "occurred_at": task.occurred_at,
        "body": to_json(task).decode(),
    }


def task_from_row(row: dict[str, Any]) -> RewardTask:
    return from_json(RewardTask, row["body"])


def verdict_to_row(verdict: Verdict, *, task_id: str, model_digest: str, benchmark: str, seed: int) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "model_digest": model_digest,
        "benchmark": benchmark,
        "seed": seed,
        "score": verdict.score,
        "passed": verdict.passed,
        "failure": verdict.failure.value if verdict.failure else None,
        "body": to_json(verdict).decode(),
    }


def verdict_from_row(row: dict[str, Any]) -> Verdict:
    return from_json(Verdict, row["body"])

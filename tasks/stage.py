"""How a stage runs: found by its key, or done once inside an MLflow run and recorded. Refuses to know what a stage does."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prefect.logging import get_run_logger
from pydantic import JsonValue

from infra.lake import Lake, open_lake
from infra.settings import Settings
from infra.tracking import Tracking
from pipelines.artifacts import StageRecord, stage_key, to_plain
from pipelines.errors import InfrastructureError

EXPERIMENT = "everloop"


@dataclass(frozen=True, slots=True)
class CycleRef:
    """The cycle a stage belongs to."""

    id: str
    run_id: str
    """MLflow parent run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything a stage's work needs."""

    name: str
    key: str
    cycle: CycleRef
    run_id: str
    """MLflow run of the stage."""
    settings: Settings
    lake: Lake
    tracking: Tracking
    say: Callable[[str], None]
    """Writes one line to the log of the run."""

    @property
    def work_dir(self) -> Path:
        """A folder of this stage on this machine, kept between attempts."""
        folder = self.settings.root / "work" / self.key
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True, slots=True)
class Product:
    """What a stage's work made."""

    uri: str
    digest: str
    counts: dict[str, int]
    facts: dict[str, JsonValue] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def run_stage(
    name: str, cycle: CycleRef, config: object, parents: tuple[StageRecord, ...], work: Callable[[Stage], Product]
) -> StageRecord:
    """Return the record of a stage, doing its work when there is none yet for these inputs."""
    settings = Settings()
    lake = open_lake(settings)
    say = get_run_logger().info
    parent_digests = tuple(p.digest for p in parents)
    key = stage_key(name, config, (cycle.id, *parent_digests))
    found = lake.find_record(name, key)
    if found is not None:
        say(f"{name}: already done, record {key}")
        return found
    tracking = Tracking(settings.mlflow_url)
    run_id = tracking.start_stage(EXPERIMENT, cycle.run_id, name, cycle_id=cycle.id, key=key)
    stage = Stage(name, key, cycle, run_id, settings, lake, tracking, say)
    started = time.monotonic()
    finished = False
    try:
        tracking.log_params(run_id, _flat(to_plain(config)))
        product = work(stage)
        finished = True
    finally:
        if not finished:
            tracking.finish(run_id, failed=True)
    record = StageRecord(
        name, key, product.uri, product.digest, parent_digests, product.counts, time.monotonic() - started, run_id, product.facts
    )
    counts = {f"count/{k}": float(v) for k, v in product.counts.items()}
    tracking.log_metrics(run_id, counts | product.metrics | {"wall_s": record.wall_s})
    record = lake.commit_record(record)
    tracking.finish(run_id)
    return record


def num_cores() -> int:
    """Cores this process may use: what a stage holds of the machine, busy or not."""
    return len(os.sched_getaffinity(0))


def may_retry(task: object, task_run: object, state: object) -> bool:
    """Only a failure of the world is worth trying again; a bad config or bad data stays bad."""
    data = getattr(state, "data", None)
    error = getattr(data, "exception", data)
    return isinstance(error, InfrastructureError)


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix or "value": value}
    flat: dict[str, object] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return flat

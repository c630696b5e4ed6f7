"""A cycle's beginning and end: opening or resuming it, and writing its record, note and plots when it is done."""

import asyncio
from datetime import UTC, datetime

from prefect import task
from prefect.logging import get_run_logger
from pydantic import JsonValue

from infra.cycles import Cycle, CycleStatus, finish_cycle, open_cycle, read_cycle_record
from infra.lake import Lake, open_lake
from infra.plots import plot_costs
from infra.settings import Settings
from infra.tracking import Tracking
from pipelines.artifacts import StageRecord, digest, to_plain
from pipelines.config import RunConfig
from pipelines.cycle_record import build_cycle_record
from pipelines.economics.intelligence import intelligence_per_dollar
from pipelines.economics.ledger import LedgerEntry, cpu_entry, total, total_by_stage
from pipelines.evaluation.comparison import Comparison
from tasks.evaluation import CANDIDATE, CHAMPION, read_reports
from tasks.ingest import inputs_digest
from tasks.stage import EXPERIMENT, CycleRef, num_cores


@task(name="open cycle", tags=["lake"])
async def begin(config: RunConfig) -> tuple[CycleRef, dict[str, JsonValue] | None]:
    """The cycle to work on, and its record when it is finished and nothing has changed since."""
    return await asyncio.to_thread(_begin, config)


@task(name="close cycle", tags=["lake"])
async def finish(cycle: CycleRef, config: RunConfig, records: list[StageRecord], wall_s: float) -> dict[str, JsonValue]:
    """Write the cycle record, log it to MLflow, and close the cycle."""
    return await asyncio.to_thread(_finish, cycle, config, records, wall_s)


def _begin(config: RunConfig) -> tuple[CycleRef, dict[str, JsonValue] | None]:
    settings = Settings()
    lake = open_lake(settings)
    seen = inputs_digest(settings, lake, config.ingest)
    cycle = open_cycle(lake, config_digest=digest(to_plain(config)), inputs_digest=seen, now=datetime.now(UTC))
    say = get_run_logger().info
    if cycle.status is CycleStatus.FINISHED:
        say(f"cycle {cycle.id} is finished and nothing is new since; nothing to do")
        return CycleRef(cycle.id, ""), read_cycle_record(lake, cycle.id)
    tracking = Tracking(settings.mlflow_url)
    run_id = tracking.start_cycle(EXPERIMENT, cycle.id)
    say(f"cycle {cycle.id}: {tracking.run_url(EXPERIMENT, run_id)}")
    return CycleRef(cycle.id, run_id), None


def _finish(ref: CycleRef, config: RunConfig, records: list[StageRecord], wall_s: float) -> dict[str, JsonValue]:
    settings = Settings()
    lake = open_lake(settings)
    comparisons = _comparisons(lake, records)
    ledger = _ledger(records, config, wall_s)
    lake.append("ledger", [_ledger_row(ref.id, e) for e in ledger], transaction=(f"ledger/{ref.id}", 1))
    holdout = comparisons.get(f"holdout/{CHAMPION}-{CANDIDATE}")
    intelligence = intelligence_per_dollar(holdout, total(ledger)) if holdout else None
    record = build_cycle_record(ref.id, records, wall_s=wall_s, comparisons=comparisons, ledger=ledger, intelligence=intelligence)
    tracking = Tracking(settings.mlflow_url)
    tracking.log_figure(ref.run_id, plot_costs(total_by_stage(ledger)), "cost_by_stage.png")
    tracking.log_text(ref.run_id, _as_text(record), "cycle.json")
    tracking.log_metrics(ref.run_id, _headline(record))
    if holdout is None:
        tracking.note(
            ref.run_id, "**Nothing to learn from**: too few verifiable tasks came out of this cycle's traces; see cycle.json.\n"
        )
    elif intelligence is not None:
        note = next(r for r in records if r.stage == "promote_model").facts["note"]
        tracking.note(ref.run_id, f"{note}\n**Intelligence per dollar:** {_describe(to_plain(intelligence))}\n")
    cycle = Cycle(ref.id, digest(to_plain(config)), "", datetime.now(UTC))
    seen = str(records[0].facts["inputs_digest"])
    finish_cycle(lake, cycle, record, inputs_digest=seen)
    tracking.finish(ref.run_id)
    return read_cycle_record(lake, ref.id) or record


def _comparisons(lake: Lake, records: list[StageRecord]) -> dict[str, Comparison]:
    evaluation = next((r for r in records if r.stage == "evaluate_candidate"), None)
    return read_reports(lake.open_artifact(evaluation.uri))[1] if evaluation else {}


def _ledger(records: list[StageRecord], config: RunConfig, wall_s: float) -> list[LedgerEntry]:
    """What the cycle held of this machine: all its cores, for as long as each stage took, and for the time between."""
    prices, cores = config.economics.prices(), num_cores()
    outside = max(0.0, wall_s - sum(r.wall_s for r in records))
    times = [(r.stage, r.wall_s) for r in records] + [("orchestration", outside)]
    return [cpu_entry(stage, seconds, cores, prices) for stage, seconds in times]


def _ledger_row(cycle_id: str, entry: LedgerEntry) -> dict[str, object]:
    plain = to_plain(entry)
    body = _as_text(plain)
    return {
        "cycle": cycle_id,
        "stage": entry.stage,
        "resource": entry.resource,
        "quantity": entry.quantity,
        "cost_usd": entry.cost_usd,
        "body": body,
    }


def _headline(record: dict[str, JsonValue]) -> dict[str, float]:
    """The few numbers to sort cycles by in MLflow."""
    flat: dict[str, float] = {}
    for name in ("evaluation", "intelligence_per_dollar", "ledger"):
        section = record.get(name)
        if isinstance(section, dict):
            flat |= {
                f"{name}/{k}": float(v) for k, v in section.items() if isinstance(v, int | float) and not isinstance(v, bool)
            }
    return flat


def _describe(intelligence: dict[str, JsonValue]) -> str:
    value, low, high = (intelligence.get(k) for k in ("points_per_usd", "low", "high"))
    if value is None:
        return str(intelligence.get("note") or "not significant")
    return f"{value:.0f} points per USD ({low:.0f} to {high:.0f})"


def _as_text(record: object) -> str:
    import orjson

    return orjson.dumps(record, option=orjson.OPT_INDENT_2).decode()

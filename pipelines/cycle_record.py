"""The cycle record: what one pass of the loop did, cost and gained, from its stage records. Pure; stored by `infra.cycles`."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from pipelines.artifacts import StageRecord, to_plain
from pipelines.economics.intelligence import IntelligencePerDollar
from pipelines.economics.ledger import LedgerEntry, total, total_by_stage
from pipelines.evaluation.comparison import Comparison

STAGES = ("ingest_traces", "build_reward_dataset", "post_train", "evaluate_candidate", "promote_model")


def build_cycle_record(
    cycle_id: str,
    records: Sequence[StageRecord],
    *,
    wall_s: float,
    comparisons: Mapping[str, Comparison],
    ledger: Sequence[LedgerEntry],
    intelligence: IntelligencePerDollar | None,
) -> dict[str, JsonValue]:
    """Everything `everloop status --json` shows of a finished cycle. `wall_s` is the whole time of the last attempt."""
    by_stage = {r.stage: r for r in records}
    record: dict[str, JsonValue] = {"cycle": cycle_id, "status": "finished", "outcome": outcome_of(by_stage)}
    sections = {
        "traces": ("ingest_traces", ("rejected_by_reason",)),
        "dataset": (
            "build_reward_dataset",
            ("edge_cases_by_signal", "edge_cases_by_cluster", "skipped", "contaminated", "shared_values"),
        ),
        "training": (
            "post_train",
            (
                "mean_reward_first",
                "mean_reward_last",
                "masked_share",
                "truncated_share",
                "zero_variance_share",
                "logprob_gap",
                "resumed_from",
            ),
        ),
        "promotion": (
            "promote_model",
            ("decision", "model_version", "served_model", "served_version", "read_back", "rolled_back"),
        ),
    }
    for section, (stage, facts) in sections.items():
        if stage in by_stage:
            done = by_stage[stage]
            record[section] = {**done.counts, **{name: done.facts.get(name) for name in facts}}
    if "post_train" in by_stage:
        record["model"] = {"uri": by_stage["post_train"].uri, "manifest_digest": by_stage["post_train"].digest}
    if "evaluate_candidate" in by_stage:
        record["evaluation"] = {"pass_rates": by_stage["evaluate_candidate"].facts["pass_rates"], **_compared(comparisons)}
    record["wall_s"] = _times(records, wall_s)
    record["ledger"] = _costs(ledger)
    record["intelligence_per_dollar"] = to_plain(intelligence) if intelligence else None
    return record


def outcome_of(by_stage: Mapping[str, StageRecord]) -> str:
    """The decision's verdict, or why there was none."""
    if "promote_model" not in by_stage:
        return "nothing to learn from"
    decision = by_stage["promote_model"].facts["decision"]
    return str(decision["verdict"]) if isinstance(decision, dict) else "unknown"


def _compared(comparisons: Mapping[str, Comparison]) -> dict[str, JsonValue]:
    return {
        name: {
            "gain_points": c.gain_points,
            "interval_points": [c.low_points, c.high_points],
            "confidence": c.confidence,
            "p_value": c.p_value,
            "num_tasks": c.num_tasks,
            "excluded": c.num_excluded,
        }
        for name, c in comparisons.items()
    }


def _times(records: Sequence[StageRecord], wall_s: float) -> dict[str, JsonValue]:
    stages: dict[str, JsonValue] = {r.stage: round(r.wall_s, 2) for r in records}
    inside = sum(r.wall_s for r in records)
    # A resumed cycle's stages may have run in an earlier attempt, outside this attempt's wall time.
    outside = max(0.0, wall_s - inside)
    return {**stages, "outside_stages": round(outside, 2), "total": round(max(wall_s, inside), 2)}


def _costs(ledger: Sequence[LedgerEntry]) -> dict[str, JsonValue]:
    price = next((e.price for e in ledger if e.price is not None), None)
    whole = total(ledger)
    return {
        "by_stage_usd": {stage: cost.usd for stage, cost in total_by_stage(ledger).items()},
        "total_usd": whole.usd,
        "unknown": list(whole.unknown),
        "price": to_plain(price) if price else None,
    }

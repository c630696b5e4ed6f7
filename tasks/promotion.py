"""Promotion: the decision from the evidence, then the move of alias and traffic, read back; or neither."""

import asyncio
from dataclasses import replace

from prefect import task
from pydantic import JsonValue

from infra import registry
from infra.champion import ensure_champion, move_traffic, retire_others, roll_back, serve
from infra.lake import Lake
from pipelines.artifacts import StageRecord, digest, from_json, to_plain
from pipelines.config import EconomicsConfig
from pipelines.economics.ledger import cpu_entry
from pipelines.errors import InfrastructureError
from pipelines.evaluation.report import EvaluationReport
from pipelines.promotion.decision import Decision, Evidence, Outcome, decide
from pipelines.promotion.note import to_markdown
from pipelines.promotion.policy import PromotionPolicy
from pipelines.rewards.model import RewardTask, Split
from pipelines.rewards.table import task_to_row
from pipelines.traces.leaks import find_secrets
from tasks.evaluation import CANDIDATE, CHAMPION, read_reports
from tasks.stage import EXPERIMENT, CycleRef, Product, Stage, may_retry, num_cores, run_stage


@task(name="promote", retries=1, retry_delay_seconds=5, retry_condition_fn=may_retry, tags=["registry"])
async def promote(
    cycle: CycleRef,
    dataset: StageRecord,
    candidate: StageRecord,
    evaluation: StageRecord,
    policy: PromotionPolicy,
    economics: EconomicsConfig,
) -> StageRecord:
    """Register the candidate, decide, and on `promote` move production to it."""

    def work(stage: Stage) -> Product:
        return _promote(stage, dataset, candidate, evaluation, policy, economics)

    config = {"policy": policy, "economics": economics}
    return await asyncio.to_thread(run_stage, "promote_model", cycle, config, (dataset, candidate, evaluation), work)


def _promote(
    stage: Stage,
    dataset: StageRecord,
    candidate: StageRecord,
    evaluation: StageRecord,
    policy: PromotionPolicy,
    economics: EconomicsConfig,
) -> Product:
    evidence = _read_evidence(stage, dataset, evaluation, economics)
    decision = decide(evidence, policy)
    tags = {
        "everloop.cycle": stage.cycle.id,
        "everloop.run_url": stage.tracking.run_url(EXPERIMENT, stage.cycle.run_id),
        "everloop.dataset_uri": dataset.uri,
        "everloop.dataset_digest": dataset.digest,
        "everloop.decision": decision.verdict.value,
    }
    version = registry.register(
        stage.settings,
        source_uri=candidate.uri,
        manifest_digest=candidate.digest,
        run_id=candidate.run_id,
        tags=tags,
        description=_describe_version(stage, dataset, candidate, evaluation, decision),
    )
    served = _carry_out(stage, decision, version)
    if decision.verdict is Outcome.PROMOTE:
        _freeze_fixed_incidents(stage.lake, dataset, evidence, stage.key)
    note = to_markdown(decision, evidence, facts=[("Model version", str(version)), ("Serving", str(served["served_model"]))])
    for run_id in (stage.run_id, stage.cycle.run_id):
        stage.tracking.note(run_id, note)
    stage.tracking.tag(stage.cycle.run_id, {"everloop.decision": decision.verdict.value, "everloop.model_version": str(version)})
    stage.say(f"decision: {decision.verdict.value}")
    facts = {"decision": to_plain(decision), "note": note, "model_version": version, **served}
    return Product("", digest([to_plain(decision), version, candidate.digest]), {"model_version": version}, facts)


def _describe_version(
    stage: Stage, dataset: StageRecord, candidate: StageRecord, evaluation: StageRecord, decision: Decision
) -> str:
    """What a person on the version's page can follow: the cycle, the training run, the dataset, the evaluation."""

    def link(text: str, run_id: str) -> str:
        return f"[{text}]({stage.tracking.run_url(EXPERIMENT, run_id)})"

    return (
        f"**{decision.verdict.value}** in {link(f'cycle {stage.cycle.id}', stage.cycle.run_id)}: "
        f"{link('training', candidate.run_id)} on {link(f'dataset {dataset.digest[:12]}', dataset.run_id)}, "
        f"{link('evaluation', evaluation.run_id)}"
    )


def _read_evidence(stage: Stage, dataset: StageRecord, evaluation: StageRecord, economics: EconomicsConfig) -> Evidence:
    reports, comparisons = read_reports(stage.lake.open_artifact(evaluation.uri))
    pair = f"{CHAMPION}-{CANDIDATE}"
    swebench = reports[f"{CANDIDATE}/swebench-tiny"]
    tampering = tuple(f"{o.task_id}: {o.evidence}" for o in swebench.outcomes if o.tampered)
    return Evidence(
        holdout=comparisons[f"holdout/{pair}"],
        regression=comparisons.get(f"regression/{pair}"),
        num_regression_tasks=dataset.counts["regression_tasks"],
        swebench=comparisons.get(f"swebench-tiny/{pair}"),
        leaks=_find_leaks(stage.lake, dataset),
        tampering=tampering,
        cost_per_solved_usd=_cost_per_solved(reports[f"{CANDIDATE}/holdout"], economics),
    )


def _find_leaks(lake: Lake, dataset: StageRecord) -> tuple[str, ...]:
    """Secrets in what the candidate was trained on, read back from the stored dataset."""
    folder = lake.open_artifact(dataset.uri)
    texts = {name: (folder / name).read_text(encoding="utf-8").split("\n") for name in ("tasks.jsonl", "sft.jsonl")}
    return tuple(leak for name, lines in texts.items() for leak in find_secrets(lines, where=name))


def _cost_per_solved(report: EvaluationReport, economics: EconomicsConfig) -> float | None:
    """Serving cost of the candidate on the hold-out, per solved task; None when nothing was solved or the price is unknown."""
    cost = cpu_entry("serving", report.wall_s, num_cores(), economics.prices()).cost_usd
    num_solved = sum(bool(o.passed) for o in report.outcomes)
    return cost / num_solved if cost is not None and num_solved else None


def _carry_out(stage: Stage, decision: Decision, version: int) -> dict[str, JsonValue]:
    """Move alias and traffic when the decision says so; serving stays as it is otherwise. Returns what is served, read back."""
    settings, lake = stage.settings, stage.lake
    if decision.verdict is not Outcome.PROMOTE:
        served = ensure_champion(settings, lake)
        return {
            "served_model": served.served_name,
            "served_version": served.version,
            "read_back": served.served_name,
            "rolled_back": False,
        }
    registry.set_challenger(settings, version)
    info = registry.by_alias(settings, registry.CHALLENGER)
    if info is None or info.version != version:
        raise InfrastructureError(f"model version {version}: named challenger, read back {info}; is another promotion running?")
    served = serve(settings, lake, info)
    registry.promote(settings, version)
    read_back = move_traffic(settings, served)
    if read_back != served.served_name:
        stage.say(f"production answers as {read_back!r}, not {served.served_name!r}: rolling back")
        served = roll_back(settings, lake)
        return {"served_model": served.served_name, "served_version": served.version, "read_back": read_back, "rolled_back": True}
    retire_others(settings, served)
    return {"served_model": served.served_name, "served_version": version, "read_back": read_back, "rolled_back": False}


def _freeze_fixed_incidents(lake: Lake, dataset: StageRecord, evidence: Evidence, key: str) -> None:
    """Held-out incidents the new champion solved join the regression suite for ever."""
    fixed = set(evidence.holdout.newly_solved)
    lines = (lake.open_artifact(dataset.uri) / "tasks.jsonl").read_bytes().split(b"\n")
    tasks = [from_json(RewardTask, line) for line in lines if line]
    rows = [task_to_row(_frozen(t), dataset=dataset.digest) for t in tasks if t.id in fixed and t.split is Split.HOLDOUT]
    lake.append("tasks", rows, transaction=(f"promote/{key}", 1))


def _frozen(task: RewardTask) -> RewardTask:
    return replace(task, split=Split.REGRESSION)

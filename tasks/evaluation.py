"""Evaluation: champion and candidate on the same held-out tasks, incidents and SWE-bench-format instances, served by vLLM."""

import asyncio
from pathlib import Path

from prefect import task
from pydantic import JsonValue

from infra.benchmarks.swebench_slice import evaluate_slice, load_tasks, prepare_test_bed
from infra.benchmarks.tool_tasks import evaluate_tasks
from infra.champion import ServedModel, declare_rollout_replica, ensure_champion, retire_rollout_replica, wait_for_rollout_replica
from infra.inference.client import ChatClient
from infra.inference.weights import sync_weights, weights_version
from infra.plots import Gain, Rate, plot_models
from pipelines.artifacts import StageRecord, from_json, to_json
from pipelines.config import EvaluationConfig
from pipelines.evaluation.comparison import Comparison, compare, rate_interval
from pipelines.evaluation.predictions import format_predictions
from pipelines.evaluation.report import EvaluationReport
from pipelines.rewards.model import RewardTask, Split
from tasks.stage import CycleRef, Product, Stage, may_retry, run_stage

CHAMPION, WARM_START, CANDIDATE = "champion", "warm_start", "candidate"


@task(name="evaluate", retries=1, retry_delay_seconds=5, retry_condition_fn=may_retry, tags=["inference"])
async def evaluate(
    cycle: CycleRef, dataset: StageRecord, candidate: StageRecord, config: EvaluationConfig, seed: int
) -> StageRecord:
    """Evaluate candidate and champion; the record's artifact holds every report and comparison."""

    def work(stage: Stage) -> Product:
        return _evaluate(stage, dataset, candidate, config, seed)

    return await asyncio.to_thread(
        run_stage, "evaluate_candidate", cycle, {"evaluation": config, "seed": seed}, (dataset, candidate), work
    )


def _evaluate(stage: Stage, dataset: StageRecord, candidate: StageRecord, config: EvaluationConfig, seed: int) -> Product:
    champion = ensure_champion(stage.settings, stage.lake)
    declare_rollout_replica(stage.settings, champion.model_dir)
    tasks = _read_tasks(stage, dataset)
    reports = asyncio.run(_evaluate_all(stage, champion, candidate, tasks, config))
    pairs = [(CHAMPION, CANDIDATE)] + [(WARM_START, CANDIDATE)] * any(name.startswith(WARM_START) for name in reports)
    comparisons = {
        f"{benchmark}/{first}-{second}": compare(
            reports[f"{first}/{benchmark}"],
            reports[f"{second}/{benchmark}"],
            confidence=config.confidence,
            resamples=config.resamples,
            seed=seed,
        )
        for first, second in pairs
        for benchmark in ("holdout", "regression", "swebench-tiny")
        if f"{first}/{benchmark}" in reports and f"{second}/{benchmark}" in reports
    }
    uri, digest = _store(stage, reports, comparisons)
    _log(stage, reports, comparisons, config)
    retire_rollout_replica(stage.settings)
    counts = {f"{name.replace('/', '_')}_outcomes": len(r.outcomes) for name, r in reports.items()}
    facts: dict[str, JsonValue] = {
        "pass_rates": {name: r.pass_rate for name, r in reports.items()},
        "champion_version": champion.version,
    }
    return Product(
        uri, digest, counts, facts, {f"pass_rate/{n}": r.pass_rate for n, r in reports.items() if r.pass_rate is not None}
    )


async def _evaluate_all(
    stage: Stage, champion: ServedModel, candidate: StageRecord, tasks: list[RewardTask], config: EvaluationConfig
) -> dict[str, EvaluationReport]:
    """Champion on its own replica; the others one after the other on the rollout replica, each after its weights are read back."""
    async with ChatClient(champion.base_url, champion.served_name) as client:
        reports = await _evaluate_model(stage, client, CHAMPION, champion.manifest_digest, tasks, config, swebench=True)
    replica = await asyncio.to_thread(wait_for_rollout_replica, stage.settings)
    models = [(WARM_START, str(candidate.facts["warm_start_uri"]))] if config.evaluate_warm_start else []
    for name, uri in [*models, (CANDIDATE, candidate.uri)]:
        folder = stage.lake.open_artifact(uri)
        await asyncio.to_thread(sync_weights, replica.base_url, folder, weights_version(folder))
        digest = stage.lake.read_manifest(uri).digest
        async with ChatClient(replica.base_url, replica.served_name) as client:
            reports |= await _evaluate_model(stage, client, name, digest, tasks, config, swebench=name == CANDIDATE)
    return reports


async def _evaluate_model(
    stage: Stage, client: ChatClient, name: str, digest: str, tasks: list[RewardTask], config: EvaluationConfig, *, swebench: bool
) -> dict[str, EvaluationReport]:
    reports: dict[str, EvaluationReport] = {}
    for split in (Split.HOLDOUT, Split.REGRESSION):
        chosen = [t for t in tasks if t.split is split]
        if chosen:
            reports[f"{name}/{split.value}"] = await evaluate_tasks(
                client,
                chosen,
                benchmark=split.value,
                model=name,
                model_digest=digest,
                seeds=config.seeds,
                temperature=config.temperature,
                max_tokens=config.max_tokens,
            )
            stage.say(f"evaluate {name} on {split.value}: {_percent(reports[f'{name}/{split.value}'])}")
    if swebench:
        reports[f"{name}/swebench-tiny"] = await evaluate_slice(
            client,
            model=name,
            model_digest=digest,
            tasks=load_tasks(),
            seeds=config.seeds,
            max_tokens=config.swebench_max_tokens,
            test_bed=prepare_test_bed(stage.settings.root / "sandbox"),
        )
        stage.say(f"evaluate {name} on swebench-tiny: {_percent(reports[f'{name}/swebench-tiny'])}")
    return reports


def _percent(report: EvaluationReport) -> str:
    rate = "no verdict" if report.pass_rate is None else f"{report.pass_rate:.1%}"
    return f"{rate} of {len(report.outcomes)}" + (
        f", {report.num_failures} infrastructure failures" if report.num_failures else ""
    )


def _read_tasks(stage: Stage, dataset: StageRecord) -> list[RewardTask]:
    folder = stage.lake.open_artifact(dataset.uri)
    return [from_json(RewardTask, line) for line in (folder / "tasks.jsonl").read_bytes().split(b"\n") if line]


def _store(stage: Stage, reports: dict[str, EvaluationReport], comparisons: dict[str, Comparison]) -> tuple[str, str]:
    folder = stage.work_dir / "reports"
    folder.mkdir(exist_ok=True)
    (folder / "reports.json").write_bytes(to_json(reports))
    (folder / "comparisons.json").write_bytes(to_json(comparisons))
    for name in (CHAMPION, CANDIDATE):
        patches = {o.task_id: o.answer for o in reports[f"{name}/swebench-tiny"].outcomes}
        (folder / f"predictions-{name}.jsonl").write_text(format_predictions(name, patches), encoding="utf-8")
    for path in sorted(folder.iterdir()):
        stage.tracking.log_file(stage.run_id, path, folder="reports")
    artifact = stage.lake.write_artifact("report", folder)
    return artifact.uri, artifact.manifest.digest


def read_reports(folder: Path) -> tuple[dict[str, EvaluationReport], dict[str, Comparison]]:
    """What `_store` wrote."""
    reports = from_json(dict[str, EvaluationReport], (folder / "reports.json").read_bytes())
    return reports, from_json(dict[str, Comparison], (folder / "comparisons.json").read_bytes())


def _log(
    stage: Stage, reports: dict[str, EvaluationReport], comparisons: dict[str, Comparison], config: EvaluationConfig
) -> None:
    rates = []
    for name, report in reports.items():
        interval = rate_interval(report, confidence=config.confidence)
        if report.pass_rate is not None and interval is not None:
            rates.append(Rate(report.benchmark, name.split("/")[0].replace("_", " "), report.pass_rate, *interval))
    gains = [
        Gain(name, c.gain_points, c.low_points, c.high_points)
        for name, c in comparisons.items()
        if c.gain_points is not None and c.low_points is not None and c.high_points is not None
    ]
    figure = plot_models(rates, gains)
    for run_id in (stage.run_id, stage.cycle.run_id):
        stage.tracking.log_figure(run_id, figure, "champion_and_candidate.png")

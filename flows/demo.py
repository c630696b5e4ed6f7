"""The demo: a small shop's support agent in production, its failures, one cycle of the loop, and the same agent afterwards.

Owns the order of the demo and its printed summary. Everything it runs is what production runs.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from infra.champion import ensure_champion
from infra.demo.agent import drive
from infra.demo.operator import correct
from infra.demo.requests import DemoRequest, make_requests
from infra.demo.shop import open_shop
from infra.lake import open_lake
from infra.settings import Settings
from infra.stack.lifecycle import start_stack
from infra.stack.state import write_atomically
from pipelines.artifacts import from_json, to_json
from pipelines.config import IngestConfig, RewardsConfig, RunConfig
from pipelines.promotion.policy import PromotionPolicy

CORRECTED_SHARE = 0.75
"""Share of failed training requests that the operator corrects; all failed hold-out requests are."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One wave of requests, as kept between runs of the demo."""

    num_requests: int
    num_failed: int
    num_corrected: int
    outcomes: dict[str, int]

    @property
    def failure_rate(self) -> float:
        return self.num_failed / self.num_requests if self.num_requests else 0.0


def run_demo(settings: Settings, *, seed: int = 0) -> dict[str, Any]:
    """Run the whole demo, or what is left of it, and print its summary; returns the cycle record."""
    console = Console()
    with console.status("starting Prefect, MLflow and vLLM (the first start takes a minute or two)"):
        start = start_stack(settings)
        ensure_champion(settings, open_lake(settings))
    console.print(f"stack {'already up' if start.already_up else f'up in {start.wall_s:.0f} s'}; MLflow UI {settings.mlflow_url}")
    traffic = make_requests(seed)
    shop = open_shop(settings.root / "demo" / f"shop-{seed}.sqlite", traffic.stock)
    training = _wave(settings, seed, "training", traffic.training, shop, corrected=CORRECTED_SHARE)
    holdout = _wave(settings, seed, "holdout", traffic.holdout, shop, corrected=1.0)
    record = _cycle(settings, demo_config(settings, training, holdout, seed), seed)
    after = _wave(settings, seed, "after", traffic.after, shop, corrected=0.0)
    before = Traffic(training.num_requests + holdout.num_requests, training.num_failed + holdout.num_failed, 0, {})
    print_summary(console, record, before, after)
    return record


def demo_config(settings: Settings, training: Traffic, holdout: Traffic, seed: int) -> RunConfig:
    """The default config, with the newest traffic held out: exactly the hold-out wave, whose wordings training never sees."""
    share = holdout.num_corrected / max(1, training.num_corrected + holdout.num_corrected)
    return RunConfig(
        ingest=IngestConfig(experiments=(f"gateway/{settings.endpoint}",)),
        rewards=RewardsConfig(holdout_share=min(0.9, max(0.05, share))),
        # One of the 16 bundled instances is 6 points, and the interval of losing it alone reaches 19.
        promotion=PromotionPolicy(swebench_margin_points=20.0),
        seed=seed,
    )


def _cycle(settings: Settings, config: RunConfig, seed: int) -> dict[str, Any]:
    """Run or resume the demo's cycle; once finished its record is kept, since the after-traffic would open another one."""
    path = settings.root / "demo" / f"cycle-{seed}.json"
    if path.is_file():
        return from_json(dict[str, Any], path.read_bytes())
    from flows.close_loop import run_cycle

    record = run_cycle(settings, config)
    write_atomically(path, to_json(record))
    return record


def _wave(
    settings: Settings, seed: int, name: str, requests: Sequence[DemoRequest], shop: sqlite3.Connection, *, corrected: float
) -> Traffic:
    """Send one wave through the gateway and have the operator correct failures; done once, then read back."""
    path = settings.root / "demo" / f"{name}-{seed}.json"
    if path.is_file():
        return from_json(Traffic, path.read_bytes())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task(f"{name} traffic", total=len(requests))
        report = asyncio.run(drive(settings, requests, shop, progress=lambda done, _: progress.update(bar, completed=done)))
    num_corrected = correct(settings, report.interactions, share=corrected, seed=seed) if corrected else 0
    traffic = Traffic(report.num_requests, report.failures, num_corrected, report.outcomes)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(traffic))
    return traffic


def print_summary(console: Console, record: dict[str, Any], before: Traffic, after: Traffic) -> None:
    """What the cycle did, cost and gained, for people."""
    table = Table(title=f"Cycle {record['cycle']}: {record['outcome']}", show_header=False, title_justify="left")
    for label, value in _rows(record, before, after):
        table.add_row(label, value)
    console.print(table)


def _rows(record: dict[str, Any], before: Traffic, after: Traffic) -> list[tuple[str, str]]:
    rows = [
        ("production failure rate before", f"{before.failure_rate:.1%} of {before.num_requests} requests"),
        ("production failure rate after", f"{after.failure_rate:.1%} of {after.num_requests} fresh requests"),
    ]
    if "evaluation" in record:
        rates = record["evaluation"]["pass_rates"]
        gain = record["evaluation"]["holdout/champion-candidate"]
        low, high = gain["interval_points"]
        rows += [
            ("held-out pass rate", _held_out(rates)),
            ("gain", f"{gain['gain_points']:+.1f} points (95% {low:+.1f} to {high:+.1f}) on {gain['num_tasks']} tasks"),
            (
                "SWE-bench format",
                f"champion {rates['champion/swebench-tiny']:.0%}, candidate {rates['candidate/swebench-tiny']:.0%}",
            ),
        ]
    if "training" in record:
        t = record["training"]
        rows.append(
            (
                "training",
                f"{t['sft_steps']} SFT steps, {t['grpo_steps']} GRPO steps, {t['rollouts']} rollouts, "
                f"mean reward {t['mean_reward_first']:.2f} -> {t['mean_reward_last']:.2f}",
            )
        )
    if "promotion" in record:
        p = record["promotion"]
        rows.append(("serving", f"version {p['served_version']}: {p['served_model']} (read back: {p['read_back']})"))
    wall = record["wall_s"]
    rows.append(("time", ", ".join(f"{k} {v:.0f} s" for k, v in wall.items())))
    rows.append(("cost", _usd(record["ledger"]["total_usd"])))
    rows.append(("intelligence per dollar", _intelligence(record["intelligence_per_dollar"])))
    return rows


def _rate(rates: dict[str, Any], model: str) -> str:
    value = rates.get(f"{model}/holdout")
    return "not measured" if value is None else f"{value:.1%}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f} USD"


def _intelligence(value: dict[str, Any] | None) -> str:
    if value is None or value.get("points_per_usd") is None:
        return (value or {}).get("note") or "not significant"
    return f"{value['points_per_usd']:.0f} points per USD (95% {value['low']:.0f} to {value['high']:.0f})"


def _held_out(rates: dict[str, Any]) -> str:
    return f"champion {_rate(rates, 'champion')}, after SFT {_rate(rates, 'warm_start')}, candidate {_rate(rates, 'candidate')}"

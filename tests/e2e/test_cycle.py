"""The whole loop through its command line, on a real S3 lake with a tiny model: killed, resumed, held, and left alone."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from infra import gateway, registry
from infra.cycles import current_cycle
from infra.demo.agent import drive
from infra.demo.operator import correct
from infra.demo.requests import make_requests
from infra.demo.shop import open_shop
from infra.inference.replicas import list_replicas
from infra.lake import open_lake
from infra.settings import Settings
from tests.integration.engine_fixtures import make_tiny_model
from tests.integration.s3_fixtures import CREDENTIALS, S3Url
from tests.integration.stack_fixtures import free_ports

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "rewards": {"holdout_share": 0.4, "min_train_tasks": 4, "min_holdout_tasks": 4},
    "training": {
        "sft": {"steps": 2, "batch_size": 2, "save_every": 1},
        "grpo": {"steps": 1, "prompts_per_step": 2, "group_size": 2, "max_completion_tokens": 8},
        # A random model answers noise; the limits that would rightly refuse it are opened here.
        "health": {"max_truncated_share": 1.0, "max_zero_variance_share": 1.0},
        "trainable_layers": 1,
    },
    "evaluation": {"max_tokens": 8, "swebench_max_tokens": 8},
}


@dataclass(frozen=True, slots=True)
class World:
    """A stack of its own on an S3 lake, with traffic that failed and was corrected."""

    settings: Settings
    environment: dict[str, str]
    config: Path

    def everloop(self, *arguments: str, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.cli", *arguments]

    def cycle(self) -> dict[str, Any]:
        status = self.everloop("status", "--json")
        assert status.returncode == 0, status.stderr
        record: dict[str, Any] = orjson.loads(status.stdout)["cycle"]
        return record


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, module_s3_url: S3Url) -> Iterator[World]:
    home = tmp_path_factory.mktemp("everloop")
    prefect, mlflow, serving = free_ports(3)
    values = {
        "EVERLOOP_HOME": str(home),
        "EVERLOOP_LAKE": module_s3_url.url,
        "EVERLOOP_S3_ENDPOINT_URL": module_s3_url.endpoint,
        "EVERLOOP_PREFECT_PORT": str(prefect),
        "EVERLOOP_MLFLOW_PORT": str(mlflow),
        "EVERLOOP_SERVING_PORT": str(serving),
        "EVERLOOP_BASE_MODEL": str(make_tiny_model(tmp_path_factory.mktemp("base"), 1)),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        config = home / "cycle.yaml"
        config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        made = World(Settings(), {**os.environ, **values, **CREDENTIALS}, config)
        up = made.everloop("up")
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            send_traffic(made)
            yield made
        finally:
            made.everloop("down")


def send_traffic(world: World) -> None:
    traffic = make_requests(0, num_training=18, num_holdout=12, num_after=1)
    shop = open_shop(None, traffic.stock)
    for wave in (traffic.training, traffic.holdout):
        report = asyncio.run(drive(world.settings, wave, shop))
        assert report.failures == len(wave)
        assert correct(world.settings, report.interactions, share=1.0, seed=0) == len(wave)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_cycle_is_finished_by_the_same_command_and_an_equal_candidate_leaves_serving_untouched(world: World) -> None:
    before = gateway.read_endpoint(world.settings, world.settings.endpoint)
    champion = registry.champion(world.settings)
    assert champion is not None

    lake = open_lake(world.settings)
    first = subprocess.Popen(
        world.command("run", "--config", str(world.config)), env=world.environment, cwd=ROOT, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while not lake.list_files("records/build_reward_dataset"):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.5)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    killed = current_cycle(lake)
    assert killed is not None
    records = {f.path: f.etag for f in lake.list_files("records")}

    second = world.everloop("run", "--config", str(world.config), timeout_s=600)
    assert second.returncode == 0, second.stdout + second.stderr
    record = world.cycle()

    assert record["cycle"] == killed.id
    assert {f.path: f.etag for f in lake.list_files("records") if f.path in records} == records
    assert record["traces"]["traces"] == 30
    assert (record["dataset"]["train_tasks"], record["dataset"]["holdout_tasks"]) == (18, 12)
    assert (record["training"]["sft_steps"], record["training"]["grpo_steps"], record["training"]["rollouts"]) == (2, 1, 4)
    assert record["evaluation"]["pass_rates"]["champion/holdout"] == 0.0
    assert record["outcome"] == "hold"
    assert record["intelligence_per_dollar"]["points_per_usd"] is None
    assert gateway.read_endpoint(world.settings, world.settings.endpoint) == before
    after = registry.champion(world.settings)
    assert after is not None
    assert after.version == champion.version
    assert [r.role.value for r in list_replicas(world.settings)] == ["serving"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_running_a_finished_cycle_again_does_nothing(world: World) -> None:
    record = world.cycle()
    lake = open_lake(world.settings)
    before = {f.path: f.etag for f in lake.list_files("records")}

    again = world.everloop("run", "--config", str(world.config))

    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stdout + again.stderr
    assert world.cycle() == record
    assert {f.path: f.etag for f in lake.list_files("records")} == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_person_sees_the_decision_in_the_mlflow_page_of_the_cycle(world: World, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine; apt-get install chromium")
    from mlflow import MlflowClient
    from playwright.sync_api import sync_playwright

    client = MlflowClient(tracking_uri=world.settings.mlflow_url)
    experiment = client.get_experiment_by_name("everloop")
    assert experiment is not None
    cycle = world.cycle()["cycle"]
    runs = client.search_runs(
        [experiment.experiment_id], f"tags.`everloop.cycle` = '{cycle}' and tags.`everloop.stage` = 'cycle'"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{world.settings.mlflow_url}/#/experiments/{experiment.experiment_id}/runs/{runs[0].info.run_id}")
        page.get_by_text("hold").first.wait_for(timeout=60_000)
        page.screenshot(path=tmp_path / "cycle.png")
        browser.close()
    assert (tmp_path / "cycle.png").stat().st_size > 10_000

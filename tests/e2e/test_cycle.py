"""The whole loop through its command line, on a real S3 lake with a tiny model: killed, resumed, held, and left alone."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import gateway, registry
from infra.cycles import current_cycle
from infra.inference.replicas import list_replicas
from infra.lake import open_lake
from tests.e2e.world import ROOT, World, make_world, running, send_traffic
from tests.integration.engine_fixtures import make_tiny_model
from tests.integration.s3_fixtures import CREDENTIALS, S3Url


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, module_s3_url: S3Url) -> Iterator[World]:
    """A stack on an S3 lake, with traffic that failed and was corrected."""
    base = make_tiny_model(tmp_path_factory.mktemp("base"), 1)
    values = {
        "EVERLOOP_LAKE": module_s3_url.url,
        "EVERLOOP_S3_ENDPOINT_URL": module_s3_url.endpoint,
        "EVERLOOP_BASE_MODEL": str(base),
    }
    with pytest.MonkeyPatch.context() as patch:
        # The tests open the lake in this process too.
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with running(make_world(tmp_path_factory.mktemp("everloop"), values)) as made:
            send_traffic(made)
            yield made


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

    second = world.run()
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

    again = world.run()

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

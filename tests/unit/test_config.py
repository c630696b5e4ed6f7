"""Every config that ships is parsed; a wrong one gets one clear error."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml
from prefect import Flow

from flows.demo import Traffic, demo_config
from infra.settings import Settings
from pipelines.config import RunConfig, read_run_config
from pipelines.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_every_deployment_names_a_flow_and_no_schedule_is_on() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

    for deployment in deployments:
        module, _, name = deployment["entrypoint"].rpartition(".")
        assert isinstance(getattr(import_module(module), name), Flow)
        assert not any(schedule["active"] for schedule in deployment.get("schedules", []))
    cycle = next(d for d in deployments if d["name"] == "close-loop")
    assert cycle["concurrency_limit"]["limit"] == 1


def test_an_empty_config_file_is_the_default_config(tmp_path: Path) -> None:
    path = tmp_path / "cycle.yaml"
    path.write_text("", encoding="utf-8")

    assert read_run_config(path) == RunConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {sft: {step: 3}}", r"training\.sft\.step"),
        ("evaluation: {seeds: []}", r"evaluation\.seeds"),
        ("rewards: [", "not YAML"),
        ("- a list", "file"),
    ],
)
def test_a_wrong_config_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cycle.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=message):
        read_run_config(path)


def test_the_demo_holds_out_exactly_its_holdout_wave() -> None:
    config = demo_config(Settings(), Traffic(150, 150, 112, {}), Traffic(96, 96, 96, {}), 0)

    assert round(config.rewards.holdout_share * (112 + 96)) == 96

"""A stack of its own with a tiny model, driven through the command line, as the end-to-end tests use it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from infra.demo.agent import drive
from infra.demo.operator import correct
from infra.demo.requests import make_requests
from infra.demo.shop import open_shop
from infra.settings import Settings
from tests.integration.s3_fixtures import CREDENTIALS
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
    settings: Settings
    environment: dict[str, str]
    config: Path

    def everloop(
        self, *arguments: str, timeout_s: float = 280, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**self.environment, **(environment or {})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def run(self, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.everloop("run", "--config", str(self.config), timeout_s=600, environment=environment)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.cli", *arguments]

    def cycle(self) -> dict[str, Any]:
        status = self.everloop("status", "--json")
        assert status.returncode == 0, status.stderr
        record: dict[str, Any] = orjson.loads(status.stdout)["cycle"]
        return record


def make_world(home: Path, values: Mapping[str, str]) -> World:
    """A stack's settings under `home`, on free ports; nothing runs yet. `values` are further EVERLOOP_* variables."""
    prefect, mlflow, serving = free_ports(3)
    own = {
        "EVERLOOP_HOME": str(home),
        "EVERLOOP_PREFECT_PORT": str(prefect),
        "EVERLOOP_MLFLOW_PORT": str(mlflow),
        "EVERLOOP_SERVING_PORT": str(serving),
        **values,
    }
    home.mkdir(parents=True, exist_ok=True)
    config = home / "cycle.yaml"
    config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        settings = Settings()
    return World(settings, {**os.environ, **own, **CREDENTIALS}, config)


@contextmanager
def running(world: World) -> Iterator[World]:
    """The world's stack, up for the time of the block."""
    up = world.everloop("up")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        yield world
    finally:
        world.everloop("down")


def send_traffic(world: World, *, num_training: int = 18, num_holdout: int = 12) -> None:
    """Requests through the gateway, all of which the random model fails, and an operator who corrects them all."""
    traffic = make_requests(0, num_training=num_training, num_holdout=num_holdout, num_after=1)
    shop = open_shop(None, traffic.stock)
    for wave in (traffic.training, traffic.holdout):
        report = asyncio.run(drive(world.settings, wave, shop))
        assert report.failures == len(wave)
        assert correct(world.settings, report.interactions, share=1.0, seed=0) == len(wave)

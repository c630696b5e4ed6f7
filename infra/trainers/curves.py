"""Training curves: each logged step goes to the launcher as a progress line and to the MLflow run as metrics."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from infra.trainers.request import TrainingProgress, TrainingRequest
from pipelines.artifacts import to_json

PROGRESS_PREFIX = "progress "


def report(progress: TrainingProgress) -> None:
    """Hand one progress line to the launcher."""
    sys.stdout.write(f"{PROGRESS_PREFIX}{to_json(progress).decode()}\n")
    sys.stdout.flush()


def metric_logger(request: TrainingRequest) -> Callable[[int, dict[str, float]], None]:
    """A function that logs metrics of one step to the request's MLflow run; one that does nothing when it names none."""
    if not request.run_id:
        return lambda step, metrics: None
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=request.mlflow_url)

    def log(step: int, metrics: dict[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        client.log_batch(request.run_id, metrics=[Metric(name, value, now_ms, step) for name, value in metrics.items()])

    return log


class Curves(TrainerCallback):
    """Forwards what the Trainer logs, with `extra()` merged in, under `<phase>/<name>`."""

    def __init__(
        self,
        phase: str,
        kept: dict[str, str],
        log: Callable[[int, dict[str, float]], None],
        extra: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self.phase = phase
        self.kept = kept
        """The Trainer's metric name to ours; others are dropped."""
        self.losses: dict[int, float] = {}
        """Loss by step; not finite when training broke."""
        self._log = log
        self._extra = extra

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if not logs or "loss" not in logs:
            return
        self.losses[state.global_step] = float(logs["loss"])
        kept = {ours: float(logs[theirs]) for theirs, ours in self.kept.items() if theirs in logs} | self._extra()
        metrics = {name: value for name, value in kept.items() if math.isfinite(value)}
        report(TrainingProgress(self.phase, state.global_step, state.max_steps, metrics))
        self._log(state.global_step, {f"{self.phase}/{name}": value for name, value in metrics.items()})

"""Runs in MLflow: one parent run per cycle, one nested run per stage, found again by their tags.

Owns how a cycle looks in the MLflow UI: parameters, metrics, files, figures, notes, dataset inputs and links. Every call names
its run; there is no active run. Refuses to draw figures (`infra.plots`) and to know what a stage does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from infra.mlflow_connection import connect, mlflow_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CYCLE_TAG = "everloop.cycle"
STAGE_TAG = "everloop.stage"
KEY_TAG = "everloop.key"
_PARENT_TAG = "mlflow.parentRunId"
_NOTE_TAG = "mlflow.note.content"
_MAX_PARAMS, _MAX_METRICS = 100, 1000
"""Most entries of one log_batch request."""
_MAX_PARAM_CHARS = 6000
_MAX_DIGEST_CHARS = 36


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a curve."""

    name: str
    value: float
    step: int


class Tracking:
    """The tracking server at one URL. Every method raises InfrastructureError when MLflow cannot do it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = connect(url)

    def experiment(self, name: str) -> str:
        """Id of the experiment, created when there is none."""
        with mlflow_errors(self.url, f"open experiment {name!r}"):
            found = self._client.get_experiment_by_name(name)
            return str(found.experiment_id if found else self._client.create_experiment(name))

    def start_cycle(self, experiment: str, cycle_id: str, *, name: str = "") -> str:
        """Run id of the cycle's parent run; the same cycle id finds the same run again and sets it running."""
        return self._resume_or_create(experiment, name or f"cycle {cycle_id}", {CYCLE_TAG: cycle_id, STAGE_TAG: "cycle"})

    def start_stage(self, experiment: str, parent_run_id: str, stage: str, *, cycle_id: str, key: str) -> str:
        """Run id of a stage, nested under its cycle's run; the same stage and key of a cycle find the same run again."""
        tags = {CYCLE_TAG: cycle_id, STAGE_TAG: stage, KEY_TAG: key, _PARENT_TAG: parent_run_id}
        return self._resume_or_create(experiment, stage, tags)

    def finish(self, run_id: str, *, failed: bool = False) -> None:
        with mlflow_errors(self.url, f"finish run {run_id}"):
            self._client.set_terminated(run_id, "FAILED" if failed else "FINISHED")

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Parameters never change once logged: the same value again is fine, another one is an error."""
        from mlflow.entities import Param

        entries = [Param(name, str(value)[:_MAX_PARAM_CHARS]) for name, value in params.items()]
        with mlflow_errors(self.url, f"log parameters of run {run_id}"):
            for first in range(0, len(entries), _MAX_PARAMS):
                self._client.log_batch(run_id, params=entries[first : first + _MAX_PARAMS])

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], *, step: int = 0) -> None:
        self.log_curves(run_id, (Point(name, value, step) for name, value in metrics.items()))

    def log_curves(self, run_id: str, points: Iterable[Point]) -> None:
        """Many values in few requests (one request of 1000 takes as long as three of one)."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        entries = [Metric(point.name, float(point.value), now_ms, point.step) for point in points]
        with mlflow_errors(self.url, f"log metrics of run {run_id}"):
            for first in range(0, len(entries), _MAX_METRICS):
                self._client.log_batch(run_id, metrics=entries[first : first + _MAX_METRICS])

    def log_file(self, run_id: str, path: Path, *, folder: str = "") -> None:
        """Upload a file, or a folder with all that is in it, to the run's artifacts under `folder`."""
        with mlflow_errors(self.url, f"upload {path} to run {run_id}"):
            if path.is_dir():
                self._client.log_artifacts(run_id, str(path), folder or None)
            else:
                self._client.log_artifact(run_id, str(path), folder or None)

    def log_text(self, run_id: str, text: str, path: str) -> None:
        """Store `text` as the artifact `path`."""
        with mlflow_errors(self.url, f"upload {path} to run {run_id}"):
            self._client.log_text(run_id, text, path)

    def log_figure(self, run_id: str, figure: Figure, path: str) -> None:
        """Store a matplotlib figure as the artifact `path`, an image by its suffix."""
        with mlflow_errors(self.url, f"upload {path} to run {run_id}"):
            self._client.log_figure(run_id, figure, path)

    def note(self, run_id: str, markdown: str) -> None:
        """The run's description. The UI folds it after a few lines: put the verdict first."""
        self.tag(run_id, {_NOTE_TAG: markdown})

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags; also how a run links to things outside it (a URI or URL as the value)."""
        from mlflow.entities import RunTag

        with mlflow_errors(self.url, f"tag run {run_id}"):
            self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def log_dataset(
        self, run_id: str, *, name: str, uri: str, digest: str, context: str, counts: Mapping[str, int] | None = None
    ) -> None:
        """Record that the run read a dataset. `context` says what for: training, evaluation."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source_type = "s3" if uri.startswith("s3://") else "local"
        profile = orjson.dumps({"digest": digest, **(counts or {})}).decode()
        dataset = Dataset(name, digest[:_MAX_DIGEST_CHARS], source_type, orjson.dumps({"uri": uri}).decode(), profile=profile)
        with mlflow_errors(self.url, f"record dataset {name!r} of run {run_id}"):
            self._client.log_inputs(run_id, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def run_url(self, experiment: str, run_id: str) -> str:
        """Where a person looks at the run."""
        return f"{self.url}/#/experiments/{self.experiment(experiment)}/runs/{run_id}"

    def _resume_or_create(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        experiment_id = self.experiment(experiment)
        with mlflow_errors(self.url, f"start run {name!r}"):
            found = self._find(experiment_id, tags)
            if found is not None:
                self._client.update_run(found, status="RUNNING")
                return found
            return str(self._client.create_run(experiment_id, tags=dict(tags), run_name=name).info.run_id)

    def _find(self, experiment_id: str, tags: Mapping[str, str]) -> str | None:
        """Oldest run with all these tags. Values are compared here: a quote in one must not become part of a query."""
        query = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items() if "'" not in value)
        for run in self._client.search_runs([experiment_id], query, order_by=["attributes.start_time ASC"]):
            if all(run.data.tags.get(name) == value for name, value in tags.items()):
                return str(run.info.run_id)
        return None

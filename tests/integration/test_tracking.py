"""Runs of a cycle on a real MLflow server, read back with MLflow's own client."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from matplotlib.figure import Figure
from mlflow import MlflowClient

from infra.tracking import Point, Tracking
from pipelines.errors import InfrastructureError


@pytest.fixture
def tracking(mlflow_url: str) -> Tracking:
    return Tracking(mlflow_url)


@pytest.fixture
def client(mlflow_url: str) -> MlflowClient:
    return MlflowClient(mlflow_url)


@pytest.fixture
def experiment() -> str:
    return f"cycles-{uuid4().hex[:8]}"


def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(InfrastructureError, match=r"MLflow at http://127\.0\.0\.1:1 does not answer"):
        Tracking("http://127.0.0.1:1")


def test_a_server_that_is_not_mlflow_is_named(mlflow_url: str) -> None:
    with pytest.raises(InfrastructureError, match="no healthy MLflow server"):
        Tracking(f"{mlflow_url}/nothing")


def test_a_cycle_is_a_parent_run_with_its_stages_nested(tracking: Tracking, client: MlflowClient, experiment: str) -> None:
    parent = tracking.start_cycle(experiment, "c1", name="cycle one")
    stage = tracking.start_stage(experiment, parent, "post_train", cycle_id="c1", key="k1")
    tracking.finish(stage)
    tracking.finish(parent)
    run = client.get_run(stage)
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert (run.info.run_name, run.info.status) == ("post_train", "FINISHED")
    assert client.get_run(parent).info.run_name == "cycle one"


def test_a_resumed_cycle_finds_its_runs_again(tracking: Tracking, client: MlflowClient, experiment: str) -> None:
    parent = tracking.start_cycle(experiment, "c1")
    stage = tracking.start_stage(experiment, parent, "post_train", cycle_id="c1", key="k1")
    tracking.finish(stage, failed=True)
    assert tracking.start_cycle(experiment, "c1") == parent
    assert tracking.start_stage(experiment, parent, "post_train", cycle_id="c1", key="k1") == stage
    assert client.get_run(stage).info.status == "RUNNING"
    assert tracking.start_cycle(experiment, "c2") != parent
    assert tracking.start_stage(experiment, parent, "post_train", cycle_id="c1", key="k2") != stage


def test_a_quote_in_a_cycle_id_is_only_a_quote(tracking: Tracking, experiment: str) -> None:
    one = tracking.start_cycle(experiment, "it's c1")
    assert tracking.start_cycle(experiment, "it's c1") == one
    assert tracking.start_cycle(experiment, "it's c2") != one


def test_more_parameters_and_points_than_one_request_holds_all_arrive(
    tracking: Tracking, client: MlflowClient, experiment: str
) -> None:
    run_id = tracking.start_cycle(experiment, "c1")
    tracking.log_params(run_id, {f"p{i}": i for i in range(120)})
    tracking.log_params(run_id, {"p0": 0})
    tracking.log_curves(run_id, (Point("reward", i / 1200, i) for i in range(1200)))
    tracking.log_metrics(run_id, {"train/loss": 0.5}, step=3)
    data = client.get_run(run_id).data
    assert len(data.params) == 120
    assert [(m.step, m.value) for m in client.get_metric_history(run_id, "train/loss")] == [(3, 0.5)]
    assert len(client.get_metric_history(run_id, "reward")) == 1200


def test_a_parameter_cannot_change(tracking: Tracking, experiment: str) -> None:
    run_id = tracking.start_cycle(experiment, "c1")
    tracking.log_params(run_id, {"seed": 1})
    with pytest.raises(InfrastructureError, match="log parameters of run"):
        tracking.log_params(run_id, {"seed": 2})


def test_files_folders_texts_and_figures_become_artifacts(
    tracking: Tracking, client: MlflowClient, experiment: str, tmp_path: Path
) -> None:
    run_id = tracking.start_cycle(experiment, "c1")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.html").write_text("<p>fine</p>")
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1])
    tracking.log_file(run_id, docs / "index.html", folder="single")
    tracking.log_file(run_id, docs, folder="data_docs")
    tracking.log_text(run_id, "{}", "record.json")
    tracking.log_figure(run_id, figure, "plots/reward.png")
    paths = [f.path for folder in ("", "single", "data_docs", "plots") for f in client.list_artifacts(run_id, folder)]
    assert {"record.json", "single/index.html", "data_docs/index.html", "plots/reward.png"} <= set(paths)
    saved = Path(client.download_artifacts(run_id, "plots/reward.png", str(tmp_path)))
    assert saved.read_bytes().startswith(b"\x89PNG")


def test_notes_tags_and_datasets_stand_on_the_run(tracking: Tracking, client: MlflowClient, experiment: str) -> None:
    run_id = tracking.start_cycle(experiment, "c1")
    tracking.note(run_id, "**promote**: better")
    tracking.tag(run_id, {"everloop.model": "models:/policy/3"})
    tracking.log_dataset(
        run_id, name="rewards", uri="s3://lake/datasets/d", digest="d" * 64, context="training", counts={"tasks": 90}
    )
    run = client.get_run(run_id)
    assert run.data.tags["mlflow.note.content"] == "**promote**: better"
    assert run.data.tags["everloop.model"] == "models:/policy/3"
    assert run.inputs is not None
    (dataset,) = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.source_type, dataset.dataset.digest) == ("rewards", "s3", "d" * 36)
    assert json.loads(dataset.dataset.source) == {"uri": "s3://lake/datasets/d"}
    assert json.loads(dataset.dataset.profile or "") == {"digest": "d" * 64, "tasks": 90}
    assert [(tag.key, tag.value) for tag in dataset.tags] == [("mlflow.data.context", "training")]

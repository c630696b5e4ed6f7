"""`up` and `down` with the real servers: what runs, what is said when it cannot, and that nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from infra.doctor import Outcome, check_ports
from infra.inference.replicas import (
    declare_replica,
    retire_replica,
    served_models,
    wait_until_retired,
    wait_until_serving,
)
from infra.settings import Settings
from infra.stack.environment import REPOSITORY, client_environment, settings_environment
from infra.stack.lifecycle import observe_stack, start_stack, stop_stack
from infra.stack.parts import MLFLOW, PREFECT, WORKER
from infra.stack.processes import find_processes, is_alive, port_is_free
from infra.stack.state import PartState, StackState, Status
from pipelines.errors import ConfigError, InfrastructureError
from tests.integration.engine_fixtures import TinyModels
from tests.integration.stack_fixtures import RunningStack, stack_settings


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a stack of the test's own; whatever still runs of it at the end is ended."""
    settings = stack_settings(tmp_path / "home")
    yield settings
    stop_stack(settings)


def get(url: str) -> int:
    return httpx.get(url, timeout=30).status_code


def post(url: str, body: dict[str, object]) -> Any:
    answer = httpx.post(url, json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def everloop(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings_environment(settings)}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False)


def observe(settings: Settings) -> StackState:
    state = observe_stack(settings)
    assert state is not None
    return state


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def test_every_part_of_a_started_stack_answers(stack: RunningStack) -> None:
    state = observe(stack.settings)
    assert {name: part.status for name, part in state.parts.items()} == dict.fromkeys((PREFECT, WORKER, MLFLOW), Status.UP)
    assert get(f"{stack.prefect_api_url}/health") == 200
    assert get(f"http://{stack.settings.host}:{stack.settings.prefect_port}/") in (200, 307)
    assert get(f"{stack.mlflow_url}/health") == 200
    assert get(f"{stack.mlflow_url}/") == 200


def test_starting_a_started_stack_says_so_and_starts_nothing(stack: RunningStack) -> None:
    before = observe(stack.settings)
    again = start_stack(stack.settings, serve=False)
    assert again.already_up
    assert observe(stack.settings) == before
    said = everloop(stack.settings, "up", "--no-serve")
    assert said.returncode == 0
    assert "Already up." in said.stdout
    assert stack.mlflow_url in said.stdout


def test_secrets_of_the_gateway_are_readable_by_the_owner_only(stack: RunningStack) -> None:
    folder = stack.settings.root / "mlflow"
    secrets = [folder / "gateway-passphrase", folder / "webhook-key"]
    assert [path.stat().st_mode & 0o777 for path in secrets] == [0o600, 0o600]
    logs = "".join(path.read_text() for path in (stack.settings.root / "logs").glob("*.log"))
    assert not any(path.read_text() in logs for path in secrets)


def test_a_part_that_is_killed_is_started_again_and_the_status_says_so(stack: RunningStack) -> None:
    def worker() -> PartState:
        return observe(stack.settings).parts[WORKER]

    killed = worker().process
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    assert eventually(lambda: worker().restarts == 1 and worker().status is Status.UP)
    assert worker().process != killed
    assert "restarted 1 times" in everloop(stack.settings, "status").stdout


def test_the_doctor_knows_the_ports_of_the_running_stack(stack: RunningStack) -> None:
    assert check_ports(stack.settings).outcome is Outcome.OK
    stranger = stack_settings(stack.settings.root / "elsewhere", mlflow_port=stack.settings.mlflow_port)
    result = check_ports(stranger)
    assert result.outcome is Outcome.FAILED
    assert str(stack.settings.mlflow_port) in result.detail
    assert "EVERLOOP_MLFLOW_PORT" in result.fix


def test_after_the_supervisor_was_killed_down_leaves_nothing(own: Settings) -> None:
    assert everloop(own, "up", "--no-serve").returncode == 0
    started = observe(own)
    os.kill(started.supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(started.supervisor))
    assert everloop(own, "down").returncode == 0
    assert find_processes(started.stack_id, []) == []
    assert observe_stack(own) is None
    assert port_is_free(own.host, own.prefect_port)
    assert port_is_free(own.host, own.mlflow_port)
    assert not stop_stack(own).was_running


def test_a_part_that_dies_during_start_ends_the_whole_start_with_its_log(own: Settings) -> None:
    database = own.root / "mlflow" / "mlflow.db"
    database.parent.mkdir(parents=True)
    database.write_text("this is not a database")
    failed = everloop(own, "up", "--no-serve")
    assert failed.returncode == 1
    assert "error: mlflow: exited with code 1 during start" in failed.stderr
    assert "not a database" in failed.stderr
    assert observe_stack(own) is None
    assert port_is_free(own.host, own.prefect_port)
    assert everloop(own, "down").stdout == "Nothing was running.\n"


def test_an_interrupted_start_ends_what_it_started_and_says_how_to_go_on(own: Settings) -> None:
    environment = {**os.environ, **settings_environment(own)}
    command = [sys.executable, "-m", "flows.cli", "up", "--no-serve"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True) as starting:
        assert eventually(lambda: observe_stack(own) is not None)
        stack_id = observe(own).stack_id
        starting.send_signal(signal.SIGINT)
        _, said = starting.communicate(timeout=60)
    assert starting.returncode == 130
    assert said.strip() == "interrupted; the same command continues where it stopped: everloop up --no-serve"
    assert observe_stack(own) is None
    assert find_processes(stack_id, []) == []


def test_a_port_in_use_is_said_before_anything_starts(own: Settings) -> None:
    with socket.create_server((own.host, own.mlflow_port)):
        failed = everloop(own, "up", "--no-serve")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"error: mlflow: port {own.mlflow_port} is in use by pid {os.getpid()}")
    assert "EVERLOOP_MLFLOW_PORT" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert observe_stack(own) is None


def test_a_missing_base_model_is_said_and_nothing_is_left_running(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path / "home", base_model=tmp_path / "no-such-model")
    with pytest.raises(ConfigError, match="no-such-model"):
        start_stack(settings)
    assert observe_stack(settings) is None
    assert port_is_free(settings.host, settings.prefect_port)


def test_a_declared_replica_is_served_and_a_retired_one_leaves_no_process(stack: RunningStack, tiny_models: TinyModels) -> None:
    spec = declare_replica(stack.settings, name="tiny", model_dir=tiny_models.one, served_name="tiny-1", role="serving")
    try:
        wait_until_serving(stack.settings, spec)
        assert served_models(spec) == ("tiny-1",)
        process = observe(stack.settings).parts[spec.part_name].process
        assert process is not None
    finally:
        retire_replica(stack.settings, "tiny")
    wait_until_retired(stack.settings, "tiny")
    assert find_processes("", [process]) == []
    assert port_is_free(spec.host, spec.port)


def test_every_deployment_is_accepted_and_the_worker_runs_the_loop(stack: RunningStack) -> None:
    """With empty sources the cycle ends with nothing to learn from: enough to know that a deployed flow finds its code and servers."""

    def prefect(*arguments: str) -> str:
        environment = {**os.environ, **client_environment(stack.settings)}
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    prefect("deploy", "--all")
    deployments = post(f"{stack.prefect_api_url}/deployments/filter", {})
    declared = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    assert {deployment["name"] for deployment in deployments} == {deployment["name"] for deployment in declared}
    directory = {"prefect.deployments.steps.set_working_directory": {"directory": str(REPOSITORY)}}
    assert all(deployment["pull_steps"] == [directory] for deployment in deployments)
    prefect("deployment", "run", "close_loop/close-loop", "--watch", "--watch-timeout", "200")
    runs = post(f"{stack.prefect_api_url}/flow_runs/filter", {"flows": {"name": {"any_": ["close_loop"]}}})
    assert [run["state_type"] for run in runs] == ["COMPLETED"]
    assert "nothing to learn from" in everloop(stack.settings, "status", "--json").stdout


def test_a_replica_that_cannot_start_is_a_failed_part_with_a_reason(stack: RunningStack, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    spec = declare_replica(stack.settings, name="broken", model_dir=tmp_path, served_name="broken-1", role="serving")
    try:
        with pytest.raises(InfrastructureError, match=r"vllm-broken: exited with code \d+ during start\n(.|\n)*\|"):
            wait_until_serving(stack.settings, spec, timeout_s=200)
    finally:
        retire_replica(stack.settings, "broken")
    wait_until_retired(stack.settings, "broken")
    assert "vllm-broken" not in observe(stack.settings).parts

"""`up` and `down` with the real servers: what runs, what is said when it cannot, and that nothing is left behind."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.doctor import Outcome, check_ports
from infra.settings import Settings
from infra.stack.environment import REPOSITORY, settings_environment
from infra.stack.lifecycle import observe_stack, start_stack, stop_stack
from infra.stack.parts import MLFLOW, PREFECT, WORKER
from infra.stack.processes import find_processes, is_alive, port_is_free
from infra.stack.state import PartState, StackState, Status
from pipelines.errors import ConfigError, InfrastructureError
from tests.integration.stack_fixtures import RunningStack, stack_settings


def get(url: str) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status
    finally:
        connection.close()


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


def test_after_the_supervisor_was_killed_down_leaves_nothing(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path)
    assert everloop(settings, "up", "--no-serve").returncode == 0
    started = observe(settings)
    os.kill(started.supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(started.supervisor))
    assert everloop(settings, "down").returncode == 0
    assert find_processes(started.stack_id, []) == []
    assert observe_stack(settings) is None
    assert port_is_free(settings.host, settings.prefect_port)
    assert port_is_free(settings.host, settings.mlflow_port)
    assert not stop_stack(settings).was_running


def test_a_part_that_dies_during_start_ends_the_whole_start_with_its_log(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path)
    database = settings.root / "mlflow" / "mlflow.db"
    database.parent.mkdir(parents=True)
    database.write_text("this is not a database")
    failed = everloop(settings, "up", "--no-serve")
    assert failed.returncode == 1
    assert "error: mlflow: exited with code 1 during start" in failed.stderr
    assert "not a database" in failed.stderr
    assert observe_stack(settings) is None
    assert port_is_free(settings.host, settings.prefect_port)
    assert everloop(settings, "down").stdout == "Nothing was running.\n"


def test_an_interrupted_start_ends_what_it_started_and_says_how_to_go_on(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path)
    environment = {**os.environ, **settings_environment(settings)}
    command = [sys.executable, "-m", "flows.cli", "up", "--no-serve"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True) as starting:
        assert eventually(lambda: observe_stack(settings) is not None)
        stack_id = observe(settings).stack_id
        starting.send_signal(signal.SIGINT)
        _, said = starting.communicate(timeout=60)
    assert starting.returncode == 130
    assert said.strip() == "interrupted; the same command continues where it stopped: everloop up --no-serve"
    assert observe_stack(settings) is None
    assert find_processes(stack_id, []) == []


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path)
    with socket.create_server((settings.host, settings.mlflow_port)):
        failed = everloop(settings, "up", "--no-serve")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"error: mlflow: port {settings.mlflow_port} is in use by pid {os.getpid()}")
    assert "EVERLOOP_MLFLOW_PORT" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert observe_stack(settings) is None


def test_a_missing_base_model_is_said_and_nothing_is_left_running(tmp_path: Path) -> None:
    settings = stack_settings(tmp_path / "home", base_model=tmp_path / "no-such-model")
    with pytest.raises(ConfigError, match="no-such-model"):
        start_stack(settings)
    assert observe_stack(settings) is None
    assert port_is_free(settings.host, settings.prefect_port)


def test_a_replica_that_cannot_start_is_a_failed_part_with_a_reason(stack: RunningStack, tmp_path: Path) -> None:
    from infra.inference.replicas import declare_replica, retire_replica, wait_until_retired, wait_until_serving

    (tmp_path / "config.json").write_text("{}")
    spec = declare_replica(stack.settings, name="broken", model_dir=tmp_path, served_name="broken-1", role="serving")
    try:
        with pytest.raises(InfrastructureError, match=r"vllm-broken: exited with code \d+ during start\n(.|\n)*\|"):
            wait_until_serving(stack.settings, spec, timeout_s=200)
    finally:
        retire_replica(stack.settings, "broken")
    wait_until_retired(stack.settings, "broken")
    assert "vllm-broken" not in observe(stack.settings).parts

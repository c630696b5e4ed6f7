"""The supervisor's steps with small real processes, the replica declarations it follows, and the state it writes."""

import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.inference.replicas import (
    declare_replica,
    list_replicas,
    retire_replica,
    served_models,
    wait_until_retired,
    wait_until_serving,
)
from infra.settings import Settings
from infra.stack.environment import client_environment, mlflow_secrets, part_environment, settings_environment
from infra.stack.lifecycle import observe_stack, stop_stack
from infra.stack.parts import Launch, Part, server_parts
from infra.stack.processes import STACK_ID, find_processes, identify
from infra.stack.state import PartState, ProcessId, StackState, Status, read_state, state_path, write_state
from infra.stack.supervisor import Supervisor
from pipelines.errors import ConfigError, InfrastructureError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Settings.model_validate({"home": tmp_path / "home", "serving_port": port, "serving_python": tmp_path / "no-python"})


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def supervisor(settings: Settings) -> Iterator[Supervisor]:
    """A supervisor inside the test's process, of two parts of which one needs the other."""
    process = identify(os.getpid())
    assert process is not None
    supervisor = Supervisor(
        settings, stack_id="unit-test", process=process, parts=[sleeper("second", needs="first"), sleeper("first")]
    )
    yield supervisor
    supervisor.stop()


def sleeper(name: str, *, needs: str = "") -> Part:
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    return Part(
        name=name,
        host="127.0.0.1",
        port=None,
        port_setting="",
        launch=lambda: Launch(command, {STACK_ID: "unit-test"}),
        answers=lambda _: True,
        needs=needs,
    )


def tick_until(
    supervisor: Supervisor, settings: Settings, condition: Callable[[dict[str, PartState]], bool]
) -> dict[str, PartState]:
    deadline = time.monotonic() + 10
    while True:
        supervisor.tick()
        state = read_state(settings)
        assert state is not None
        if condition(state.parts):
            return state.parts
        assert time.monotonic() < deadline, state
        time.sleep(0.02)


def test_a_part_starts_after_the_one_it_needs_and_the_state_says_where_each_stands(
    supervisor: Supervisor, settings: Settings
) -> None:
    supervisor.tick()
    state = read_state(settings)
    assert state is not None
    assert (state.parts["first"].status, state.parts["second"].status) == (Status.STARTING, Status.WAITING)
    parts = tick_until(supervisor, settings, lambda parts: all(part.status is Status.UP for part in parts.values()))
    assert parts["second"].process is not None
    supervisor.stop()
    assert find_processes("unit-test", []) == []


def test_a_declared_replica_becomes_a_part_and_a_retired_one_goes(
    supervisor: Supervisor, settings: Settings, model_dir: Path
) -> None:
    spec = declare_replica(settings, name="one", model_dir=model_dir, served_name="policy-1", role="serving")
    parts = tick_until(supervisor, settings, lambda parts: "vllm-one" in parts)
    assert parts["vllm-one"].port == spec.port
    assert parts["vllm-one"].status is Status.FAILED
    assert "no-python" in parts["vllm-one"].detail
    with pytest.raises(InfrastructureError, match="vllm-one: cannot be started"):
        wait_until_serving(settings, spec, timeout_s=5)
    retire_replica(settings, "one")
    tick_until(supervisor, settings, lambda parts: "vllm-one" not in parts)
    wait_until_retired(settings, "one", timeout_s=1)


def test_an_unreadable_declaration_does_not_stop_the_others(supervisor: Supervisor, settings: Settings, model_dir: Path) -> None:
    declare_replica(settings, name="good", model_dir=model_dir, served_name="policy-1", role="serving")
    tick_until(supervisor, settings, lambda parts: "vllm-good" in parts)
    (settings.root / "replicas" / "bad.json").write_text("{")
    parts = tick_until(supervisor, settings, lambda parts: parts["first"].status is Status.UP)
    assert "vllm-good" in parts
    with pytest.raises(InfrastructureError, match=r"bad\.json"):
        list_replicas(settings)


def test_replicas_get_different_ports_and_declaring_again_keeps_them(settings: Settings, model_dir: Path) -> None:
    one = declare_replica(settings, name="one", model_dir=model_dir, served_name="policy-1", role="serving")
    two = declare_replica(settings, name="two", model_dir=model_dir, served_name="policy-2", role="rollout")
    assert one.port != two.port
    assert declare_replica(settings, name="one", model_dir=model_dir, served_name="policy-1", role="serving") == one
    moved = declare_replica(settings, name="one", model_dir=model_dir, served_name="policy-3", role="serving")
    assert (moved.port, moved.served_name) == (one.port, "policy-3")
    assert list_replicas(settings) == (moved, two)
    assert served_models(one) == ()


def test_a_declaration_needs_a_usable_name_a_model_and_a_port(settings: Settings, model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="replica name"):
        declare_replica(settings, name="../up", model_dir=model_dir, served_name="policy", role="serving")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        declare_replica(settings, name="one", model_dir=tmp_path / "none", served_name="policy", role="serving")
    for number in range(settings.max_replicas):
        declare_replica(settings, name=f"r{number}", model_dir=model_dir, served_name="policy", role="serving")
    with pytest.raises(ConfigError, match="EVERLOOP_SERVING_PORT"):
        declare_replica(settings, name="one-more", model_dir=model_dir, served_name="policy", role="serving")


def test_waiting_for_a_replica_without_a_stack_says_how_to_start_one(settings: Settings, model_dir: Path) -> None:
    spec = declare_replica(settings, name="one", model_dir=model_dir, served_name="policy-1", role="serving")
    with pytest.raises(InfrastructureError, match="everloop up"):
        wait_until_serving(settings, spec, timeout_s=1)


def test_parts_of_a_supervisor_that_is_gone_are_shown_as_gone(settings: Settings) -> None:
    gone = ProcessId(pid=os.getpid(), started_s=1.0)
    part = PartState(name="mlflow", status=Status.UP, port=5000, log="mlflow.log", process=gone)
    write_state(settings, StackState(stack_id="gone", supervisor=gone, parts={"mlflow": part}))
    state = observe_stack(settings)
    assert state is not None
    assert state.parts["mlflow"].status is Status.GONE
    assert stop_stack(settings).was_running is False
    assert observe_stack(settings) is None


def test_an_unreadable_state_is_one_clear_error(settings: Settings) -> None:
    settings.root.mkdir()
    state_path(settings).write_text("{")
    with pytest.raises(InfrastructureError, match=r"stack\.json: not a stack state"):
        observe_stack(settings)


def test_children_read_the_same_settings_from_their_environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert Settings().model_dump() == settings.model_dump()


def test_a_part_does_not_inherit_servers_from_the_callers_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "of another server")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    environment = part_environment(settings, {})
    assert "PREFECT_API_KEY" not in environment
    assert environment["MLFLOW_TRACKING_URI"] == settings.mlflow_url == client_environment(settings)["MLFLOW_TRACKING_URI"]


def test_gateway_secrets_are_made_once_and_kept_private(settings: Settings) -> None:
    first = mlflow_secrets(settings)
    assert mlflow_secrets(settings) == first
    assert len(set(first.values())) == 2
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (settings.root / "mlflow").iterdir()}
    assert modes == {0o600}


def test_every_server_listens_on_the_host_of_the_settings_only(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"host": "127.0.0.2"})
    commands = [part.launch().command for part in server_parts(elsewhere) if part.port is not None]
    assert all("127.0.0.2" in command and "0.0.0.0" not in command for command in commands)

"""The doctor's checks on this machine, and that a bad finding names its fix."""

import socket
from pathlib import Path

import pytest

from infra import doctor
from infra.doctor import Outcome
from infra.settings import Settings
from tests.integration.stack_fixtures import stack_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return stack_settings(tmp_path / "home")


def test_a_good_machine_passes_the_quick_checks(settings: Settings) -> None:
    checks = (doctor.check_python, doctor.check_disk, doctor.check_ports, doctor.check_lake, doctor.check_sandbox)
    results = [check(settings) for check in checks]
    assert [result.outcome for result in results] == [Outcome.OK] * len(checks), results
    assert all(result.detail and not result.fix for result in results)


def test_torch_is_really_imported(settings: Settings) -> None:
    result = doctor.check_torch(settings)
    assert result.outcome is Outcome.OK
    assert result.detail.startswith("2.13.0")


def test_a_missing_serving_environment_says_how_to_get_one(settings: Settings, tmp_path: Path) -> None:
    result = doctor.check_serving(settings.model_copy(update={"serving_python": tmp_path / "none" / "bin" / "python"}))
    assert result.outcome is Outcome.FAILED
    assert "make setup" in result.fix
    assert "EVERLOOP_SERVING_PYTHON" in result.fix


def test_a_serving_environment_without_vllm_shows_the_import_error(settings: Settings, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'vllm'\" >&2\nexit 1\n")
    python.chmod(0o755)
    result = doctor.check_serving(settings.model_copy(update={"serving_python": python}))
    assert result.outcome is Outcome.FAILED
    assert "No module named 'vllm'" in result.detail


def test_a_port_of_another_program_is_named_with_the_setting_to_change(settings: Settings) -> None:
    with socket.create_server((settings.host, settings.prefect_port)):
        result = doctor.check_ports(settings)
    assert result.outcome is Outcome.FAILED
    assert f"{settings.prefect_port} (prefect)" in result.detail
    assert "EVERLOOP_PREFECT_PORT" in result.fix


def test_a_lake_that_cannot_be_written_is_found(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = doctor.check_lake(settings.model_copy(update={"lake": str(tmp_path / "file" / "lake")}))
    assert result.outcome is Outcome.FAILED
    assert "EVERLOOP_LAKE" in result.fix


def test_the_lake_check_can_be_repeated_and_leaves_one_small_object(settings: Settings) -> None:
    assert [doctor.check_lake(settings).outcome for _ in range(2)] == [Outcome.OK, Outcome.OK]
    files = [path for path in Path(settings.lake_url).rglob("*") if path.is_file() and path.stat().st_size]
    assert [(path.name, path.stat().st_size) for path in files] == [("probe", 16)]


def test_too_little_disk_is_found(settings: Settings) -> None:
    result = doctor.check_disk(settings, needed_gib=1e9)
    assert result.outcome is Outcome.FAILED
    assert "EVERLOOP_HOME" in result.fix

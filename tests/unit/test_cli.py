"""The command line's last word: help, one line per error, and the exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.cli import Commands, app
from pipelines.errors import ConfigError

REPOSITORY = Path(__file__).parents[2]


def everloop(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EVERLOOP_HOME": str(home), **variables}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("command", ["up", "down", "demo", "run", "ingest", "status", "doctor"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"everloop {command}" in result.stdout
    assert "Example" in result.stdout


def test_a_bad_setting_is_one_line_that_names_it(tmp_path: Path) -> None:
    done = everloop(tmp_path, "down", EVERLOOP_MLFLOW_PORT="70000")
    assert done.returncode == 1
    assert done.stderr.startswith("error: EVERLOOP_MLFLOW_PORT='70000': Input should be less than or equal to 65535")
    assert done.stderr.count("\n") == 1


def test_a_run_config_with_an_unknown_key_is_one_line_that_names_it(tmp_path: Path) -> None:
    config = tmp_path / "cycle.yaml"
    config.write_text("trainnig: {}\n")
    done = everloop(tmp_path, "run", "--config", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: run config {config}: trainnig")
    assert done.stderr.count("\n") == 1


def test_wrong_usage_is_exit_code_two(tmp_path: Path) -> None:
    assert everloop(tmp_path, "run", "--config", str(tmp_path / "none.yaml")).returncode == 2
    assert everloop(tmp_path, "start").returncode == 2


def test_down_without_a_stack_says_so_and_succeeds(tmp_path: Path) -> None:
    done = everloop(tmp_path, "down")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing was running.\n", "")


def test_status_before_anything_ran_says_how_to_begin(tmp_path: Path) -> None:
    done = everloop(tmp_path, "status")
    assert done.returncode == 0
    assert "everloop up" in done.stdout
    assert everloop(tmp_path, "status", "--json").stdout == '{\n  "stack": null,\n  "cycle": null\n}\n'


def test_an_error_of_ours_and_a_defect_both_end_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    commands = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @commands.command()
    def known() -> None:
        raise ConfigError("port 1: expected 2")

    @commands.command()
    def defect() -> None:
        raise ValueError("surprise")

    @commands.command()
    def disk() -> None:
        raise OSError(28, "No space left on device", "/disk/file")

    endings = {"known": "error: port 1: expected 2", "disk": "error: No space left on device: /disk/file"}
    for name, ending in endings.items():
        with pytest.raises(SystemExit) as end:
            commands([name])
        assert end.value.code == 1
        assert capfd.readouterr().err == f"{ending}\n"
    with pytest.raises(SystemExit) as end:
        commands(["defect"])
    assert end.value.code == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("error: unexpected ValueError: surprise")

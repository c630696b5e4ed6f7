"""Looking at data from the command line: files before they are ingested, edge cases, quarantine."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.cli import app
from infra.lake import open_lake
from infra.settings import Settings
from pipelines.errors import ConfigError, InputError
from pipelines.traces.clusters import find_edge_case
from pipelines.traces.formats import parse_file
from pipelines.traces.model import Rejection, Trace
from pipelines.traces.table import edge_case_to_row, rejection_to_row

ASKED = "Where is my order [7]?"
ROW = {
    "id": "run-1",
    "messages": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": "No idea."}],
    "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}],
    "feedback": [{"name": "thumbs", "value": False, "rationale": "useless"}],
    "expectations": [{"name": "expected_tool_call", "value": {"name": "look_up", "arguments": {"id": 7}}, "author": "ann"}],
}
DATA = json.dumps(ROW).encode() + b'\n{"a": 1}\n{"cut'


@pytest.fixture
def lake_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVERLOOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def everloop(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def fill(home: Path) -> None:
    lake = open_lake(Settings())
    for result in parse_file(DATA, location="inbox/chat.jsonl"):
        if isinstance(result, Trace):
            case = find_edge_case(result)
            assert case is not None
            lake.tables.append("edge_cases", [edge_case_to_row(case)])
        else:
            assert isinstance(result, Rejection)
            lake.tables.append("rejections", [rejection_to_row(result)])


def test_a_dry_run_counts_runs_and_says_where_and_why_records_are_refused(lake_home: Path) -> None:
    file = lake_home / "chat.jsonl"
    file.write_bytes(DATA)
    result = everloop("ingest", "--dry-run", str(file))
    assert result.exit_code == 0
    row = next(line for line in result.stdout.split("\n") if "openai_chat" in line)
    assert [cell.strip() for cell in row.split("│")[2:-1]] == ["openai_chat", "1", "2", "0", "1", "2"]
    second = DATA.index(b"\n") + 1
    assert f"unknown_format: byte {second}" in result.stdout
    assert f"unreadable: byte {second + 9}" in result.stdout
    assert not (lake_home / "home" / "lake").exists()


def test_without_files_a_dry_run_reads_the_inbox(lake_home: Path) -> None:
    assert "inbox/ is empty" in everloop("ingest", "--dry-run").stdout
    inbox = lake_home / "home" / "lake" / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_bytes(DATA)
    assert "inbox/a.jsonl" in everloop("ingest", "--dry-run").stdout


def test_ingest_without_dry_run_says_what_to_do(lake_home: Path) -> None:
    result = everloop("ingest")
    assert isinstance(result.exception, ConfigError | SystemExit)
    assert result.exit_code == 1


def test_an_edge_case_reads_as_a_page_under_the_start_of_its_id(lake_home: Path) -> None:
    fill(lake_home)
    assert "run-1" in everloop("cases", "ls").stdout
    page = everloop("cases", "show", "run").stdout
    for part in (
        ASKED,
        "No idea.",
        "missing_call",
        "thumbs = false (human) useless",
        '{"name":"look_up","arguments":{"id":7}} by ann',
    ):
        assert part in page


def test_a_refused_record_can_be_listed_and_read(lake_home: Path) -> None:
    fill(lake_home)
    listed = everloop("quarantine", "ls").stdout
    assert "2 records in quarantine" in listed
    key = next(line.split("│")[1].strip() for line in listed.split("\n") if "unknown_format" in line)
    assert '{"a": 1}' in everloop("quarantine", "show", key).stdout


@pytest.mark.parametrize("command", [("cases", "show", "nothing"), ("quarantine", "show", "")])
def test_an_id_that_names_none_or_several_is_an_error_that_says_so(lake_home: Path, command: tuple[str, ...]) -> None:
    fill(lake_home)
    result = everloop(*command)
    assert result.exit_code == 1
    assert isinstance(result.exception, InputError | SystemExit)

"""The files of a reward dataset, read by the real `datasets` library and by our own reader."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import orjson
import pytest
from pydantic import JsonValue

from pipelines.errors import InputError
from pipelines.rewards.dataset_table import (
    dataset_from_files,
    dataset_to_files,
    sft_from_table,
    sft_to_table,
    tasks_from_table,
    tasks_to_table,
)
from pipelines.rewards.model import RewardDataset, RewardTask, SftRow, Split
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec

SCHEMA_TOOL = ToolSpec("refund", "Refund.", {"type": "object", "properties": {"items": {"type": "array"}}, "required": []})
PLAIN_TOOL = ToolSpec("stop")
CALL = ToolCall("refund", {"items": [1, 2.5, None, {"ü": "\u2028"}], "deep": {"a": {"b": []}}}, '{"items": [1]}', "c1")
BROKEN_CALL = ToolCall("refund", None, '{"items": [1', None)


def task(number: int, split: Split, **arguments: JsonValue) -> RewardTask:
    return RewardTask(
        id=f"t{number}",
        kind="tool_call",
        prompt=(
            Message(Role.SYSTEM, None),
            Message(Role.USER, 'line one\nline two\u2028 "quoted"'),
            Message(Role.ASSISTANT, None, (CALL, BROKEN_CALL)),
            Message(Role.TOOL, "", tool_call_id="c1"),
        )[: number % 4 + 1],
        tools=(SCHEMA_TOOL, PLAIN_TOOL)[: number % 3],
        verifier="tool_call",
        arguments={"name": "refund", "arguments": arguments},
        split=split,
        group=f"g{number}",
        cluster="wrong|tool",
        provenance=(f"tr-{number}", "tr-x"),
        occurred_at=None if number == 0 else datetime(2026, 1, number, 1, 2, 3, 456, tzinfo=UTC),
        environment="py311" if number == 2 else None,
    )


TASKS = (
    task(0, Split.TRAIN, order="A1", amount=5),
    task(1, Split.TRAIN, ticket={"title": "x", "tags": ["a"]}),
    task(2, Split.HOLDOUT, amount=5.0, order=7),
    task(3, Split.REGRESSION),
)
ROWS = tuple(
    SftRow(t.prompt, t.tools, Message(Role.ASSISTANT, None, (CALL,)), t.id, "correction", t.provenance) for t in TASKS[:2]
)
DATASET = RewardDataset(TASKS, ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(dataset_to_files(DATASET, title="shop incidents"), tmp_path / "data set")
    return tmp_path / "data set"


def write(files: dict[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_arrow_tables_and_json_lines_give_back_exactly_what_went_in() -> None:
    assert tasks_from_table(tasks_to_table(TASKS)) == TASKS
    assert sft_from_table(sft_to_table(ROWS)) == ROWS
    files = dataset_to_files(DATASET)
    assert dataset_from_files(files) == DATASET
    assert files == dataset_to_files(DATASET)
    with pytest.raises(InputError, match=r"has no sft.jsonl"):
        dataset_from_files({"tasks.jsonl": b""})


def test_numbers_keep_their_type_and_times_their_instant() -> None:
    local = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=2)))
    (back,) = tasks_from_table(tasks_to_table([replace(TASKS[2], occurred_at=local)]))
    assert back.occurred_at == local
    (first, *_) = tasks_from_table(tasks_to_table(TASKS))
    assert first.arguments["arguments"] == {"order": "A1", "amount": 5}


def test_datasets_loads_the_folder_by_its_card_with_every_split(folder: Path, tmp_path: Path) -> None:
    import datasets

    loaded = datasets.load_dataset(str(folder), "tasks", cache_dir=str(tmp_path / "cache"))
    assert {name: split.num_rows for name, split in loaded.items()} == {"train": 2, "holdout": 1, "regression": 1}
    train = loaded["train"]
    assert [orjson.loads(a)["arguments"] for a in train["arguments"]] == [
        {"order": "A1", "amount": 5},
        {"ticket": {"title": "x", "tags": ["a"]}},
    ]
    assert train[1]["prompt"][1]["content"] == 'line one\nline two\u2028 "quoted"'
    assert train.features["occurred_at"].dtype == "timestamp[us, tz=UTC]"

    rows = datasets.load_dataset(str(folder), "sft", split="train", cache_dir=str(tmp_path / "cache"))
    call = rows[0]["answer"]["tool_calls"][0]
    assert orjson.loads(call["arguments"]) == CALL.arguments
    assert rows.features == datasets.Features.from_arrow_schema(sft_to_table(()).schema)


def test_the_first_cycle_without_a_regression_suite_loads_too(tmp_path: Path) -> None:
    import datasets

    write(dataset_to_files(RewardDataset(TASKS[:3], ())), tmp_path / "first")
    loaded = datasets.load_dataset(str(tmp_path / "first"), cache_dir=str(tmp_path / "cache"))
    assert {name: split.num_rows for name, split in loaded.items()} == {"train": 2, "holdout": 1}


def test_a_dataset_without_rows_has_files_but_no_tables() -> None:
    files = dataset_to_files(RewardDataset((), ()))
    assert sorted(files) == ["README.md", "sft.jsonl", "tasks.jsonl"]
    assert dataset_from_files(files) == RewardDataset((), ())


def test_the_card_counts_and_admits_gaps(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "# shop incidents" in card
    assert "| train | 2 | 2 |" in card
    assert "| wrong\\|tool | 2 | 1 | 1 |" in card
    assert "| correction | 2 |" in card
    assert "- 1 tasks have no time; they count as the oldest." in card
    assert "Where supervised answers come from" in card

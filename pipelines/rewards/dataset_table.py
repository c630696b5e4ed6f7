"""The reward dataset as files: Parquet that `datasets` loads as it is, and JSON lines for the trainer.

Owns the Arrow schemas, the exact way back, and which files a dataset folder holds, as bytes. Arguments and JSON Schemas differ
from row to row, so they are JSON in a string column: as a struct they would grow a null for every other row's key. It refuses
to write anything itself.
"""

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts import from_json, to_json, to_plain
from pipelines.errors import InputError
from pipelines.rewards.card import SFT_TRAIN_FILE, tasks_file, write_card
from pipelines.rewards.model import RewardDataset, RewardTask, SftRow, Split
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec

TASKS_FILE = "tasks.jsonl"
SFT_FILE = "sft.jsonl"
CARD_FILE = "README.md"
"""The name under which `datasets` looks for the card and its file configuration."""

_CALL = pa.struct(
    [
        pa.field("name", pa.string()),
        pa.field("arguments", pa.string()),
        pa.field("raw_arguments", pa.string()),
        pa.field("id", pa.string()),
    ]
)
_MESSAGE = pa.struct(
    [
        pa.field("role", pa.string()),
        pa.field("content", pa.string()),
        pa.field("tool_calls", pa.list_(_CALL)),
        pa.field("tool_call_id", pa.string()),
    ]
)
_TOOL = pa.struct([pa.field("name", pa.string()), pa.field("description", pa.string()), pa.field("parameters", pa.string())])

TASK_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("prompt", pa.list_(_MESSAGE)),
        pa.field("tools", pa.list_(_TOOL)),
        pa.field("verifier", pa.string()),
        pa.field("arguments", pa.string()),
        pa.field("split", pa.string()),
        pa.field("group", pa.string()),
        pa.field("cluster", pa.string()),
        pa.field("provenance", pa.list_(pa.string())),
        pa.field("occurred_at", pa.timestamp("us", tz="UTC")),
        pa.field("environment", pa.string()),
    ]
)
SFT_SCHEMA = pa.schema(
    [
        pa.field("prompt", pa.list_(_MESSAGE)),
        pa.field("tools", pa.list_(_TOOL)),
        pa.field("answer", _MESSAGE),
        pa.field("task_id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("provenance", pa.list_(pa.string())),
    ]
)


def tasks_to_table(tasks: Iterable[RewardTask]) -> pa.Table:
    return pa.Table.from_pylist([_task_to_row(task) for task in tasks], schema=TASK_SCHEMA)


def tasks_from_table(table: pa.Table) -> tuple[RewardTask, ...]:
    return tuple(_task_from_row(row) for row in table.to_pylist())


def sft_to_table(rows: Iterable[SftRow]) -> pa.Table:
    return pa.Table.from_pylist([_sft_to_row(row) for row in rows], schema=SFT_SCHEMA)


def sft_from_table(table: pa.Table) -> tuple[SftRow, ...]:
    return tuple(_sft_from_row(row) for row in table.to_pylist())


def dataset_to_files(dataset: RewardDataset, *, title: str = "reward dataset", gaps: Iterable[str] = ()) -> dict[str, bytes]:
    """Relative path to content of every file of the dataset's folder. The same dataset gives the same bytes.

    A split without rows has no Parquet file and is not in the card: `datasets` 5.2 cannot load an empty one.
    """
    tables = {tasks_file(split): tasks_to_table(_of_split(dataset, split)) for split in Split}
    tables[SFT_TRAIN_FILE] = sft_to_table(dataset.sft_rows)
    files = {path: _parquet(table) for path, table in tables.items() if table.num_rows}
    files[TASKS_FILE] = to_json_lines(dataset.tasks)
    files[SFT_FILE] = to_json_lines(dataset.sft_rows)
    files[CARD_FILE] = write_card(dataset, title=title, gaps=tuple(gaps)).encode()
    return files


def dataset_from_files(files: Mapping[str, bytes]) -> RewardDataset:
    """Read a dataset back from its JSON lines; raises InputError naming the file that is missing."""
    for name in (TASKS_FILE, SFT_FILE):
        if name not in files:
            raise InputError(f"reward dataset has no {name}, only {', '.join(sorted(files)) or 'nothing'}; build it again")
    return RewardDataset(tasks_from_json_lines(files[TASKS_FILE]), sft_from_json_lines(files[SFT_FILE]))


def to_json_lines(records: Iterable[RewardTask | SftRow]) -> bytes:
    """One record per line feed; split on line feeds only, since other line separators may stand inside strings."""
    return b"".join(to_json(record) + b"\n" for record in records)


def tasks_from_json_lines(data: bytes) -> tuple[RewardTask, ...]:
    return tuple(from_json(RewardTask, line) for line in data.split(b"\n") if line)


def sft_from_json_lines(data: bytes) -> tuple[SftRow, ...]:
    return tuple(from_json(SftRow, line) for line in data.split(b"\n") if line)


def _parquet(table: pa.Table) -> bytes:
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _of_split(dataset: RewardDataset, split: Split) -> list[RewardTask]:
    return [task for task in dataset.tasks if task.split is split]


def _task_to_row(task: RewardTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "kind": task.kind,
        "prompt": [_message_to_row(m) for m in task.prompt],
        "tools": [_tool_to_row(t) for t in task.tools],
        "verifier": task.verifier,
        "arguments": _json(task.arguments),
        "split": task.split.value,
        "group": task.group,
        "cluster": task.cluster,
        "provenance": list(task.provenance),
        "occurred_at": task.occurred_at,
        "environment": task.environment,
    }


def _task_from_row(row: dict[str, Any]) -> RewardTask:
    return RewardTask(
        id=row["id"],
        kind=row["kind"],
        prompt=tuple(_message_from_row(m) for m in row["prompt"]),
        tools=tuple(_tool_from_row(t) for t in row["tools"]),
        verifier=row["verifier"],
        arguments=orjson.loads(row["arguments"]),
        split=Split(row["split"]),
        group=row["group"],
        cluster=row["cluster"],
        provenance=tuple(row["provenance"]),
        occurred_at=row["occurred_at"],
        environment=row["environment"],
    )


def _sft_to_row(row: SftRow) -> dict[str, Any]:
    return {
        "prompt": [_message_to_row(m) for m in row.prompt],
        "tools": [_tool_to_row(t) for t in row.tools],
        "answer": _message_to_row(row.answer),
        "task_id": row.task_id,
        "source": row.source,
        "provenance": list(row.provenance),
    }


def _sft_from_row(row: dict[str, Any]) -> SftRow:
    return SftRow(
        prompt=tuple(_message_from_row(m) for m in row["prompt"]),
        tools=tuple(_tool_from_row(t) for t in row["tools"]),
        answer=_message_from_row(row["answer"]),
        task_id=row["task_id"],
        source=row["source"],
        provenance=tuple(row["provenance"]),
    )


def _message_to_row(message: Message) -> dict[str, Any]:
    calls = [
        {**to_plain(call), "arguments": None if call.arguments is None else _json(call.arguments)} for call in message.tool_calls
    ]
    return {
        "role": message.role.value,
        "content": message.content,
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
    }


def _message_from_row(row: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(c["name"], None if c["arguments"] is None else orjson.loads(c["arguments"]), c["raw_arguments"], c["id"])
        for c in row["tool_calls"]
    )
    return Message(Role(row["role"]), row["content"], calls, row["tool_call_id"])


def _tool_to_row(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": _json(tool.parameters)}


def _tool_from_row(row: dict[str, Any]) -> ToolSpec:
    return ToolSpec(row["name"], row["description"], orjson.loads(row["parameters"]))


def _json(value: object) -> str:
    return to_json(value).decode()

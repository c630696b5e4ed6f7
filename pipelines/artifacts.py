"""Content addresses and stage records: how a stage names what it made and hands it on.

Owns JSON, digests, the record of a finished stage and the manifest of an artifact folder. Refuses to read or write
storage (`infra.lake` does).
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, JsonValue, TypeAdapter

T = TypeVar("T")


def to_json(value: object) -> bytes:
    """JSON of a dataclass, pydantic model or plain value: no spaces, UTC timestamps ending in Z.

    Keys keep their order: chat templates render tool schemas in it, so sorting them would train on other prompts than
    production sends.
    """
    return orjson.dumps(value, default=_plain, option=orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC)


def from_json(kind: type[T], data: bytes | str) -> T:
    """Read back a dataclass written by `to_json`; raises pydantic.ValidationError when it does not fit."""
    return TypeAdapter(kind).validate_json(data)


def to_plain(value: object) -> Any:
    """The value as JSON types (dicts, lists, strings, numbers)."""
    return orjson.loads(to_json(value))


def digest_bytes(data: bytes) -> str:
    """Content digest as 64 hex digits (SHA-256)."""
    return hashlib.sha256(data).hexdigest()


def digest(value: object) -> str:
    """Content digest of a value's JSON with sorted keys: their order is no content."""
    return digest_bytes(orjson.dumps(to_plain(value), option=orjson.OPT_SORT_KEYS))


def stage_key(stage: str, config: object, parents: tuple[str, ...]) -> str:
    """The key of a stage: 16 hex digits over its name, its config and its parents' digests, in order."""
    return digest({"stage": stage, "config": to_plain(config), "parents": list(parents)})[:16]


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What a finished stage hands on: where its result lies and what it is, never the data itself."""

    stage: str
    """Stage name: ingest_traces, build_reward_dataset, post_train, evaluate_candidate, promote_model."""
    key: str
    """`stage_key` of the inputs that made it; the same key finds this record again."""
    uri: str
    """Artifact folder or table URL of the result; empty when the stage has only facts."""
    digest: str
    """Content digest of the result; the next stage's parent."""
    parents: tuple[str, ...]
    """Digests of the inputs, in the order the stage took them."""
    counts: dict[str, int]
    """How many of what, for people and for the cycle record."""
    wall_s: float
    """Seconds of the attempt that finished the stage; work of an attempt that was killed before is not in it."""
    run_id: str = ""
    """MLflow run of the stage."""
    facts: dict[str, JsonValue] = field(default_factory=dict)
    """Small stage-specific results (rates, versions, names)."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of an artifact folder."""

    path: str
    """Relative path with forward slashes."""
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The only thing that makes an artifact exist; written last."""

    kind: str
    """dataset, checkpoint, model, report, predictions."""
    files: tuple[FileEntry, ...]
    """Sorted by path."""
    parents: tuple[str, ...] = ()
    facts: dict[str, JsonValue] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest over the files alone, so the same content has the same name wherever it came from."""
        return digest([[f.path, f.size_bytes, f.digest] for f in self.files])

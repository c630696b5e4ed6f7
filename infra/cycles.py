"""Cycles: which pass of the loop is open, and the record of each finished one.

Owns `cycles/open.json` (the pointer, moved by compare-and-set) and `cycles/<id>/` in the lake, and the lock that keeps two
commands on one machine from running the same cycle. Refuses to know what the stages do.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import orjson
from pydantic import JsonValue

from infra.lake import Lake
from infra.settings import Settings
from pipelines.artifacts import digest, from_json, to_json
from pipelines.errors import InfrastructureError

POINTER = "cycles/open.json"
BATCHES = "batches"


class CycleStatus(StrEnum):
    OPEN = "open"
    FINISHED = "finished"
    ABANDONED = "abandoned"
    """Its config was changed before it finished; its finished stages are still found by their keys."""


@dataclass(frozen=True, slots=True)
class Cycle:
    id: str
    config_digest: str
    inputs_digest: str
    """Digest of what the sources held when the cycle was opened."""
    opened_at: datetime
    status: CycleStatus = CycleStatus.OPEN


def current_cycle(lake: Lake) -> Cycle | None:
    """The cycle the pointer names, open or not; None before the first."""
    data = lake.get_bytes(POINTER)
    return from_json(Cycle, data) if data else None


def open_cycle(lake: Lake, *, config_digest: str, inputs_digest: str, now: datetime) -> Cycle:
    """Resume the open cycle of this config, return the finished one when nothing changed since, or open a new one.

    Raises InfrastructureError when another process moved the pointer meanwhile.
    """
    stored = lake.get(POINTER)
    current = from_json(Cycle, stored.data) if stored else None
    if current and current.config_digest == config_digest:
        if current.status is CycleStatus.OPEN:
            return current
        if current.status is CycleStatus.FINISHED and current.inputs_digest == inputs_digest:
            return current
    if current and current.status is CycleStatus.OPEN:
        _store(lake, replace(current, status=CycleStatus.ABANDONED))
    cycle = Cycle(f"c-{digest([config_digest, inputs_digest, now])[:12]}", config_digest, inputs_digest, now)
    moved = (
        lake.replace(POINTER, to_json(cycle), expected_etag=stored.etag)
        if stored
        else lake.put_if_absent(POINTER, to_json(cycle))
    )
    if not moved:
        raise InfrastructureError(
            "cycles/open.json: another process opened a cycle just now; wait for it, or run the command again"
        )
    _store(lake, cycle)
    return cycle


def finish_cycle(lake: Lake, cycle: Cycle, record: dict[str, JsonValue], *, inputs_digest: str) -> Cycle:
    """Store the cycle record, then close the pointer. `inputs_digest` is what the sources held when the cycle read them."""
    lake.put_if_absent(_record_path(cycle.id), orjson.dumps(record, option=orjson.OPT_INDENT_2))
    finished = replace(cycle, status=CycleStatus.FINISHED, inputs_digest=inputs_digest)
    stored = lake.get(POINTER)
    if stored and from_json(Cycle, stored.data).id == cycle.id:
        lake.replace(POINTER, to_json(finished), expected_etag=stored.etag)
    _store(lake, finished)
    return finished


def read_cycle_record(lake: Lake, cycle_id: str) -> dict[str, JsonValue] | None:
    """The cycle record as JSON; None while the cycle has not finished."""
    data = lake.get_bytes(_record_path(cycle_id))
    return orjson.loads(data) if data else None


def latest_cycle(lake: Lake) -> dict[str, JsonValue] | None:
    """What `everloop status` shows: the newest cycle with its record, or its progress; None before the first."""
    cycle = current_cycle(lake)
    if cycle is None:
        return None
    record = read_cycle_record(lake, cycle.id)
    return record or {"cycle": cycle.id, "status": cycle.status.value, "opened_at": cycle.opened_at.isoformat()}


@contextmanager
def cycle_lock(settings: Settings) -> Iterator[None]:
    """Hold the machine's cycle lock; raises InfrastructureError at once when another process holds it."""
    settings.root.mkdir(parents=True, exist_ok=True)
    path = settings.root / "cycle.lock"
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InfrastructureError(
                f"{path} is held: another cycle runs on this machine; wait for it (`everloop status`)"
            ) from error
        yield


def read_batch(lake: Lake, cycle_id: str) -> tuple[str, ...] | None:
    """Digests of the traces a cycle took, or None when it has not taken any yet."""
    data = lake.get_bytes(f"{BATCHES}/{cycle_id}.json")
    return tuple(orjson.loads(data)) if data else None


def claim_batch(lake: Lake, cycle_id: str, digests: tuple[str, ...]) -> tuple[str, ...]:
    """Fix which traces a cycle takes; the first claim of a cycle stands, so that a resumed cycle takes the same ones."""
    lake.put_if_absent(f"{BATCHES}/{cycle_id}.json", to_json(digests))
    return read_batch(lake, cycle_id) or digests


def digests_of_finished_cycles(lake: Lake) -> set[str]:
    """Traces that an earlier finished cycle has learnt from."""
    taken: set[str] = set()
    for item in lake.list_files(BATCHES):
        cycle_id = item.path.rsplit("/", 1)[-1].removesuffix(".json")
        if read_cycle_record(lake, cycle_id) is not None:
            taken.update(read_batch(lake, cycle_id) or ())
    return taken


def _store(lake: Lake, cycle: Cycle) -> None:
    path = f"cycles/{cycle.id}/cycle.json"
    stored = lake.get(path)
    if stored is None:
        lake.put_if_absent(path, to_json(cycle))
    elif stored.data != to_json(cycle):
        lake.replace(path, to_json(cycle), expected_etag=stored.etag)


def _record_path(cycle_id: str) -> str:
    return f"cycles/{cycle_id}/record.json"

"""Production traces in MLflow: reading what is new or newly judged, and writing judgements on them.

Owns the cursor of an incremental read, paging, and the annotations (feedback and expectations) of traces. Yields MLflow's own
JSON; refuses to interpret it (`pipelines.traces.formats.mlflow` does).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from infra.gateway import PROBE_CALLER
from infra.mlflow_connection import mlflow_errors, open_store
from pipelines.errors import InputError
from pipelines.traces.model import Expectation, Feedback

if TYPE_CHECKING:
    from mlflow.entities import Assessment, TraceInfo
    from mlflow.store.tracking.rest_store import RestStore

LOOKBACK = timedelta(days=30)
"""How old a trace may be for a late judgement on it to be seen."""

_PAGE = 500
_BATCH = 20
"""Traces with their spans per request; a long agent run is megabytes."""
_THREADS = 4
_COMPLETION_ID = re.compile(r'"id": ?"(chatcmpl-[^"]+)"')


@dataclass(frozen=True, slots=True, order=True)
class TraceCursor:
    """Position in the order in which traces were last touched."""

    updated_ms: int = 0
    """When the run ended or its latest feedback or expectation came, whichever is later; milliseconds since 1970."""
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class RawTrace:
    """One trace as MLflow gives it."""

    cursor: TraceCursor
    """Pass the last one that was stored as `after` of the next read."""
    raw: dict[str, Any]
    """`Trace.to_dict()`: info (with assessments) and data.spans."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A judgement to write on a trace."""

    trace_id: str
    entry: Feedback | Expectation
    author: str
    """Who or what says so: a program's name, a person's address."""


def search(
    url: str, experiments: Sequence[str], *, after: TraceCursor = TraceCursor(), overlap: timedelta = timedelta(0)
) -> Iterator[RawTrace]:
    """Every finished trace touched after the cursor, in cursor order; gateway probes are left out.

    A trace comes again each time it is judged, whole, so that a correction given days later is seen (up to `LOOKBACK` after the
    cursor's time). A trace that reached MLflow late, with an end before the cursor, is missed unless `overlap` reaches back to
    it; with an overlap traces repeat, and the reader drops those whose digest it has. `experiments` are names or ids.
    Raises InputError for an unknown experiment, InfrastructureError when MLflow fails.
    """
    store = open_store(url)
    with mlflow_errors(url, "list traces"):
        locations = [_experiment_id(store, experiment) for experiment in experiments]
        start = _before(after, overlap)
        oldest_ms = start.updated_ms - int(LOOKBACK.total_seconds() * 1000)
        touched = sorted((_cursor(info), info.trace_id) for info in _infos(store, locations, oldest_ms) if _is_production(info))
    new = [(cursor, trace_id) for cursor, trace_id in touched if cursor > start]
    for first in range(0, len(new), _BATCH):
        batch = new[first : first + _BATCH]
        with mlflow_errors(url, "read traces"):
            found = {trace.info.trace_id: trace for trace in store.batch_get_traces([trace_id for _, trace_id in batch])}
        for cursor, trace_id in batch:
            if trace_id in found:  # one deleted, or not yet whole, since it was listed is left for the next read
                yield RawTrace(cursor, found[trace_id].to_dict())


def newest(url: str, experiments: Sequence[str]) -> TraceCursor:
    """Where the newest touch is: unchanged means that nothing new came and nothing was judged since."""
    store = open_store(url)
    with mlflow_errors(url, "list traces"):
        locations = [_experiment_id(store, experiment) for experiment in experiments]
        return max((_cursor(info) for info in _infos(store, locations, 0) if _is_production(info)), default=TraceCursor())


def known_experiments(url: str, experiments: Sequence[str]) -> tuple[str, ...]:
    """Those of the experiments that exist, by name or id; the gateway makes its own with the first endpoint."""
    store = open_store(url)
    with mlflow_errors(url, "list experiments"):
        return tuple(e for e in experiments if e.isdigit() or store.get_experiment_by_name(e) is not None)  # type: ignore[no-untyped-call]  # mlflow leaves it unannotated


def trace_ids_by_completion(url: str, experiment: str, *, since_ms: int) -> dict[str, str]:
    """Trace id per completion id (`chatcmpl-...`) of the calls that began at or after `since_ms`.

    The gateway tells its caller no trace id. The answer's own id, which MLflow keeps at the head of the trace's output, links
    the two.
    """
    store = open_store(url)
    with mlflow_errors(url, f"list traces of {experiment}"):
        infos = list(_infos(store, [_experiment_id(store, experiment)], since_ms))
    found = {}
    for info in infos:
        match = _COMPLETION_ID.search(info.trace_metadata.get("mlflow.traceOutputs", ""))
        if match:
            found[match.group(1)] = info.trace_id
    return found


def annotate(url: str, annotations: Sequence[Annotation]) -> None:
    """Write feedback and expectations on traces, several at a time; raises InfrastructureError when one cannot be written."""
    store = open_store(url)
    assessments = [_assessment(annotation) for annotation in annotations]
    with mlflow_errors(url, "write feedback"), ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(store.create_assessment, assessments):
            pass


def _experiment_id(store: RestStore, experiment: str) -> str:
    found = store.get_experiment_by_name(experiment)  # type: ignore[no-untyped-call]  # mlflow leaves it unannotated
    if found is not None:
        return str(found.experiment_id)
    if experiment.isdigit():
        return experiment
    raise InputError(f"MLflow experiment {experiment!r}: there is none of this name or id; expected e.g. gateway/<endpoint>")


def _before(after: TraceCursor, overlap: timedelta) -> TraceCursor:
    if not overlap:
        return after
    return TraceCursor(after.updated_ms - int(overlap.total_seconds() * 1000))


def _infos(store: RestStore, locations: list[str], oldest_ms: int) -> Iterator[TraceInfo]:
    """Traces without spans, oldest first, so that a page boundary does not move while new ones arrive."""
    token = None
    while True:
        infos, token = store.search_traces(
            locations=locations,
            filter_string=f"timestamp_ms >= {max(oldest_ms, 0)}",
            max_results=_PAGE,
            order_by=["timestamp_ms ASC"],
            page_token=token,
        )
        yield from infos
        if not token:
            return


def _is_production(info: TraceInfo) -> bool:
    return info.state.value != "IN_PROGRESS" and info.trace_metadata.get("mlflow.gateway.caller") != PROBE_CALLER


def _cursor(info: TraceInfo) -> TraceCursor:
    judged_ms = [assessment.last_update_time_ms or 0 for assessment in info.assessments]
    return TraceCursor(max([info.request_time + (info.execution_duration or 0), *judged_ms]), info.trace_id)


def _assessment(annotation: Annotation) -> Assessment:
    from mlflow import entities

    entry, trace_id = annotation.entry, annotation.trace_id
    if isinstance(entry, Expectation):
        source = entities.AssessmentSource("HUMAN", annotation.author)
        return entities.Expectation(entry.name, entry.value, source=source, trace_id=trace_id)
    source = entities.AssessmentSource(entry.source.upper(), annotation.author)
    value: Any = entry.value  # any JSON; the server refuses what it cannot store
    return entities.Feedback(entry.name, value, source=source, trace_id=trace_id, rationale=entry.rationale)

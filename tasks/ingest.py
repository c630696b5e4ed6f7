"""Ingest: production traces from MLflow and the lake's inbox into the lake's tables, redacted, each exactly once."""

import asyncio
from collections.abc import Iterator

from prefect import task

from infra.cycles import claim_batch, digests_of_finished_cycles, read_batch
from infra.lake import Lake
from infra.mlflow_traces import known_experiments, newest, search
from infra.settings import Settings
from infra.sources import list_inbox, read_inbox_file
from pipelines.artifacts import StageRecord, digest
from pipelines.config import IngestConfig
from pipelines.errors import InputError
from pipelines.traces.deduplication import drop_exact_duplicates
from pipelines.traces.formats import parse_record
from pipelines.traces.leaks import require_clean
from pipelines.traces.model import Rejection, Source, Trace, trace_digest
from pipelines.traces.redaction import RedactionPolicy, redact, redact_rejection
from pipelines.traces.table import rejection_to_row, trace_to_row
from tasks.stage import CycleRef, Product, Stage, may_retry, run_stage


@task(name="ingest", retries=2, retry_delay_seconds=5, retry_condition_fn=may_retry, tags=["lake"])
async def ingest(cycle: CycleRef, config: IngestConfig) -> StageRecord:
    """Read what is new in the sources into the lake; the record names the cycle's batch of traces."""
    return await asyncio.to_thread(run_stage, "ingest_traces", cycle, config, (), lambda stage: _ingest(stage, config))


def inputs_digest(settings: Settings, lake: Lake, config: IngestConfig) -> str:
    """Digest of what the sources hold now; changes when a trace comes, is judged, or a file is dropped."""
    experiments = known_experiments(settings.mlflow_url, config.experiments) if config.experiments else ()
    cursor = newest(settings.mlflow_url, experiments) if experiments else None
    inbox = list_inbox(lake).digest if config.inbox else ""
    return digest([list(config.experiments), cursor, inbox])


def _ingest(stage: Stage, config: IngestConfig) -> Product:
    seen = inputs_digest(stage.settings, stage.lake, config)
    traces, rejections, num_records = _read_all(stage, config)
    share = len(rejections) / num_records if num_records else 0.0
    if share > config.max_rejected_share:
        first = rejections[0]
        raise InputError(
            f"ingest: {len(rejections)} of {num_records} records rejected, at most {config.max_rejected_share:.0%} may be; "
            f"first: {first.reason} in {first.source.location}: {first.detail}; mend the source, or raise ingest.max_rejected_share"
        )
    key, policy = stage.lake.pseudonym_key(), RedactionPolicy()
    clean, num_duplicates = drop_exact_duplicates(redact(t, policy, key=key) for t in traces)
    batch = _claim(stage, clean)
    rows = [trace_to_row(t) for t in batch]
    require_clean((row["body"] for row in rows), where="traces")
    known = set(stage.lake.read("traces", columns=["digest"])["digest"].to_list())
    stage.lake.append("traces", [r for r in rows if r["digest"] not in known], transaction=(f"ingest/{stage.key}", 1))
    refused = [rejection_to_row(redact_rejection(r, policy, key=key)) for r in rejections]
    stage.lake.append("rejections", refused, transaction=(f"ingest/{stage.key}", 1))
    by_reason: dict[str, int] = {}
    for rejection in rejections:
        by_reason[rejection.reason.value] = by_reason.get(rejection.reason.value, 0) + 1
    digests = [trace_digest(t) for t in batch]
    stage.say(f"ingest: {len(batch)} new traces, {len(rejections)} rejected, {num_duplicates} duplicates")
    return Product(
        uri=f"{stage.lake.root}/batches/{stage.cycle.id}.json",
        digest=digest(sorted(digests)),
        counts={"traces": len(batch), "rejected": len(rejections), "duplicates": num_duplicates},
        facts={"rejected_by_reason": dict(by_reason), "inputs_digest": seen},
    )


def _read_all(stage: Stage, config: IngestConfig) -> tuple[list[Trace], list[Rejection], int]:
    traces: list[Trace] = []
    rejections: list[Rejection] = []
    for record in _records(stage, config):
        if isinstance(record, Trace):
            traces.append(record)
        else:
            rejections.append(record)
    return traces, rejections, len(traces) + len(rejections)


def _records(stage: Stage, config: IngestConfig) -> Iterator[Trace | Rejection]:
    experiments = known_experiments(stage.settings.mlflow_url, config.experiments) if config.experiments else ()
    for missing in sorted(set(config.experiments) - set(experiments)):
        stage.say(f"ingest: MLflow has no experiment {missing!r}; it counts as empty")
    if experiments:
        for found in search(stage.settings.mlflow_url, experiments):
            yield parse_record(found.raw, Source("mlflow", ",".join(config.experiments), "mlflow"))
    if config.inbox:
        for file in list_inbox(stage.lake).files:
            yield from read_inbox_file(stage.lake, file)


def _claim(stage: Stage, traces: list[Trace]) -> list[Trace]:
    """The traces of this cycle's batch: those it claimed before it was killed, or all that no finished cycle took."""
    by_digest = {trace_digest(t): t for t in traces}
    claimed = read_batch(stage.lake, stage.cycle.id)
    if claimed is None:
        taken = digests_of_finished_cycles(stage.lake)
        claimed = claim_batch(stage.lake, stage.cycle.id, tuple(sorted(d for d in by_digest if d not in taken)))
    return [by_digest[d] for d in claimed if d in by_digest]

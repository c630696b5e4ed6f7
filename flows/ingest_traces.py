"""Stage 1: production traces into the lake."""

from prefect import flow

from pipelines.artifacts import StageRecord
from pipelines.config import IngestConfig
from tasks.ingest import ingest
from tasks.stage import CycleRef


@flow(name="ingest_traces")
async def ingest_traces(cycle: CycleRef, config: IngestConfig = IngestConfig()) -> StageRecord:
    """Read what is new in MLflow and the inbox; the record names the cycle's batch."""
    return await ingest(cycle, config)

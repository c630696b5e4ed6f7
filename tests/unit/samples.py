"""Where the sample traces lie that the format tests read; they are not part of this repository."""

import os
from pathlib import Path

import pytest


def sample_files(folder: str) -> list[Path]:
    """Sample files of one format folder; skips the test when the samples are not there."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "traces"
    root = Path(os.environ.get("EVERLOOP_SAMPLES") or beside)
    files = sorted((root / folder).glob("*"))
    if not files:
        pytest.skip(f"no sample traces in {root / folder}; set EVERLOOP_SAMPLES to a folder that has them")
    return files

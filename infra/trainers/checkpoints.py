"""Checkpoints of a training phase: the transformers Trainer writes them, a marker written last makes one count.

A checkpoint holds weights, optimizer, scheduler and RNG state in the Trainer's own files and never leaves the work folder.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

MARKER = "complete"


class MarkComplete(TrainerCallback):
    """Writes the marker after the Trainer has written all of a checkpoint."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (Path(args.output_dir) / f"checkpoint-{state.global_step}" / MARKER).touch()


def read_losses(checkpoint: Path) -> dict[int, float]:
    """Loss by step of the attempts that led to a checkpoint, as the Trainer saved them (NaN included, so not strict JSON)."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return {entry["step"]: float(entry["loss"]) for entry in state["log_history"] if "loss" in entry}


def newest_checkpoint(folder: Path) -> tuple[Path, int] | None:
    """The newest complete checkpoint and its step; incomplete ones, left by a killed worker, are deleted."""
    complete: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        if (path / MARKER).exists():
            complete.append((int(path.name.removeprefix("checkpoint-")), path))
        else:
            shutil.rmtree(path)
    if not complete:
        return None
    step, path = max(complete)
    return path, step

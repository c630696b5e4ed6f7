"""Predictions in the file format of SWE-bench, so that the official harness can grade the same answers. Writes no files."""

import json
from collections.abc import Iterable, Mapping


def format_predictions(model: str, patches: Mapping[str, str]) -> str:
    """JSONL of instance_id, model_name_or_path and model_patch, sorted by instance.

    ASCII only: the harness splits with str.splitlines, which also splits at a raw U+2028.
    """
    rows: Iterable[dict[str, str]] = (
        {"instance_id": name, "model_name_or_path": model, "model_patch": patches[name]} for name in sorted(patches)
    )
    return "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)

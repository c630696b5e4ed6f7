"""Reading a SWE-bench 5 task repository from a folder. Refuses to run or judge what it reads.

The layout is the one of `swebench.task.repo` (5.0.2): sweb.yaml, then per instance a folder under tasks/ with task.yaml,
tests.json, problem_statement.md, gold.patch, test.patch, eval.sh and Dockerfile. Ours add base.patch, the repository at its base
commit as one diff from nothing, from which both the Dockerfile and this module make the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from pipelines.errors import InputError
from pipelines.evaluation.swebench.instance import Instance
from pipelines.evaluation.swebench.patches import PatchError, apply_patch

BUNDLED = Path(__file__).with_name("swebench_tiny")
"""The tiny instances that ship with Everloop."""
COLUMNS = {
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "eval_script": "eval.sh",
    "problem_statement": "problem_statement.md",
}


@dataclass(frozen=True, slots=True)
class Task:
    """An instance with its repository."""

    instance: Instance
    files: dict[str, str]
    """Path to content at the base commit."""

    @property
    def id(self) -> str:
        return self.instance.instance_id


def load_tasks(root: Path = BUNDLED, ids: Sequence[str] | None = None) -> tuple[Task, ...]:
    """The tasks of a repository, sorted by id, or those named. Raises InputError when one is missing or cannot be read."""
    folders = {path.parent.name: path.parent for path in sorted(root.glob("tasks/*/task.yaml"))}
    if not folders:
        raise InputError(f"{root} has no tasks/<instance_id>/task.yaml; expected a SWE-bench 5 task repository")
    unknown = sorted(set(ids or ()) - set(folders))
    if unknown:
        raise InputError(f"{root} has no task {', '.join(unknown)}; have {', '.join(folders)}")
    return tuple(_load(folders[name]) for name in (ids if ids is not None else folders))


def _load(folder: Path) -> Task:
    try:
        row: dict[str, Any] = yaml.safe_load(_text(folder / "task.yaml"))
        row |= orjson.loads((folder / "tests.json").read_bytes())
        row |= {column: _text(folder / name) for column, name in COLUMNS.items()}
        files = apply_patch({}, _text(folder / "base.patch"))
        return Task(Instance.model_validate(row), {path: content or "" for path, content in files.items()})
    except (OSError, yaml.YAMLError, orjson.JSONDecodeError, ValidationError, PatchError, TypeError) as error:
        raise InputError(f"{folder}: cannot be read as a SWE-bench task: {error}; compare with the bundled ones") from error


def _text(path: Path) -> str:
    """Without newline translation: a patch that loses its carriage returns no longer applies."""
    return path.read_bytes().decode()

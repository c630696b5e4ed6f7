"""Running an instance's tests against a patch in the sandbox.

Owns putting repository, patch and script together and the two secrets of a run. Refuses to grade: `pipelines` does.
"""

import secrets
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infra.benchmarks._task_repository import Task
from infra.sandbox import MIB, Command, Limits, Mount, Sandbox, SandboxUnavailable
from infra.sandbox._test_environment import REPORT_VARIABLES, VARIABLES, prepare_test_environment
from infra.sandbox.bubblewrap import probe
from pipelines.artifacts import digest
from pipelines.evaluation.swebench.grading import Grade, grade, mark
from pipelines.evaluation.swebench.patches import PatchError, apply_patch
from pipelines.evaluation.swebench.tampering import refusal

WORKDIR = "/testbed"
HARNESS = "/harness"
LIMITS = Limits(wall_s=30.0, memory_bytes=512 * MIB, disk_bytes=64 * MIB, file_bytes=16 * MIB, output_bytes=2 * MIB)


@dataclass(frozen=True, slots=True)
class TestBed:
    """A sandbox with the environment that tests need."""

    __test__ = False

    sandbox: Sandbox
    environment: Mount
    root: Path
    """Folder for repositories and for the layers of each run."""
    limits: Limits = LIMITS


def prepare_test_bed(root: Path, *, limits: Limits = LIMITS) -> TestBed:
    """A bubblewrap test bed with its state under `root`. Raises SandboxUnavailable, naming the fix."""
    root = root.absolute()
    return TestBed(probe(root / "scratch"), prepare_test_environment(root / "environments"), root, limits)


def grade_patch(bed: TestBed, task: Task, patch: str) -> Grade:
    """Apply a patch to a fresh view of the repository, run the tests there with the network cut, and grade.

    An empty patch changes nothing. Raises InfrastructureError when the sandbox failed or the tests never started.
    """
    changes: dict[str, str | None] = {}
    if patch.strip():
        try:
            refused = refusal(patch)
            if refused:
                return Grade(False, f"patch refused: {refused}", tampered=True)
            changes = apply_patch(task.files, patch)
        except PatchError as error:
            return Grade(False, f"patch does not apply: {error}")
    try:
        repository = _repository(bed.root / "repositories", task)
        with tempfile.TemporaryDirectory(prefix="grade-", dir=bed.root) as folder:
            return _run(bed, task, changes, repository, Path(folder))
    except OSError as error:
        raise SandboxUnavailable(f"{task.id}: cannot write its files under {bed.root}: {error}; free space there") from error


def _run(bed: TestBed, task: Task, changes: Mapping[str, str | None], repository: Path, folder: Path) -> Grade:
    nonce, key = secrets.token_hex(16), secrets.token_hex(32).encode()
    harness, layer = folder / "harness", folder / "layer"
    layer.mkdir()
    _write(harness, {"eval.sh": mark(task.instance.eval_script, nonce)})
    _write(layer, {path: content for path, content in changes.items() if content is not None})
    gone = shlex.join(path for path, content in changes.items() if content is None)
    script = (f"rm -f -- {gone} && " if gone else "") + f"exec bash {HARNESS}/eval.sh 2>&1"
    command = Command(
        ("bash", "-c", script),
        mounts=(bed.environment, Mount(harness, HARNESS)),
        environment=VARIABLES | REPORT_VARIABLES,
        stdin=key,
    )
    result = bed.sandbox.run(command, workdir=WORKDIR, lower=[repository, layer], limits=bed.limits)
    ended_by = result.killed_by.value if result.killed_by else None
    return grade(task.instance, result.stdout, nonce=nonce, key=key, ended_by=ended_by)


def _repository(root: Path, task: Task) -> Path:
    """The repository's files on disk, written once and read-only for every run."""
    target = root / f"{task.id}-{digest(task.files)[:16]}"
    if target.exists():
        return target
    root.mkdir(parents=True, exist_ok=True)
    built = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        _write(built, task.files)
        built.chmod(0o755)
        built.rename(target)
    except OSError:
        shutil.rmtree(built)
        if not target.exists():  # else another worker was first
            raise
    return target


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        target = folder / PurePosixPath(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode(errors="surrogatepass"))

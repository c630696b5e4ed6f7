"""New weights into a running rollout replica, over vLLM's development routes. Never used on a replica that serves production."""

import time
from pathlib import Path

import httpx

from pipelines.artifacts import digest
from pipelines.errors import InfrastructureError

SYNC_TIMEOUT_S = 120.0
RESET_ATTEMPTS = 5


def weights_version(model_dir: Path) -> str:
    """Name of a model folder's weights by content: `w-` and 16 hex digits over its safetensors files."""
    import hashlib

    digests = []
    for path in sorted(model_dir.glob("*.safetensors")):
        with path.open("rb") as handle:
            digests.append([path.name, hashlib.file_digest(handle, "sha256").hexdigest()])
    if not digests:
        raise InfrastructureError(f"model folder {model_dir}: no *.safetensors in it; expected trained weights")
    return f"w-{digest(digests)[:16]}"


def sync_weights(base_url: str, model_dir: Path, version: str) -> None:
    """Load full weights from a folder both sides can read, forget cached prefixes, set the version and read it back.

    The order matters: a prefix cached under old weights must not outlive them. Raises InfrastructureError when the replica
    refuses, or reads back another version.
    """
    root = base_url.removesuffix("/").removesuffix("/v1")
    with httpx.Client(base_url=root, timeout=SYNC_TIMEOUT_S) as client:
        reload: dict[str, object] = {"method": "reload_weights", "kwargs": {"weights_path": str(model_dir.absolute())}}
        _post(client, "/collective_rpc", reload)
        _reset_prefix_cache(client)
        _post(client, "/update_weight_version", {"new_version": version})
    served = served_version(base_url)
    if served != version:
        raise InfrastructureError(
            f"rollout replica {root}: reads back weights {served!r} after {version!r} was loaded; restart it"
        )


def served_version(base_url: str) -> str:
    """The version the replica says its weights have."""
    root = base_url.removesuffix("/").removesuffix("/v1")
    try:
        response = httpx.get(f"{root}/weight_info", timeout=SYNC_TIMEOUT_S)
        response.raise_for_status()
        return str(response.json()["weight_version"])
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise InfrastructureError(
            f"rollout replica {root}: cannot read its weight version ({error}); expected a replica of role rollout"
        ) from error


def check_version(base_url: str, version: str) -> None:
    """Raise InfrastructureError when the replica no longer has these weights: something else loaded others into it."""
    served = served_version(base_url)
    if served != version:
        raise InfrastructureError(
            f"rollout replica {base_url}: now has weights {served!r}, {version!r} were loaded; does another trainer use it?"
        )


def _reset_prefix_cache(client: httpx.Client) -> None:
    # The route answers 200 with success false while requests still hold blocks of the cache.
    for _ in range(RESET_ATTEMPTS):
        if _post(client, "/reset_prefix_cache", None).json().get("success"):
            return
        time.sleep(1.0)
    raise InfrastructureError(
        f"rollout replica {client.base_url}: keeps prefixes cached under old weights, since requests are running on it; "
        "expected a replica that one trainer uses alone"
    )


def _post(client: httpx.Client, route: str, body: dict[str, object] | None) -> httpx.Response:
    try:
        response = client.post(route, json=body) if body is not None else client.post(route)
        return response.raise_for_status()
    except httpx.HTTPError as error:
        raise InfrastructureError(
            f"rollout replica {client.base_url}: {route} failed ({error}); see its log under the state folder"
        ) from error


def served_name(model: str, model_dir: Path) -> str:
    """The name a model is served under: the registered name and 12 hex digits of its weights' content."""
    return f"{model}-{weights_version(model_dir)[2:14]}"

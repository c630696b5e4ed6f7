"""The champion as it is served: registry version, weights in the lake, replica and gateway endpoint, kept in step.

Owns the first registration of the base model and the move of traffic from one version to another. Refuses to decide (the
promotion stage does).
"""

from dataclasses import dataclass
from pathlib import Path

from infra import gateway, registry
from infra.inference.base_model import prepare_base_model
from infra.inference.replicas import ReplicaSpec, Role, declare_replica, list_replicas, retire_replica, wait_until_serving
from infra.inference.weights import served_name
from infra.lake import Lake
from infra.settings import Settings
from pipelines.errors import ConfigError, InfrastructureError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A registered version and where it answers."""

    version: int
    manifest_digest: str
    model_dir: Path
    served_name: str
    """Names the weights by content."""
    base_url: str
    """OpenAI API of its replica."""


def ensure_champion(settings: Settings, lake: Lake) -> ServedModel:
    """Serve the champion, registering the base model as the first one; doing it again changes nothing.

    Raises InfrastructureError when the registry, the replica or the gateway does not answer.
    """
    version = registry.champion(settings)
    if version is None:
        artifact = lake.write_artifact("model", prepare_base_model(settings))
        number = registry.register(
            settings, source_uri=artifact.uri, manifest_digest=artifact.manifest.digest, tags={"origin": "base"}
        )
        version = registry.promote(settings, number)
    served = serve(settings, lake, version)
    state = gateway.read_endpoint(settings, settings.endpoint)
    if state is None or (state.model, state.base_url) != (served.served_name, served.base_url):
        move_traffic(settings, served)
    return served


def serve(settings: Settings, lake: Lake, version: registry.ModelVersionInfo) -> ServedModel:
    """Start, or find, the replica that serves a version, and wait until it answers. Moves no traffic."""
    model_dir = lake.open_artifact(version.source_uri)
    name = served_name(settings.registered_model, model_dir)
    replica = next((r for r in list_replicas(settings) if r.role is Role.SERVING and r.served_name == name), None)
    if replica is None:
        replica = declare_replica(settings, name=name.lower()[-40:], model_dir=model_dir, served_name=name, role=Role.SERVING)
    wait_until_serving(settings, replica)
    return ServedModel(version.version, version.manifest_digest, model_dir, name, replica.base_url)


def move_traffic(settings: Settings, served: ServedModel) -> str:
    """Point the gateway at a served version and return the model name production now answers with, read back."""
    gateway.point_endpoint(settings, settings.endpoint, base_url=served.base_url, model=served.served_name)
    gateway.wait_until_served(settings, settings.endpoint, served.served_name, timeout_s=settings.startup_timeout_s)
    return gateway.warm(settings, settings.endpoint)


def roll_back(settings: Settings, lake: Lake) -> ServedModel:
    """Serve the previous version again. Raises ConfigError when there is none."""
    if registry.by_alias(settings, registry.PREVIOUS) is None:
        raise ConfigError(f"model {settings.registered_model!r}: no previous version to roll back to")
    version = registry.rollback(settings)
    served = serve(settings, lake, version)
    move_traffic(settings, served)
    return served


def retire_others(settings: Settings, served: ServedModel) -> int:
    """Stop every serving replica but this one; returns how many. Call only after traffic has moved."""
    others = [r for r in list_replicas(settings) if r.role is Role.SERVING and r.served_name != served.served_name]
    for replica in others:
        retire_replica(settings, replica.name)
    return len(others)


ROLLOUT_REPLICA = "rollout"


def declare_rollout_replica(settings: Settings, model_dir: Path) -> ReplicaSpec:
    """Ask for the replica the trainer draws from, starting at the given weights; does not wait for it."""
    existing = next((r for r in list_replicas(settings) if r.name == ROLLOUT_REPLICA), None)
    if existing is not None:
        return existing
    return declare_replica(settings, name=ROLLOUT_REPLICA, model_dir=model_dir, served_name=ROLLOUT_REPLICA, role=Role.ROLLOUT)


def wait_for_rollout_replica(settings: Settings) -> ReplicaSpec:
    """The rollout replica once it answers. Raises InfrastructureError when none is declared or it does not come up."""
    replica = next((r for r in list_replicas(settings) if r.name == ROLLOUT_REPLICA), None)
    if replica is None:
        raise InfrastructureError("no rollout replica is declared; run the whole cycle with `everloop run`")
    wait_until_serving(settings, replica)
    return replica


def retire_rollout_replica(settings: Settings) -> None:
    retire_replica(settings, ROLLOUT_REPLICA)

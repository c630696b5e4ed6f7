"""The model registry: versions of the policy and the aliases that say which one serves.

Owns the aliases champion, challenger and previous and the order in which they move. Weights stay in the lake; a version points to
them and carries their digest. MLflow has no compare-and-set on aliases: the caller serialises promotions. A missing alias
is None; a registry that cannot answer raises, so that an outage is never mistaken for "no champion". Refuses to move traffic
(`infra.gateway` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.mlflow_connection import connect, mlflow_errors
from infra.settings import Settings
from pipelines.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"

DIGEST_TAG = "everloop.manifest_digest"
SOURCE_TAG = "everloop.source_uri"
_MISSING = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
"""How MLflow says that there is no such model, version or alias."""


@dataclass(frozen=True, slots=True)
class ModelVersionInfo:
    version: int
    source_uri: str
    """Artifact in the lake."""
    manifest_digest: str
    run_id: str
    """MLflow run that made it; empty when there is none (the base model)."""
    tags: dict[str, str]
    aliases: tuple[str, ...]


def register(
    settings: Settings,
    *,
    source_uri: str,
    manifest_digest: str,
    run_id: str = "",
    tags: Mapping[str, str] | None = None,
    description: str = "",
) -> int:
    """Version of the model with this manifest, created when there is none; given tags and description are set either way.

    The description is Markdown: what stands on the version's page, where a tag would be no link.

    Nothing is copied or opened: verify the artifact first.
    """
    client = connect(settings.mlflow_url)
    name = settings.registered_model
    known = find_version(settings, manifest_digest)
    all_tags = {**(tags or {}), DIGEST_TAG: manifest_digest, SOURCE_TAG: source_uri}
    with mlflow_errors(settings.mlflow_url, f"register a version of {name!r}"):
        if known is not None:
            for key, value in all_tags.items():
                client.set_model_version_tag(name, str(known.version), key, value)
            if description:
                client.update_model_version(name, str(known.version), description)
            return known.version
        _ensure_model(client, name)
        source = source_uri if "://" in source_uri else f"lake://{source_uri}"  # MLflow refuses plain local paths
        made = client.create_model_version(name, source, run_id or None, tags=all_tags, description=description or None)
        return int(made.version)


def find_version(settings: Settings, manifest_digest: str) -> ModelVersionInfo | None:
    """The version with this manifest, or None."""
    client = connect(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"list versions of {settings.registered_model!r}"):
        query = f"name = '{settings.registered_model}' and tags.`{DIGEST_TAG}` = '{manifest_digest}'"
        found = client.search_model_versions(query)
        versions = sorted(int(version.version) for version in found)
    return _get_version(settings, client, versions[0]) if versions else None


def champion(settings: Settings) -> ModelVersionInfo | None:
    """The version that serves; None when none was ever promoted."""
    return by_alias(settings, CHAMPION)


def by_alias(settings: Settings, alias: str) -> ModelVersionInfo | None:
    """The version an alias points to; None when there is no such alias."""
    from mlflow.exceptions import MlflowException

    client = connect(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"read alias {alias!r} of {settings.registered_model!r}"):
        try:
            found = client.get_model_version_by_alias(settings.registered_model, alias)
        except MlflowException as error:
            if error.error_code in _MISSING:
                return None
            raise
    return _get_version(settings, client, int(found.version))


def set_challenger(settings: Settings, version: int) -> None:
    """Name the candidate under evaluation."""
    client = connect(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"name version {version} challenger"):
        client.set_registered_model_alias(settings.registered_model, CHALLENGER, str(version))


def clear_challenger(settings: Settings) -> None:
    """No candidate is under evaluation (any more)."""
    if by_alias(settings, CHALLENGER) is not None:
        _drop_alias(settings, CHALLENGER)


def promote(settings: Settings, version: int) -> ModelVersionInfo:
    """Make `version` champion and keep the old one as previous; promoting the champion changes nothing.

    `previous` is set first: a crash in between leaves a champion that is also its own previous, never one without a way back.
    """
    name = settings.registered_model
    client = connect(settings.mlflow_url)
    new = _get_version(settings, client, version)
    old = champion(settings)
    if old is None or old.version != version:
        with mlflow_errors(settings.mlflow_url, f"promote version {version} of {name!r}"):
            if old is not None:
                client.set_registered_model_alias(name, PREVIOUS, str(old.version))
            client.set_registered_model_alias(name, CHAMPION, str(version))
    challenger = by_alias(settings, CHALLENGER)
    if challenger is not None and challenger.version == version:
        _drop_alias(settings, CHALLENGER)
    return _expect_champion(settings, new.version)


def rollback(settings: Settings) -> ModelVersionInfo:
    """Make the previous version champion again; the one it replaces keeps no alias.

    Raises ConfigError when there is no previous version.
    """
    previous = by_alias(settings, PREVIOUS)
    if previous is None:
        raise ConfigError(f"model {settings.registered_model!r}: no version is called {PREVIOUS!r}, nothing to go back to")
    client = connect(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"roll {settings.registered_model!r} back to version {previous.version}"):
        client.set_registered_model_alias(settings.registered_model, CHAMPION, str(previous.version))
    _drop_alias(settings, PREVIOUS)
    return _expect_champion(settings, previous.version)


def _expect_champion(settings: Settings, version: int) -> ModelVersionInfo:
    found = champion(settings)
    if found is None or found.version != version:
        seen = found.version if found else None
        name = settings.registered_model
        raise InfrastructureError(f"model {name!r}: set champion to {version}, read back {seen}; is another promotion running?")
    return found


def _drop_alias(settings: Settings, alias: str) -> None:
    client = connect(settings.mlflow_url)
    with mlflow_errors(settings.mlflow_url, f"drop alias {alias!r} of {settings.registered_model!r}"):
        client.delete_registered_model_alias(settings.registered_model, alias)


def _ensure_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _get_version(settings: Settings, client: MlflowClient, version: int) -> ModelVersionInfo:
    with mlflow_errors(settings.mlflow_url, f"read version {version} of {settings.registered_model!r}"):
        found = client.get_model_version(settings.registered_model, str(version))
    tags = dict(found.tags)
    return ModelVersionInfo(
        version=int(found.version),
        source_uri=tags.get(SOURCE_TAG, found.source or ""),
        manifest_digest=tags.get(DIGEST_TAG, ""),
        run_id=found.run_id or "",
        tags=tags,
        aliases=tuple(sorted(found.aliases)),
    )

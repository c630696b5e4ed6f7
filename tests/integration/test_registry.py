"""The model registry on a real MLflow server."""

import pytest

from infra import registry
from infra.settings import Settings
from pipelines.errors import ConfigError, InfrastructureError


def _register(settings: Settings, digest: str, **tags: str) -> int:
    return registry.register(settings, source_uri=f"/lake/models/{digest}", manifest_digest=digest, tags=tags)


def _aliases(settings: Settings) -> dict[str, int]:
    found = {alias: registry.by_alias(settings, alias) for alias in ("champion", "challenger", "previous")}
    return {alias: info.version for alias, info in found.items() if info}


def test_before_anything_is_registered_there_is_no_champion(mlflow_settings: Settings) -> None:
    assert registry.champion(mlflow_settings) is None
    _register(mlflow_settings, "aa11")
    assert registry.champion(mlflow_settings) is None


def test_an_outage_is_an_error_and_never_no_champion(dead_settings: Settings) -> None:
    with pytest.raises(InfrastructureError, match=r"does not answer .*everloop up"):
        registry.champion(dead_settings)


def test_a_version_carries_where_its_weights_lie_and_what_made_it(mlflow_settings: Settings) -> None:
    uri = "s3://lake/artifacts/models/abc"
    version = registry.register(mlflow_settings, source_uri=uri, manifest_digest="abc", tags={"everloop.cycle": "c1"})
    registry.promote(mlflow_settings, version)
    info = registry.champion(mlflow_settings)
    assert info is not None
    assert (info.version, info.source_uri, info.manifest_digest, info.run_id) == (version, uri, "abc", "")
    assert info.tags["everloop.cycle"] == "c1"
    assert info.aliases == ("champion",)


def test_registering_the_same_weights_again_gives_the_same_version(mlflow_settings: Settings) -> None:
    first = _register(mlflow_settings, "aa11", cycle="1")
    assert _register(mlflow_settings, "aa11", cycle="2") == first
    assert _register(mlflow_settings, "bb22") == first + 1
    info = registry.find_version(mlflow_settings, "aa11")
    assert info is not None
    assert (info.tags["cycle"], info.source_uri) == ("2", "/lake/models/aa11")
    assert registry.find_version(mlflow_settings, "cc33") is None


def test_the_page_of_a_version_says_where_it_came_from(mlflow_settings: Settings) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=mlflow_settings.mlflow_url, registry_uri=mlflow_settings.mlflow_url)

    def register_with(description: str) -> str | None:
        version = registry.register(mlflow_settings, source_uri="/lake/m", manifest_digest="dd44", description=description)
        return client.get_model_version(mlflow_settings.registered_model, str(version)).description

    assert register_with("hold in [cycle c1](http://here)") == "hold in [cycle c1](http://here)"
    assert register_with("promote in [cycle c2](http://here)") == "promote in [cycle c2](http://here)"


def test_a_promotion_moves_the_old_champion_to_previous_and_a_rollback_brings_it_back(mlflow_settings: Settings) -> None:
    one, two = _register(mlflow_settings, "aa11"), _register(mlflow_settings, "bb22")
    registry.promote(mlflow_settings, one)
    assert _aliases(mlflow_settings) == {"champion": one}
    registry.set_challenger(mlflow_settings, two)
    registry.promote(mlflow_settings, two)
    assert _aliases(mlflow_settings) == {"champion": two, "previous": one}
    assert registry.rollback(mlflow_settings).version == one
    assert _aliases(mlflow_settings) == {"champion": one}
    with pytest.raises(ConfigError, match="nothing to go back to"):
        registry.rollback(mlflow_settings)


def test_promoting_the_champion_again_keeps_the_way_back(mlflow_settings: Settings) -> None:
    one, two = _register(mlflow_settings, "aa11"), _register(mlflow_settings, "bb22")
    for version in (one, two, two):
        registry.promote(mlflow_settings, version)
    assert _aliases(mlflow_settings) == {"champion": two, "previous": one}


def test_a_challenger_that_was_not_promoted_can_be_cleared(mlflow_settings: Settings) -> None:
    one, two = _register(mlflow_settings, "aa11"), _register(mlflow_settings, "bb22")
    registry.promote(mlflow_settings, one)
    registry.set_challenger(mlflow_settings, two)
    registry.promote(mlflow_settings, one)
    assert _aliases(mlflow_settings) == {"champion": one, "challenger": two}
    registry.clear_challenger(mlflow_settings)
    registry.clear_challenger(mlflow_settings)
    assert _aliases(mlflow_settings) == {"champion": one}


def test_promoting_a_version_that_does_not_exist_moves_nothing(mlflow_settings: Settings) -> None:
    one = _register(mlflow_settings, "aa11")
    registry.promote(mlflow_settings, one)
    with pytest.raises(InfrastructureError, match="read version 99"):
        registry.promote(mlflow_settings, 99)
    assert _aliases(mlflow_settings) == {"champion": one}

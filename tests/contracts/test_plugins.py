"""Every plugin folder is walked: what is in it must offer what its folder's protocol asks."""

from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from pipelines import plugins

PROTOCOLS = {
    "rewards.verifiers": ("Options", "verify"),
    "rewards.synthesis": ("Options", "synthesize"),
    "traces.formats": ("match", "parse"),
}
SHIPPED = [(folder, name) for folder in PROTOCOLS for name in plugins.available(folder)]


@pytest.mark.parametrize("folder", PROTOCOLS)
def test_every_folder_ships_at_least_one_plugin(folder: str) -> None:
    assert plugins.available(folder)


@pytest.mark.parametrize(("folder", "name"), SHIPPED)
def test_a_plugin_offers_what_its_folder_asks_and_says_what_it_owns(folder: str, name: str) -> None:
    plugin: ModuleType = plugins.load(folder, name)
    assert plugin.__doc__
    for attribute in PROTOCOLS[folder]:
        assert hasattr(plugin, attribute), f"{folder}.{name} has no {attribute}"


@pytest.mark.parametrize(("folder", "name"), [(f, n) for f, n in SHIPPED if "Options" in PROTOCOLS[f]])
def test_options_are_a_model_that_forbids_unknown_keys(folder: str, name: str) -> None:
    options: Any = plugins.load(folder, name).Options
    assert issubclass(options, BaseModel)
    assert options.model_config.get("extra") == "forbid"

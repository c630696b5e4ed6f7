"""Plugins: the module is the plugin, its name is its key.

`load("rewards.verifiers", "tool_call")` imports `pipelines.rewards.verifiers.tool_call`. A name with a colon
(`acme.rewards:strict`) imports the user's own object instead.
"""

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any

from pipelines.errors import ConfigError


def load(folder: str, name: str) -> Any:
    """Return the plugin module `pipelines/<folder>/<name>.py`, or the object named `package.module:attribute`.

    Raises ConfigError naming what exists when there is no such plugin.
    """
    if ":" in name:
        return _load_outside(name)
    if name not in available(folder):
        raise ConfigError(
            f"plugin {name!r}: no module in pipelines/{folder.replace('.', '/')}; have {', '.join(available(folder))}"
        )
    return import_module(f"pipelines.{folder}.{name}")


def available(folder: str) -> list[str]:
    """Names of the plugins shipped in a folder, sorted."""
    package: ModuleType = import_module(f"pipelines.{folder}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def _load_outside(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"plugin {name!r}: cannot import it ({error}); expected package.module:attribute on the Python path"
        ) from error

"""What every command shares: the settings, the console, and one line per error."""

from pydantic import ValidationError
from rich.console import Console

from infra.settings import Settings
from pipelines.errors import ConfigError


def read_settings() -> Settings:
    """The settings of this process; raises ConfigError with every bad variable in one line."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [f"EVERLOOP_{str(p['loc'][0]).upper()}={p['input']!r}: {p['msg']}" for p in error.errors()]
        raise ConfigError(f"{'; '.join(problems)}; see `everloop --help`") from error


def make_console() -> Console:
    """A console that leaves wrapping to the terminal, so that output can be piped and copied."""
    return Console(soft_wrap=True)

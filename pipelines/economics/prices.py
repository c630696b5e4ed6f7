"""Prices: what a unit of a resource costs, by whom and when. A resource without a price has an unknown cost, never a free one."""

from collections.abc import Mapping
from datetime import date

from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import ConfigError


class Price(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    resource: str = Field(min_length=1)
    """cpu:core, gpu:h200, tokens:judge, storage, ..."""
    unit: str = Field(min_length=1)
    """What the price is for: hour, million tokens, GB-month."""
    usd: float = Field(ge=0.0, allow_inf_nan=False)
    """US dollars for one unit."""
    source: str = Field(min_length=1)
    """Who charges it: provider, product, region, terms."""
    as_of: date | None = None
    """Day on which the price held; None: not stated."""


CPU_CORE_HOUR = Price(
    resource="cpu:core",
    unit="hour",
    usd=0.08925 / 2,
    source="AWS EC2 c7i.large on demand, us-east-1: 0.08925 USD per hour for 2 vCPU",
    as_of=date(2025, 11, 1),
)
DEFAULT_PRICES: Mapping[str, Price] = {CPU_CORE_HOUR.resource: CPU_CORE_HOUR}


def core_hour(usd: float | None) -> Price:
    """The price of one core for one hour: the one given, or the default when None."""
    return CPU_CORE_HOUR if usd is None else Price(resource="cpu:core", unit="hour", usd=usd, source="set in the run config")


def price_list(overrides: tuple[Price, ...] = ()) -> dict[str, Price]:
    """Prices by resource: the defaults, replaced by the overrides; raises ConfigError when a resource is given twice."""
    given: dict[str, Price] = {}
    for price in overrides:
        if price.resource in given:
            raise ConfigError(f"prices: {price.resource!r} is given twice; expected one price per resource")
        given[price.resource] = price
    return {**DEFAULT_PRICES, **given}

"""The ledger: what each stage used and what that cost, where the price is known.

Owns entries and totals. A total with an unknown part is not a number but "at least" one. It refuses to look prices up.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipelines.economics.prices import Price


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """So much of a resource, used by a stage. Raises ValueError on construction when the quantity is negative or not finite."""

    stage: str
    resource: str
    quantity: float
    """In the price's unit."""
    unit: str
    price: Price | None = None
    """None: unknown, and so is the cost."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.quantity) or self.quantity < 0.0:
            raise ValueError(
                f"ledger: {self.stage} used {self.quantity} {self.unit} of {self.resource}; expected a number from 0 up"
            )
        if self.price is not None and (self.price.resource, self.price.unit) != (self.resource, self.unit):
            raise ValueError(
                f"ledger: {self.quantity} {self.unit} of {self.resource} cannot have the price of a {self.price.unit} of "
                f"{self.price.resource}; expected the same resource and unit"
            )

    @property
    def cost_usd(self) -> float | None:
        """None is unknown."""
        return None if self.price is None else self.quantity * self.price.usd


@dataclass(frozen=True, slots=True)
class Total:
    known_usd: float
    """Sum of the known parts."""
    unknown: tuple[str, ...]
    """Resources whose cost is unknown."""

    @property
    def usd(self) -> float | None:
        """The cost; None when a part of it is unknown."""
        return None if self.unknown else self.known_usd

    def __str__(self) -> str:
        if self.unknown:
            return f"at least {self.known_usd:.4f} USD (unknown: {', '.join(self.unknown)})"
        return f"{self.known_usd:.4f} USD"


def cpu_entry(stage: str, wall_s: float, num_cores: float, prices: Mapping[str, Price]) -> LedgerEntry:
    """Cores held for a time, in core-hours: a held core costs the same when idle."""
    return LedgerEntry(stage, "cpu:core", wall_s * num_cores / 3600.0, "hour", prices.get("cpu:core"))


def total(entries: Iterable[LedgerEntry]) -> Total:
    listed = list(entries)
    unknown = tuple(sorted({e.resource for e in listed if e.cost_usd is None and e.quantity > 0.0}))
    return Total(math.fsum(e.cost_usd or 0.0 for e in listed), unknown)


def total_by_stage(entries: Iterable[LedgerEntry]) -> dict[str, Total]:
    """Stage to its total, in the order the stages first appear."""
    by_stage: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        by_stage.setdefault(entry.stage, []).append(entry)
    return {stage: total(stage_entries) for stage, stage_entries in by_stage.items()}

"""Intelligence per dollar: percentage points gained per dollar spent, and the serving costs under it.

Owns the ratios. A gain that could be nothing is "not significant" and an unknown cost leaves the ratio unknown: neither becomes
a number per dollar.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.economics.ledger import Total
from pipelines.evaluation.comparison import Comparison
from pipelines.promotion.decision import is_significant


@dataclass(frozen=True, slots=True)
class IntelligencePerDollar:
    """Points on one benchmark per US dollar. The ratio and its ends are None when `note` says why."""

    benchmark: str
    gain_points: float | None
    cost: Total
    points_per_usd: float | None
    low: float | None
    high: float | None
    confidence: float
    usd_per_newly_solved: float | None
    """Cost over net newly solved tasks (solved minus broken); None when that is not above 0, or the cost is unknown."""
    note: str = ""
    """Empty, or why there is no ratio: not significant, cost unknown, nothing spent."""

    def __str__(self) -> str:
        if self.points_per_usd is None or self.low is None or self.high is None:
            return self.note
        return f"{self.points_per_usd:.3g} points per USD ({self.confidence:.0%} interval {self.low:.3g} to {self.high:.3g})"


def intelligence_per_dollar(comparison: Comparison, cost: Total) -> IntelligencePerDollar:
    """Gain over cost, with the gain's interval carried over; the cost is taken as exact."""
    ratios = _ratios(comparison, cost)
    net_solved = len(comparison.newly_solved) - len(comparison.newly_broken)
    return IntelligencePerDollar(
        benchmark=comparison.benchmark,
        gain_points=comparison.gain_points,
        cost=cost,
        points_per_usd=None if isinstance(ratios, str) else ratios[0],
        low=None if isinstance(ratios, str) else ratios[1],
        high=None if isinstance(ratios, str) else ratios[2],
        confidence=comparison.confidence,
        usd_per_newly_solved=cost.usd / net_solved if cost.usd is not None and net_solved > 0 else None,
        note=ratios if isinstance(ratios, str) else "",
    )


def cumulative_points_per_usd(cycles: Sequence[IntelligencePerDollar]) -> float | None:
    """Points of all cycles over the cost of all cycles, those that gained nothing included.

    A gain that was not significant counts as no gain; None when a cost is unknown or nothing was spent.
    """
    costs = [cycle.cost.usd for cycle in cycles]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or sum(known) <= 0.0:
        return None
    gained = sum(cycle.gain_points or 0.0 for cycle in cycles if cycle.points_per_usd is not None)
    return gained / sum(known)


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """USD per million tokens; None where there were no such tokens, or their share of the serving time is unknown."""

    all_tokens: float | None
    input: float | None
    output: float | None
    cached_input: float | None


def token_costs(
    cost_usd: float | None,
    *,
    input_tokens: int,
    output_tokens: int,
    cached_input_tokens: int = 0,
    prefill_share: float | None = None,
) -> TokenCosts:
    """Divide what serving cost by what it served.

    `input_tokens` include the cached ones. `prefill_share` is the share of the serving time spent on prompts, in [0, 1]; without
    it input and output cannot be told apart. A cached prompt token costs no compute, only the memory that holds it: 0.
    """
    fresh = input_tokens - cached_input_tokens
    if fresh < 0 or output_tokens < 0 or cached_input_tokens < 0:
        raise ValueError(f"{input_tokens} input tokens of which {cached_input_tokens} cached; expected no more cached than all")
    if cost_usd is None:
        return TokenCosts(None, None, None, None)
    split = (None, None) if prefill_share is None else (cost_usd * prefill_share, cost_usd * (1.0 - prefill_share))
    return TokenCosts(
        all_tokens=per_million(cost_usd, input_tokens + output_tokens),
        input=per_million(split[0], fresh),
        output=per_million(split[1], output_tokens),
        cached_input=0.0 if cached_input_tokens and prefill_share is not None else None,
    )


def per_million(cost_usd: float | None, num_tokens: int) -> float | None:
    """USD per million tokens; None when the cost is unknown or there are no tokens."""
    return None if cost_usd is None or num_tokens <= 0 else cost_usd / num_tokens * 1e6


def _ratios(comparison: Comparison, cost: Total) -> tuple[float, float, float] | str:
    gain, low, high = comparison.gain_points, comparison.low_points, comparison.high_points
    if gain is None or low is None or high is None or not is_significant(comparison):
        return "not significant"
    if cost.usd is None:
        return f"cost unknown ({', '.join(cost.unknown)})"
    if cost.usd <= 0.0:
        return "nothing spent"
    return gain / cost.usd, low / cost.usd, high / cost.usd

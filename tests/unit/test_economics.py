from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.economics.intelligence import (
    cumulative_points_per_usd,
    intelligence_per_dollar,
    per_million,
    token_costs,
)
from pipelines.economics.ledger import LedgerEntry, Total, cpu_entry, total, total_by_stage
from pipelines.economics.prices import CPU_CORE_HOUR, Price, core_hour, price_list
from pipelines.errors import ConfigError
from pipelines.evaluation.comparison import Comparison, compare
from pipelines.evaluation.report import EvaluationReport, TaskOutcome


def compared(champion: int, candidate: int, of: int = 60) -> Comparison:
    sides = [
        EvaluationReport(
            "holdout", name, name, tuple(TaskOutcome(f"t{i}", 0, i < count, float(i < count)) for i in range(of)), 1.0
        )
        for name, count in (("old", champion), ("new", candidate))
    ]
    return compare(*sides, resamples=2000)


def test_the_default_core_price_names_its_source_and_day() -> None:
    price = price_list()["cpu:core"]
    assert price.usd == pytest.approx(0.044625)
    assert "c7i.large" in price.source
    assert price.as_of is not None
    assert core_hour(None) is CPU_CORE_HOUR
    assert core_hour(0.1).source == "set in the run config"


def test_an_override_replaces_a_default_and_a_double_one_is_refused() -> None:
    mine = Price(resource="cpu:core", unit="hour", usd=0.01, source="our rack", as_of=date(2026, 1, 1))
    assert price_list((mine,))["cpu:core"] is mine
    with pytest.raises(ConfigError, match="given twice"):
        price_list((mine, mine))
    with pytest.raises(ValidationError):
        Price(resource="x", unit="hour", usd=float("nan"), source="y", as_of=date(2026, 1, 1))


def test_a_cost_is_quantity_times_price_by_stage() -> None:
    entries = [cpu_entry("post_train", 1800, 2, price_list()), cpu_entry("ingest_traces", 36, 2, price_list())]
    assert entries[0].cost_usd == pytest.approx(0.044625)
    by_stage = {stage: str(stage_total) for stage, stage_total in total_by_stage(entries).items()}
    assert by_stage == {"post_train": "0.0446 USD", "ingest_traces": "0.0009 USD"}


def test_a_total_with_an_unknown_part_is_at_least_something_and_never_a_number() -> None:
    known = cpu_entry("post_train", 3600, 1, price_list())
    both = total([known, LedgerEntry("evaluate", "tokens:judge", 5000, "token")])
    assert both.usd is None
    assert both.known_usd == pytest.approx(0.044625)
    assert str(both) == "at least 0.0446 USD (unknown: tokens:judge)"
    assert total([known, LedgerEntry("evaluate", "tokens:judge", 0, "token")]).usd == pytest.approx(0.044625)


def test_a_ledger_entry_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="expected a number from 0 up"):
        LedgerEntry("s", "cpu:core", float("nan"), "hour")
    with pytest.raises(ValueError, match="expected the same resource and unit"):
        LedgerEntry("s", "gpu:h200", 1, "hour", CPU_CORE_HOUR)


def test_intelligence_per_dollar_carries_the_interval_over() -> None:
    comparison = compared(6, 40)
    ipd = intelligence_per_dollar(comparison, Total(0.02, ()))
    assert comparison.gain_points is not None
    assert comparison.low_points is not None
    assert ipd.points_per_usd == pytest.approx(comparison.gain_points / 0.02)
    assert ipd.low == pytest.approx(comparison.low_points / 0.02)
    assert ipd.usd_per_newly_solved == pytest.approx(0.02 / 34)
    assert "points per USD (95% interval" in str(ipd)


def test_a_gain_that_could_be_nothing_is_not_significant_rather_than_a_number() -> None:
    ipd = intelligence_per_dollar(compared(10, 12), Total(0.02, ()))
    assert (ipd.points_per_usd, ipd.low, ipd.high, str(ipd)) == (None, None, None, "not significant")


def test_an_unknown_or_zero_cost_gives_no_ratio() -> None:
    assert str(intelligence_per_dollar(compared(6, 40), Total(0.02, ("gpu:h200",)))) == "cost unknown (gpu:h200)"
    assert str(intelligence_per_dollar(compared(6, 40), Total(0.0, ()))) == "nothing spent"


def test_a_candidate_that_breaks_as_much_as_it_solves_has_no_price_per_task() -> None:
    assert intelligence_per_dollar(compared(10, 10), Total(0.02, ())).usd_per_newly_solved is None


def test_cycles_that_gained_nothing_still_cost() -> None:
    won = intelligence_per_dollar(compared(6, 40), Total(0.02, ()))
    lost = intelligence_per_dollar(compared(10, 11), Total(0.06, ()))
    cumulative = cumulative_points_per_usd([won, lost])
    assert cumulative == pytest.approx((won.gain_points or 0.0) / 0.08)
    assert cumulative_points_per_usd([won, intelligence_per_dollar(compared(6, 40), Total(0.0, ("x",)))]) is None
    assert cumulative_points_per_usd([]) is None


def test_token_costs_tell_input_and_output_apart_only_when_the_time_is_known() -> None:
    costs = token_costs(0.1, input_tokens=800_000, output_tokens=200_000, cached_input_tokens=300_000, prefill_share=0.25)
    assert costs.all_tokens == pytest.approx(0.1)
    assert costs.input == pytest.approx(0.05)
    assert costs.output == pytest.approx(0.375)
    assert costs.cached_input == 0.0
    blind = token_costs(0.1, input_tokens=800_000, output_tokens=200_000)
    assert blind.all_tokens == pytest.approx(0.1)
    assert (blind.input, blind.output, blind.cached_input) == (None, None, None)
    assert token_costs(None, input_tokens=1, output_tokens=1).all_tokens is None
    with pytest.raises(ValueError, match="no more cached than all"):
        token_costs(0.1, input_tokens=1, output_tokens=1, cached_input_tokens=2)
    assert per_million(0.1, 0) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=20))
def test_a_total_is_a_number_exactly_when_every_used_part_is_known(parts: list[tuple[float, bool]]) -> None:
    entries = [LedgerEntry("s", "cpu:core", quantity, "hour", CPU_CORE_HOUR if known else None) for quantity, known in parts]
    assert (total(entries).usd is None) is any(quantity > 0 and not known for quantity, known in parts)

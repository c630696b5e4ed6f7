import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from pipelines.errors import InputError
from pipelines.evaluation.comparison import Comparison, bootstrap_interval, compare, exact_p_value, rate_interval, required_tasks
from pipelines.evaluation.report import EvaluationReport, TaskOutcome
from pipelines.rewards.model import FailureReason

Passed = bool | None


def report(model: str, passed: dict[tuple[str, int], Passed], benchmark: str = "holdout") -> EvaluationReport:
    outcomes = tuple(
        TaskOutcome(task, seed, ok, None if ok is None else float(ok), FailureReason.SERVER if ok is None else None)
        for (task, seed), ok in passed.items()
    )
    return EvaluationReport(benchmark, model, f"digest-{model}", outcomes, 1.0)


def compared(champion: Sequence[Passed], candidate: Sequence[Passed], *, resamples: int = 10_000, seed: int = 0) -> Comparison:
    old, new = (
        report(name, {(f"t{i:03}", 0): ok for i, ok in enumerate(passed)})
        for name, passed in (("old", champion), ("new", candidate))
    )
    return compare(old, new, resamples=resamples, seed=seed)


def test_a_gain_comes_with_its_interval_and_the_tasks_that_changed() -> None:
    result = compared([False] * 40 + [True] * 20, [True] * 30 + [False] * 10 + [True] * 18 + [False] * 2)
    assert result.champion_rate == pytest.approx(20 / 60)
    assert result.candidate_rate == pytest.approx(48 / 60)
    assert result.gain_points == pytest.approx(100 * 28 / 60)
    assert result.low_points is not None
    assert result.high_points is not None
    assert result.gain_points is not None
    assert 25 < result.low_points < result.gain_points < result.high_points < 65
    assert len(result.newly_solved) == 30
    assert result.newly_broken == ("t058", "t059")
    assert result.p_value == pytest.approx(binomtest(30, 32).pvalue)


def test_equal_models_have_a_gain_of_zero_and_a_p_value_of_one() -> None:
    result = compared([True, False] * 30, [True, False] * 30)
    assert (result.gain_points, result.low_points, result.high_points, result.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_pairs_with_an_infrastructure_failure_are_left_out_and_counted() -> None:
    result = compared([True, False, None, False], [True, None, True, True])
    assert (result.num_pairs, result.num_excluded, result.num_tasks) == (2, 2, 2)
    assert result.excluded_share == 0.5
    assert result.gain_points == 50.0


def test_without_a_scored_pair_there_is_no_number() -> None:
    result = compared([None, None], [True, False])
    assert (result.gain_points, result.low_points, result.high_points, result.p_value) == (None, None, None, None)


def test_reports_of_different_tasks_seeds_or_benchmarks_cannot_be_compared() -> None:
    one = report("old", {("a", 0): True, ("b", 0): True})
    with pytest.raises(InputError, match="first is task b seed 0, which the candidate lacks"):
        compare(one, report("new", {("a", 0): True}))
    with pytest.raises(InputError, match="first is task b seed 0"):
        compare(one, report("new", {("a", 0): True, ("b", 1): True}))
    with pytest.raises(InputError, match="evaluate both on one"):
        compare(one, report("new", {("a", 0): True, ("b", 0): True}, "swebench-tiny"))
    twice = EvaluationReport("holdout", "new", "d", one.outcomes + one.outcomes, 1.0)
    with pytest.raises(InputError, match="same task and seed twice"):
        compare(one, twice)


def test_seeds_of_one_task_are_not_independent_evidence() -> None:
    tasks = [f"t{i}" for i in range(20)]
    seeds = range(10)
    one_seed = compare(
        report("old", {(t, 0): False for t in tasks}), report("new", {(t, 0): i % 2 == 0 for i, t in enumerate(tasks)})
    )
    many = compare(
        report("old", {(t, s): False for t in tasks for s in seeds}),
        report("new", {(t, s): i % 2 == 0 for i, t in enumerate(tasks) for s in seeds}),
    )
    assert many.num_pairs == 200
    assert many.num_tasks == 20
    assert (many.low_points, many.high_points, many.p_value) == (one_seed.low_points, one_seed.high_points, one_seed.p_value)


def test_the_same_seed_gives_the_same_interval() -> None:
    champion: list[Passed] = [i % 3 == 0 for i in range(50)]
    candidate: list[Passed] = [i % 2 == 0 for i in range(50)]
    assert compared(champion, candidate, seed=3) == compared(champion, candidate, seed=3)
    assert compared(champion, candidate, seed=3).low_points == pytest.approx(
        compared(champion, candidate, seed=4).low_points, abs=3
    )


def test_the_interval_covers_the_true_gain_about_as_often_as_it_says() -> None:
    """300 simulated evaluations of 60 tasks whose true gain is 20 points; percentile intervals run a little short."""
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(300):
        gains = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=60)
        low, high = bootstrap_interval(gains, np.ones(60), confidence=0.95, resamples=1000, seed=trial)
        assert low is not None
        assert high is not None
        covered += low <= 20.0 <= high
    assert 0.90 <= covered / 300 <= 0.98


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_gain_and_interval_stay_in_bounds_and_swap_sides_with_the_models(pairs: list[tuple[bool, bool]]) -> None:
    forward = compared([a for a, _ in pairs], [b for _, b in pairs], resamples=400)
    backward = compared([b for _, b in pairs], [a for a, _ in pairs], resamples=400)
    assert forward.low_points is not None
    assert forward.high_points is not None
    assert -100.0 <= forward.low_points <= forward.high_points <= 100.0
    assert forward.gain_points == pytest.approx(-(backward.gain_points or 0.0))
    assert forward.low_points == pytest.approx(-(backward.high_points or 0.0))
    assert forward.p_value == backward.p_value
    assert forward.newly_solved == backward.newly_broken


def test_mcnemar_counts_only_the_tasks_that_changed() -> None:
    assert exact_p_value(np.array([1.0] * 8 + [0.0] * 100)) == pytest.approx(2 / 2**8)
    assert exact_p_value(np.array([1.0, -1.0])) == 1.0


def test_more_tasks_are_needed_for_smaller_gains() -> None:
    result = compared([False] * 28 + [True] * 2, [False] * 26 + [True] * 4)
    needed = [required_tasks(result, points) for points in (30.0, 10.0, 2.0)]
    assert needed == sorted(needed)
    assert needed[0] < 60
    assert needed[2] > 500
    with pytest.raises(ValueError, match="effect of 0 points"):
        required_tasks(result, 0.0)


def test_the_required_number_of_tasks_has_the_power_it_promises() -> None:
    pilot = compared([i % 3 == 0 for i in range(60)], [i % 3 == 0 or i % 5 == 0 for i in range(60)])
    assert pilot.gain_points is not None
    needed = required_tasks(pilot, pilot.gain_points, power=0.8)
    generator = np.random.default_rng(1)
    p = pilot.gain_points / 100
    wins = sum(exact_p_value(generator.choice([0.0, 1.0], p=[1 - p, p], size=needed)) <= 0.05 for _ in range(300))
    assert wins / 300 >= 0.75


def test_a_pass_rate_has_an_interval_even_at_zero() -> None:
    interval = rate_interval(report("old", {(f"t{i}", 0): False for i in range(12)}))
    assert interval is not None
    assert interval[0] == 0.0
    assert interval[1] == pytest.approx(binomtest(0, 12).proportion_ci(method="wilson").high)
    assert rate_interval(report("old", {("t", 0): None})) is None
    assert math.isfinite(interval[1])

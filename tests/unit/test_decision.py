from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.comparison import Comparison, compare
from pipelines.evaluation.report import EvaluationReport, TaskOutcome
from pipelines.promotion.decision import Decision, Evidence, Outcome, decide
from pipelines.promotion.note import to_markdown
from pipelines.promotion.policy import PromotionPolicy
from pipelines.rewards.model import FailureReason

POLICY = PromotionPolicy()


def report(benchmark: str, model: str, passed: list[bool | None]) -> EvaluationReport:
    outcomes = tuple(
        TaskOutcome(f"{benchmark}-{i}", 0, ok, None if ok is None else float(ok), FailureReason.SERVER if ok is None else None)
        for i, ok in enumerate(passed)
    )
    return EvaluationReport(benchmark, model, f"digest-{model}", outcomes, 1.0)


def compared(benchmark: str, champion: list[bool | None], candidate: list[bool | None]) -> Comparison:
    return compare(report(benchmark, "old", champion), report(benchmark, "new", candidate), resamples=2000)


def passes(count: int, of: int) -> list[bool | None]:
    return [i < count for i in range(of)]


SWEBENCH = compared("swebench-tiny", passes(1, 12), passes(1, 12))
GOOD = Evidence(
    holdout=compared("holdout", passes(10, 60), passes(45, 60)),
    regression=None,
    num_regression_tasks=0,
    swebench=SWEBENCH,
    leaks=(),
    tampering=(),
)


def failing(decision: Decision) -> set[str]:
    return {reason.check for reason in decision.reasons if not reason.passed}


def test_a_clear_gain_with_nothing_against_it_is_promoted() -> None:
    decision = decide(GOOD, POLICY)
    assert decision.verdict is Outcome.PROMOTE
    assert all(reason.passed for reason in decision.reasons)
    assert decision.additional_tasks is None


def test_an_equal_candidate_is_held() -> None:
    decision = decide(replace(GOOD, holdout=compared("holdout", passes(30, 60), passes(30, 60))), POLICY)
    assert decision.verdict is Outcome.HOLD
    assert failing(decision) == {"hold-out gain"}
    assert decision.additional_tasks is not None
    assert decision.additional_tasks > 60


def test_a_damaged_candidate_is_rejected() -> None:
    decision = decide(replace(GOOD, holdout=compared("holdout", passes(45, 60), passes(5, 60))), POLICY)
    assert decision.verdict is Outcome.REJECT
    assert failing(decision) == {"hold-out gain"}


def test_a_gain_that_could_be_chance_is_held_and_says_how_many_more_tasks_would_decide() -> None:
    decision = decide(replace(GOOD, holdout=compared("holdout", passes(10, 60), passes(13, 60))), POLICY)
    assert decision.verdict is Outcome.HOLD
    assert decision.additional_tasks is not None
    assert f"{decision.additional_tasks} more tasks would decide a gain of 5.0 points" in to_markdown(decision, GOOD)


def test_three_tasks_that_all_got_better_are_not_evidence_though_their_bootstrap_is_certain() -> None:
    holdout = compared("holdout", passes(0, 3), passes(3, 3))
    assert holdout.low_points == 100.0
    decision = decide(replace(GOOD, holdout=holdout), replace_policy(min_holdout_tasks=2))
    assert decision.verdict is Outcome.HOLD


def replace_policy(**changes: float) -> PromotionPolicy:
    return PromotionPolicy.model_validate(POLICY.model_dump() | changes)


def test_a_significant_gain_below_the_minimum_is_held() -> None:
    decision = decide(GOOD, replace_policy(min_gain_points=80.0))
    assert decision.verdict is Outcome.HOLD
    assert failing(decision) == {"hold-out gain"}


def test_the_champions_own_weights_are_never_promoted() -> None:
    same = replace(GOOD.holdout, candidate_digest=GOOD.holdout.champion_digest)
    assert failing(decide(replace(GOOD, holdout=same), POLICY)) == {"different weights"}


def test_breaking_one_fixed_incident_rejects() -> None:
    regression = compared("regression", passes(9, 9), passes(8, 9))
    decision = decide(replace(GOOD, regression=regression, num_regression_tasks=9), POLICY)
    assert decision.verdict is Outcome.REJECT
    assert "breaks 1 of 9: regression-8" in to_markdown(decision, GOOD)


def test_a_regression_suite_that_was_not_run_or_not_finished_holds() -> None:
    assert failing(decide(replace(GOOD, num_regression_tasks=9), POLICY)) == {"fixed incidents"}
    partial = compared("regression", [*passes(30, 30), True], [*passes(30, 30), None])
    decision = decide(replace(GOOD, regression=partial, num_regression_tasks=31), POLICY)
    assert decision.verdict is Outcome.HOLD
    assert failing(decision) == {"fixed incidents"}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [(0, 0, Outcome.PROMOTE), (1, 2, Outcome.PROMOTE), (3, 2, Outcome.HOLD), (12, 1, Outcome.REJECT)],
)
def test_swebench_must_not_be_worse_than_the_margin(before: int, after: int, verdict: Outcome) -> None:
    swebench = compared("swebench-tiny", passes(before, 12), passes(after, 12))
    assert decide(replace(GOOD, swebench=swebench), POLICY).verdict is verdict


def test_a_missing_swebench_comparison_holds_unless_the_policy_allows_it() -> None:
    assert decide(replace(GOOD, swebench=None), POLICY).verdict is Outcome.HOLD
    assert decide(replace(GOOD, swebench=None), replace_policy(require_swebench=False)).verdict is Outcome.PROMOTE


def test_too_many_infrastructure_failures_hold_even_a_great_gain() -> None:
    holdout = compared("holdout", [*passes(0, 60), *passes(0, 10)], [*passes(50, 60), *([None] * 10)])
    assert failing(decide(replace(GOOD, holdout=holdout), POLICY)) == {"infrastructure on holdout"}


def test_cost_has_a_ceiling_only_when_set_and_unknown_cost_does_not_pass_it() -> None:
    capped = replace_policy(max_cost_per_solved_usd=0.01)
    assert decide(replace(GOOD, cost_per_solved_usd=0.002), capped).verdict is Outcome.PROMOTE
    assert decide(replace(GOOD, cost_per_solved_usd=0.02), capped).verdict is Outcome.REJECT
    assert decide(GOOD, capped).verdict is Outcome.HOLD


def test_leaks_and_tampering_reject_and_not_looking_holds() -> None:
    found = ("tests/conftest.py edited",)
    for evidence in (replace(GOOD, leaks=found), replace(GOOD, tampering=found)):
        assert decide(evidence, POLICY).verdict is Outcome.REJECT
    for evidence in (replace(GOOD, leaks=None), replace(GOOD, tampering=None)):
        assert decide(evidence, POLICY).verdict is Outcome.HOLD


def test_no_scored_pair_is_held_without_a_traceback() -> None:
    nothing = compared("holdout", [None, None], [True, True])
    decision = decide(replace(GOOD, holdout=nothing), POLICY)
    assert decision.verdict is Outcome.HOLD
    assert "no scored pair" in to_markdown(decision, replace(GOOD, holdout=nothing))


def test_the_note_says_the_verdict_first_and_every_check() -> None:
    decision = decide(GOOD, POLICY)
    note = to_markdown(decision, GOOD, facts=[("cost", "0.0124 USD")])
    assert note.startswith("**Promote**: 16.7% -> 75.0%, +58.3 points (95% interval ")
    assert "- cost: 0.0124 USD" in note
    assert all(f"| {reason.check} | passed |" in note for reason in decision.reasons)
    rejected = decide(replace(GOOD, leaks=("key | in row 3",)), POLICY)
    assert to_markdown(rejected, GOOD).startswith("**Reject**: leaks: 1 found")
    assert "key \\| in row 3" in to_markdown(rejected, GOOD)


@given(st.lists(st.sampled_from([(a, b) for a in (True, False, None) for b in (True, False, None)]), min_size=1, max_size=80))
def test_nothing_is_promoted_unless_the_whole_interval_is_above_zero(pairs: list[tuple[bool | None, bool | None]]) -> None:
    holdout = compared("holdout", [a for a, _ in pairs], [b for _, b in pairs])
    decision = decide(replace(GOOD, holdout=holdout), POLICY)
    if decision.verdict is Outcome.PROMOTE:
        assert holdout.low_points is not None
        assert holdout.gain_points is not None
        assert holdout.low_points > 0
        assert holdout.gain_points >= POLICY.min_gain_points
        assert all(reason.passed for reason in decision.reasons)
    else:
        assert failing(decision)
    assert to_markdown(decision, replace(GOOD, holdout=holdout)).startswith("**")

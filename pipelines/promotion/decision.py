"""The decision: promote, hold or reject, with a reason for every check, passed or not.

Owns the rules that turn evidence into a verdict, and their wording. Worse, leaking, tampering or breaking a fixed incident is
`reject`; not enough evidence is `hold`, and says what would be enough. It refuses to move anything.
"""

from dataclasses import dataclass
from enum import StrEnum

from pipelines.evaluation.comparison import Comparison, required_tasks
from pipelines.promotion.policy import PromotionPolicy


class Outcome(StrEnum):
    PROMOTE = "promote"
    HOLD = "hold"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All a decision may look at."""

    holdout: Comparison
    regression: Comparison | None
    """None when there was nothing to compare, or it was not run; `num_regression_tasks` tells which."""
    num_regression_tasks: int
    """Size of the regression suite."""
    swebench: Comparison | None
    leaks: tuple[str, ...] | None
    """What a scan for secrets and for benchmark material in the training data found; None: not scanned."""
    tampering: tuple[str, ...] | None
    """Signs that an answer meddled with its own grading; None: not looked for."""
    cost_per_solved_usd: float | None = None
    """Serving cost of the candidate per solved hold-out task; None is unknown."""


@dataclass(frozen=True, slots=True)
class Reason:
    check: str
    passed: bool
    detail: str
    verdict: Outcome
    """What this check alone would decide."""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Outcome
    reasons: tuple[Reason, ...]
    """One for every check, in order."""
    additional_tasks: int | None = None
    """Of a hold for lack of evidence: how many more hold-out tasks would decide it."""


def decide(evidence: Evidence, policy: PromotionPolicy) -> Decision:
    """Reject if any check rejects, else hold if any holds, else promote."""
    reasons = (
        _check_weights(evidence.holdout),
        _check_sample(evidence.holdout, policy),
        _check_gain(evidence.holdout, policy),
        _check_regression(evidence, policy),
        _check_swebench(evidence.swebench, policy),
        *(_check_infrastructure(c, policy) for c in (evidence.holdout, evidence.regression, evidence.swebench) if c is not None),
        _check_cost(evidence.cost_per_solved_usd, policy),
        _check_findings("leaks", evidence.leaks),
        _check_findings("tampering", evidence.tampering),
    )
    verdicts = {reason.verdict for reason in reasons}
    verdict = next((v for v in (Outcome.REJECT, Outcome.HOLD) if v in verdicts), Outcome.PROMOTE)
    undecided = any(not r.passed and r.verdict is Outcome.HOLD and r.check in ("hold-out gain", "hold-out size") for r in reasons)
    more = additional_tasks(evidence.holdout, policy) if verdict is Outcome.HOLD and undecided else None
    return Decision(verdict, reasons, more)


def additional_tasks(holdout: Comparison, policy: PromotionPolicy) -> int:
    """How many more hold-out tasks would decide: for the gain seen if it is worth having, else for the smallest that is."""
    gain = holdout.gain_points or 0.0
    effect = gain if gain >= policy.min_gain_points else policy.min_gain_points
    needed = max(required_tasks(holdout, effect, power=policy.power), policy.min_holdout_tasks)
    # At least one: with none the evidence stays as undecided as it is.
    return max(needed - holdout.num_tasks, 1)


def describe_gain(comparison: Comparison) -> str:
    """Rates, gain and interval in one line."""
    c = comparison
    if c.gain_points is None or c.champion_rate is None or c.candidate_rate is None:
        return f"no scored pair on {c.benchmark}"
    return (
        f"{c.champion_rate:.1%} -> {c.candidate_rate:.1%}, {c.gain_points:+.1f} points "
        f"({c.confidence:.0%} interval {c.low_points:+.1f} to {c.high_points:+.1f}, p = {c.p_value:.2g}, "
        f"{c.num_tasks} tasks, {c.num_pairs} pairs)"
    )


def is_significant(comparison: Comparison) -> bool:
    """The interval excludes zero and the exact test agrees; with few tasks the interval alone is too sure of itself."""
    c = comparison
    if c.low_points is None or c.high_points is None or c.p_value is None:
        return False
    return (c.low_points > 0.0 or c.high_points < 0.0) and c.p_value <= 1.0 - c.confidence


def _check_weights(holdout: Comparison) -> Reason:
    if holdout.champion_digest == holdout.candidate_digest:
        return _failed(
            "different weights", f"candidate has the champion's weights ({holdout.candidate_digest[:12]})", Outcome.HOLD
        )
    return _passed("different weights", f"{holdout.champion_digest[:12]} -> {holdout.candidate_digest[:12]}")


def _check_sample(holdout: Comparison, policy: PromotionPolicy) -> Reason:
    detail = f"{holdout.num_tasks} scored tasks, at least {policy.min_holdout_tasks} needed"
    if holdout.num_tasks < policy.min_holdout_tasks:
        return _failed("hold-out size", detail, Outcome.HOLD)
    return _passed("hold-out size", detail)


def _check_gain(holdout: Comparison, policy: PromotionPolicy) -> Reason:
    check, detail = "hold-out gain", describe_gain(holdout)
    gain = holdout.gain_points
    if gain is None or not is_significant(holdout):
        more = additional_tasks(holdout, policy)
        tested = max(gain or 0.0, policy.min_gain_points)
        return _failed(
            check, f"{detail}: not significant; {more} more tasks would decide a gain of {tested:.1f} points", Outcome.HOLD
        )
    if gain < 0.0:
        return _failed(check, f"{detail}: worse", Outcome.REJECT)
    if gain < policy.min_gain_points:
        return _failed(check, f"{detail}: below the {policy.min_gain_points:.1f} points worth a promotion", Outcome.HOLD)
    return _passed(check, detail)


def _check_regression(evidence: Evidence, policy: PromotionPolicy) -> Reason:
    check, comparison = "fixed incidents", evidence.regression
    if comparison is None:
        if evidence.num_regression_tasks == 0:
            return _passed(check, "no incident has been fixed by an earlier cycle yet")
        return _failed(check, f"the {evidence.num_regression_tasks} tasks of the suite were not run", Outcome.HOLD)
    broken = comparison.newly_broken
    if len(broken) > policy.max_broken_regressions:
        return _failed(check, f"breaks {len(broken)} of {comparison.num_tasks}: {_listed(broken)}", Outcome.REJECT)
    unproven = evidence.num_regression_tasks - comparison.num_tasks
    if unproven > 0:
        return _failed(check, f"{unproven} of {evidence.num_regression_tasks} tasks have no verdict", Outcome.HOLD)
    return _passed(check, f"breaks {len(broken)} of {comparison.num_tasks}")


def _check_swebench(comparison: Comparison | None, policy: PromotionPolicy) -> Reason:
    check = "SWE-bench not worse"
    if comparison is None:
        if policy.require_swebench:
            return _failed(check, "not measured", Outcome.HOLD)
        return _passed(check, "not measured, and the policy does not ask for it")
    detail = f"{comparison.benchmark}: {describe_gain(comparison)}; margin {policy.swebench_margin_points:.1f} points"
    if comparison.low_points is None or comparison.high_points is None:
        return _failed(check, detail, Outcome.HOLD)
    if comparison.high_points < -policy.swebench_margin_points:
        return _failed(check, f"{detail}: worse", Outcome.REJECT)
    if comparison.low_points < -policy.swebench_margin_points:
        return _failed(check, f"{detail}: a loss beyond the margin cannot be ruled out", Outcome.HOLD)
    return _passed(check, detail)


def _check_infrastructure(comparison: Comparison, policy: PromotionPolicy) -> Reason:
    check = f"infrastructure on {comparison.benchmark}"
    total = comparison.num_excluded + comparison.num_pairs
    detail = (
        f"{comparison.num_excluded} of {total} pairs without a verdict, at most {policy.max_infrastructure_share:.0%} allowed"
    )
    if comparison.excluded_share > policy.max_infrastructure_share:
        return _failed(check, detail, Outcome.HOLD)
    return _passed(check, detail)


def _check_cost(cost_usd: float | None, policy: PromotionPolicy) -> Reason:
    check, ceiling = "cost per solved task", policy.max_cost_per_solved_usd
    known = "unknown" if cost_usd is None else f"{cost_usd:.3g} USD"
    if ceiling is None:
        return _passed(check, f"{known}, no ceiling set")
    if cost_usd is None:
        return _failed(check, f"unknown, ceiling {ceiling:.3g} USD", Outcome.HOLD)
    if cost_usd > ceiling:
        return _failed(check, f"{known}, ceiling {ceiling:.3g} USD", Outcome.REJECT)
    return _passed(check, f"{known}, ceiling {ceiling:.3g} USD")


def _check_findings(check: str, findings: tuple[str, ...] | None) -> Reason:
    if findings is None:
        return _failed(check, "not checked", Outcome.HOLD)
    if findings:
        return _failed(check, f"{len(findings)} found: {_listed(findings)}", Outcome.REJECT)
    return _passed(check, "none found")


def _passed(check: str, detail: str) -> Reason:
    return Reason(check, True, detail, Outcome.PROMOTE)


def _failed(check: str, detail: str, verdict: Outcome) -> Reason:
    return Reason(check, False, detail, verdict)


def _listed(items: tuple[str, ...], *, limit: int = 5) -> str:
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"

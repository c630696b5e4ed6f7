"""Comparison: two models on the same tasks with the same seeds, pair by pair.

Owns the paired statistics: gain with a bootstrap interval that resamples tasks (all seeds of a task stay together), an exact
test, and which tasks were newly solved or broken. A pair in which either side has an infrastructure failure says nothing about
the models: it is left out and counted. It refuses to judge; `pipelines.promotion` does.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, nbinom, norm

from pipelines.errors import InputError
from pipelines.evaluation.report import EvaluationReport, TaskOutcome

CHUNK_CELLS = 4_000_000
"""Bootstrap draws are made in chunks of about this many numbers (32 MB)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rates in [0, 1], gains in percentage points (candidate minus champion)."""

    benchmark: str
    champion: str
    candidate: str
    champion_digest: str
    candidate_digest: str
    num_tasks: int
    """Tasks with at least one scored pair."""
    num_pairs: int
    """Scored pairs of (task, seed)."""
    num_excluded: int
    """Pairs left out because the infrastructure failed on either side."""
    champion_rate: float | None
    """Over the scored pairs; None when there is none. So are all the numbers below."""
    candidate_rate: float | None
    gain_points: float | None
    low_points: float | None
    """Lower end of the two-sided interval."""
    high_points: float | None
    confidence: float
    p_value: float | None
    """Two-sided exact McNemar test over tasks: did as many get better as worse? Sound where a bootstrap of few tasks is not."""
    newly_solved: tuple[str, ...]
    """Ids of tasks the candidate passes with most seeds and the champion does not."""
    newly_broken: tuple[str, ...]
    task_variance: float
    """Variance of the per-task gain (in [-1, 1]) across tasks; how many tasks a decision needs follows from it."""

    @property
    def excluded_share(self) -> float:
        """Share of the pairs without a verdict, in [0, 1]."""
        total = self.num_pairs + self.num_excluded
        return self.num_excluded / total if total else 0.0


def compare(
    champion: EvaluationReport, candidate: EvaluationReport, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """Compare two reports of one benchmark; raises InputError unless both hold exactly the same tasks and seeds."""
    if champion.benchmark != candidate.benchmark:
        raise InputError(
            f"champion was measured on {champion.benchmark!r}, candidate on {candidate.benchmark!r}; evaluate both on one"
        )
    pairs = _pair(champion, candidate)
    scored = [(a, b) for a, b in pairs if a.passed is not None and b.passed is not None]
    by_task: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for a, b in scored:
        by_task[a.task_id].append((bool(a.passed), bool(b.passed)))

    gains_T = np.array([sum(b - a for a, b in task) for task in by_task.values()], dtype=np.float64)
    sizes_T = np.array([len(task) for task in by_task.values()], dtype=np.float64)
    low, high = bootstrap_interval(gains_T, sizes_T, confidence=confidence, resamples=resamples, seed=seed)
    num_scored = len(scored)
    means_T = gains_T / sizes_T if num_scored else gains_T
    return Comparison(
        benchmark=champion.benchmark,
        champion=champion.model,
        candidate=candidate.model,
        champion_digest=champion.model_digest,
        candidate_digest=candidate.model_digest,
        num_tasks=len(by_task),
        num_pairs=num_scored,
        num_excluded=len(pairs) - num_scored,
        champion_rate=sum(bool(a.passed) for a, _ in scored) / num_scored if num_scored else None,
        candidate_rate=sum(bool(b.passed) for _, b in scored) / num_scored if num_scored else None,
        gain_points=100.0 * float(gains_T.sum() / sizes_T.sum()) if num_scored else None,
        low_points=low,
        high_points=high,
        confidence=confidence,
        p_value=exact_p_value(gains_T) if num_scored else None,
        newly_solved=tuple(sorted(t for t, task in by_task.items() if _mostly(task, 1) and not _mostly(task, 0))),
        newly_broken=tuple(sorted(t for t, task in by_task.items() if _mostly(task, 0) and not _mostly(task, 1))),
        task_variance=float(means_T.var(ddof=1)) if len(by_task) > 1 else 0.0,
    )


def bootstrap_interval(
    gains_T: NDArray[np.float64], sizes_T: NDArray[np.float64], *, confidence: float, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """Percentile interval of sum(gains)/sum(sizes) in points, resampling tasks; (None, None) without tasks.

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), ch. 13. T: tasks.
    """
    num_tasks = len(gains_T)
    if num_tasks == 0:
        return None, None
    generator = np.random.default_rng(seed)
    chunk = max(1, CHUNK_CELLS // num_tasks)
    means: list[NDArray[np.float64]] = []
    for start in range(0, resamples, chunk):
        picks_RT = generator.integers(0, num_tasks, size=(min(chunk, resamples - start), num_tasks))
        means.append(gains_T[picks_RT].sum(axis=1) / sizes_T[picks_RT].sum(axis=1))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(np.concatenate(means), [tail, 1.0 - tail])
    return 100.0 * float(low), 100.0 * float(high)


def rate_interval(report: EvaluationReport, *, confidence: float = 0.95) -> tuple[float, float] | None:
    """Wilson interval of a report's pass rate, in [0, 1], for plots; None when nothing was scored.

    Over tasks, not seeds, which are not independent: a report of several seeds is as uncertain as its number of tasks.
    """
    scored: dict[str, list[bool]] = defaultdict(list)
    for outcome in report.outcomes:
        if outcome.passed is not None:
            scored[outcome.task_id].append(outcome.passed)
    if not scored or report.pass_rate is None:
        return None
    # Wilson, JASA 22 (1927).
    n, p, z = len(scored), report.pass_rate, float(norm.ppf(0.5 + confidence / 2.0))
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    # At 0 and 1 the ends are exact; rounding would miss them.
    return (0.0 if p == 0.0 else centre - half), (1.0 if p == 1.0 else centre + half)


def exact_p_value(gains_T: NDArray[np.float64]) -> float:
    """Exact McNemar test: of the tasks that changed, how likely is a division this uneven by chance? 1.0 when none changed."""
    better, worse = int((gains_T > 0).sum()), int((gains_T < 0).sum())
    if better + worse == 0:
        return 1.0
    return float(binomtest(better, better + worse, 0.5).pvalue)


def required_tasks(comparison: Comparison, effect_points: float, *, power: float = 0.8) -> int:
    """How many tasks in all would tell a gain of `effect_points` from none at the comparison's confidence, with this power.

    Normal approximation for a paired mean: n = (z_(1-a/2) + z_power)^2 var / effect^2, where var is the observed variance, but
    at least the smallest that a gain of that size can have. Raises ValueError when the effect is zero.
    """
    effect = abs(effect_points) / 100.0
    if effect == 0.0:
        raise ValueError("effect of 0 points: no number of tasks can show it; give the smallest gain that matters")
    variance = max(comparison.task_variance, effect - effect**2)
    z = float(norm.ppf(0.5 + comparison.confidence / 2.0) + norm.ppf(power))
    # The exact test needs this many changed tasks even if all got better; n tasks hold that many with the power asked.
    num_changed = math.ceil(math.log2(2.0 / (1.0 - comparison.confidence)))
    least = num_changed + int(nbinom.ppf(power, num_changed, min(effect, 1.0)))
    return max(math.ceil(z**2 * variance / effect**2), least)


def _pair(champion: EvaluationReport, candidate: EvaluationReport) -> list[tuple[TaskOutcome, TaskOutcome]]:
    sides = [_by_key(champion), _by_key(candidate)]
    missing = sorted(sides[0].keys() ^ sides[1].keys())
    if missing:
        task_id, seed = missing[0]
        side = "candidate" if missing[0] in sides[0] else "champion"
        raise InputError(
            f"{len(missing)} outcomes of {champion.benchmark} have no partner: the first is task {task_id} seed {seed}, which "
            f"the {side} lacks; evaluate both models on the same tasks and seeds"
        )
    return [(sides[0][key], sides[1][key]) for key in sorted(sides[0])]


def _by_key(report: EvaluationReport) -> dict[tuple[str, int], TaskOutcome]:
    outcomes = {(o.task_id, o.seed): o for o in report.outcomes}
    if len(outcomes) != len(report.outcomes):
        raise InputError(f"report of {report.model} on {report.benchmark} has the same task and seed twice; evaluate again")
    return outcomes


def _mostly(pairs: list[tuple[bool, bool]], side: int) -> bool:
    return sum(pair[side] for pair in pairs) * 2 > len(pairs)

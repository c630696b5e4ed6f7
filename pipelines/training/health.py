"""What finished training must look like: typed findings, each with its number and its limit.

Owns the judgement; refuses to measure (`infra.trainers` does).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """What one GRPO step's rollouts looked like."""

    step: int
    """1 is the first."""
    mean_reward: float | None
    """Over rollouts with a verdict; None when there was none."""
    num_rollouts: int
    num_masked: int
    """Rollouts without a verdict because the infrastructure failed."""
    num_truncated: int
    num_groups: int
    num_zero_variance: int
    """Groups whose rollouts all scored the same."""
    output_tokens: int
    input_tokens: int
    logprob_gap: float | None
    """Mean |log p(trainer) - log p(rollout server)| over sampled tokens, nats."""
    version: str
    """Weights the rollouts were drawn from, by content."""


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What a training run did, over all attempts."""

    sft_steps: int
    sft_losses: tuple[float, ...]
    grpo_steps: int
    rollouts: tuple[RolloutStep, ...]
    grpo_losses: tuple[float, ...] = ()

    def share(self, part: str) -> float:
        """`masked` or `truncated` share of rollouts, `zero_variance` share of groups; 0 without rollouts."""
        whole = "num_groups" if part == "zero_variance" else "num_rollouts"
        total = sum(getattr(step, whole) for step in self.rollouts)
        return sum(getattr(step, f"num_{part}") for step in self.rollouts) / total if total else 0.0

    @property
    def logprob_gap(self) -> float | None:
        """Largest gap of any step; None when never measured."""
        return max((s.logprob_gap for s in self.rollouts if s.logprob_gap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a training run."""

    check: str
    detail: str
    """Value seen, limit, next step."""


def check_training(facts: TrainingFacts, recipe: Recipe) -> list[Finding]:
    """Everything wrong with a finished run; empty when it is sound."""
    limits = recipe.health
    findings = [
        *_check_steps(facts, recipe),
        *_check_losses("sft", facts.sft_losses),
        *_check_losses("grpo", facts.grpo_losses),
    ]
    shares = {
        "masked": (limits.max_masked_share, "the rollout server or a verifier failed; see its log"),
        "truncated": (limits.max_truncated_share, "raise grpo.max_completion_tokens"),
        "zero_variance": (limits.max_zero_variance_share, "the tasks are all too easy or too hard for this model"),
    }
    for part, (limit, advice) in shares.items():
        if facts.share(part) > limit:
            findings.append(Finding(f"{part}_share", f"{facts.share(part):.2f}, at most {limit:.2f}: {advice}"))
    gap = facts.logprob_gap
    if gap is not None and not gap <= limits.max_logprob_gap:
        advice = "rollouts came from other weights than the trainer's"
        findings.append(Finding("logprob_gap", f"{gap:.3f} nats, at most {limits.max_logprob_gap:.3f}: {advice}"))
    return findings


def _check_steps(facts: TrainingFacts, recipe: Recipe) -> list[Finding]:
    done = {"sft": (facts.sft_steps, recipe.sft.steps), "grpo": (facts.grpo_steps, recipe.grpo.steps)}
    return [Finding(f"{phase}_steps", f"{have} done, {asked} asked") for phase, (have, asked) in done.items() if have != asked]


def _check_losses(phase: str, losses: Sequence[float]) -> list[Finding]:
    bad = [i for i, loss in enumerate(losses, start=1) if not math.isfinite(loss)]
    return [Finding(f"{phase}_loss", f"not finite at step {bad[0]}; lower {phase}.learning_rate")] if bad else []

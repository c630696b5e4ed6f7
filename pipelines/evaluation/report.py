"""Evaluation reports: the outcome of one model on one benchmark, per task and seed."""

from dataclasses import dataclass

from pipelines.rewards.model import FailureReason


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What one model did on one task with one seed: `passed`, or `failure` when the world failed."""

    task_id: str
    seed: int
    passed: bool | None
    score: float | None
    failure: FailureReason | None = None
    answer: str = ""
    """The answer in short form, for people."""
    evidence: str = ""
    tampered: bool = False
    """Whether the answer tried to meddle with its own grading."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    benchmark: str
    """holdout, regression, swebench-tiny, ..."""
    model: str
    """Content name of the model that was served."""
    model_digest: str
    outcomes: tuple[TaskOutcome, ...]
    wall_s: float

    @property
    def num_failures(self) -> int:
        """Outcomes without a verdict because the infrastructure failed."""
        return sum(o.failure is not None for o in self.outcomes)

    @property
    def pass_rate(self) -> float | None:
        """Share of scored outcomes that passed, in [0, 1]; None when nothing was scored."""
        scored = [o.passed for o in self.outcomes if o.passed is not None]
        return sum(scored) / len(scored) if scored else None

    @property
    def output_tokens(self) -> int:
        return sum(o.output_tokens or 0 for o in self.outcomes)

    @property
    def input_tokens(self) -> int:
        return sum(o.input_tokens or 0 for o in self.outcomes)

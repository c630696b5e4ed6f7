"""Reward tasks, verdicts and the other rows of a reward dataset.

Owns the words RewardTask, Verdict, SftRow, PreferencePair and RewardDataset. A verdict is a score or a typed infrastructure
failure, never both.
"""

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from pipelines.traces.model import Message, ToolSpec


class Split(StrEnum):
    TRAIN = "train"
    HOLDOUT = "holdout"
    REGRESSION = "regression"
    """Incidents fixed by an earlier cycle; they stay for ever and a candidate that breaks one is not promoted."""


@dataclass(frozen=True, slots=True)
class RewardTask:
    """A task whose answer a program can check."""

    id: str
    """Digest over kind, prompt, tools, verifier and its arguments: 16 hex digits."""
    kind: str
    """Module name in pipelines/rewards/synthesis."""
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    verifier: str
    """Module name in pipelines/rewards/verifiers, or package.module:attribute."""
    arguments: dict[str, JsonValue]
    """The verifier's Options, as JSON."""
    split: Split
    group: str
    """Tasks of one group (near-duplicate wording, conversation, user, repository) are never divided between splits."""
    cluster: str
    provenance: tuple[str, ...]
    """Ids of the traces it was made from."""
    occurred_at: datetime | None = None
    environment: str | None = None
    """Key of the sandbox environment, for kinds that run code."""


@dataclass(frozen=True, slots=True)
class SftRow:
    """A prompt with the answer that should have been given, and who said so."""

    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    answer: Message
    task_id: str
    source: str
    """Where the answer comes from: correction, recovered_run."""
    provenance: tuple[str, ...]


class FailureReason(StrEnum):
    """Why there is no score: the world failed, not the answer."""

    SANDBOX = "sandbox"
    SERVER = "server"
    TIMEOUT = "timeout"
    VERIFIER = "verifier"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one answer: `score` and `passed`, or `failure`; never both.

    Raises ValueError on construction when the two are mixed, or the score is not finite and in [0, 1].
    """

    score: float | None = None
    passed: bool | None = None
    failure: FailureReason | None = None
    evidence: str = ""
    """What was compared and seen, for a person."""
    components: dict[str, float] = field(default_factory=dict)
    """Parts of the score, each in [0, 1], for reward curves."""

    def __post_init__(self) -> None:
        if self.failure is not None:
            if self.score is not None or self.passed is not None:
                raise ValueError(f"verdict has failure {self.failure} and a score {self.score}; expected only one of them")
            return
        if self.score is None or self.passed is None:
            raise ValueError("verdict has neither a score with passed nor a failure; expected one of them")
        if not math.isfinite(self.score) or not 0.0 <= self.score <= 1.0:
            raise ValueError(f"verdict score {self.score}: expected a finite number in [0, 1]")


@dataclass(frozen=True, slots=True)
class RewardDataset:
    tasks: tuple[RewardTask, ...]
    sft_rows: tuple[SftRow, ...]

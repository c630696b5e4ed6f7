"""The promotion policy: what the evidence has to show. Part of the run config."""

from pydantic import BaseModel, ConfigDict, Field


class PromotionPolicy(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    min_gain_points: float = Field(2.0, gt=0.0)
    """Smallest gain on the hold-out worth a promotion, percentage points."""
    confidence: float = Field(0.95, gt=0.5, lt=1.0)
    """Of the paired interval and the exact test."""
    power: float = Field(0.8, gt=0.0, lt=1.0)
    """Used to say how many more tasks would decide a hold."""
    min_holdout_tasks: int = Field(30, ge=2)
    """Fewer scored hold-out tasks than this are not evidence."""
    max_broken_regressions: int = Field(0, ge=0)
    """How many incidents fixed by earlier cycles the candidate may break."""
    require_swebench: bool = True
    """Whether a missing SWE-bench comparison holds the candidate."""
    swebench_margin_points: float = Field(10.0, ge=0.0)
    """How much worse on SWE-bench the candidate may be: the lower end of the interval must stay above minus this."""
    max_infrastructure_share: float = Field(0.05, ge=0.0, lt=1.0)
    """Share of a benchmark's pairs that may be without a verdict because the infrastructure failed."""
    max_cost_per_solved_usd: float | None = Field(None, gt=0.0)
    """Ceiling on the candidate's serving cost per solved hold-out task, USD. None: no ceiling."""

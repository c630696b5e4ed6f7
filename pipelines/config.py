"""The run config: everything that changes a cycle's result, fingerprinted and recorded. Where things run is a setting.

One model per stage; a YAML file for `everloop run --config` has these names as keys. Unknown keys fail.
"""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.economics.prices import Price, core_hour, price_list
from pipelines.errors import ConfigError
from pipelines.promotion.policy import PromotionPolicy
from pipelines.rewards.synthesis import SynthesisOptions
from pipelines.training.recipe import Recipe


class IngestConfig(BaseModel):
    """What `ingest_traces` reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    experiments: tuple[str, ...] = ("gateway/support-agent",)
    """MLflow experiments, by name. One that does not exist yet counts as empty."""
    inbox: bool = True
    """Whether trace files in the lake's inbox/ are read too."""
    max_rejected_share: float = Field(0.5, ge=0, le=1)
    """Above this share of rejected records the stage fails: the source is broken, not a record."""


class RewardsConfig(BaseModel):
    """How `build_reward_dataset` makes tasks of edge cases."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    synthesis: SynthesisOptions = SynthesisOptions()
    holdout_share: float = Field(0.4, gt=0, lt=1)
    """Share of tasks held out for evaluation, the newest groups first."""
    near_duplicate_threshold: float = Field(0.8, gt=0, le=1)
    """Jaccard similarity of character shingles above which two requests count as the same wording."""
    min_train_tasks: int = Field(16, ge=1)
    """With fewer the cycle ends with "nothing to learn from"."""
    min_holdout_tasks: int = Field(8, ge=1)


class EvaluationConfig(BaseModel):
    """How `evaluate_candidate` compares candidate and champion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[int, ...] = Field((0,), min_length=1)
    """Sampling seeds; each task is answered once per seed by each model."""
    temperature: float = Field(0.0, ge=0)
    """0 is greedy decoding."""
    max_tokens: int = Field(64, ge=1)
    """Longest answer to a held-out task, tokens."""
    swebench_max_tokens: int = Field(160, ge=1)
    """Longest answer to a SWE-bench-format instance, tokens."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    resamples: int = Field(10_000, ge=1000)
    """Bootstrap resamples."""
    evaluate_warm_start: bool = True
    """Whether the model after SFT is evaluated too, to tell what RL added."""


class EconomicsConfig(BaseModel):
    """Prices that differ from the documented defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_core_hour_usd: float | None = Field(None, ge=0)
    """Price of one core for one hour, USD. None: the default of pipelines.economics.prices, with its source."""

    def prices(self) -> dict[str, Price]:
        """The price list with what this config overrides."""
        return price_list(() if self.cpu_core_hour_usd is None else (core_hour(self.cpu_core_hour_usd),))


class RunConfig(BaseModel):
    """One cycle's config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ingest: IngestConfig = IngestConfig()
    rewards: RewardsConfig = RewardsConfig()
    training: Recipe = Recipe()
    evaluation: EvaluationConfig = EvaluationConfig()
    promotion: PromotionPolicy = PromotionPolicy()
    economics: EconomicsConfig = EconomicsConfig()
    seed: int = Field(0, ge=0)
    """Seed of everything random in the cycle."""


def read_run_config(path: Path) -> RunConfig:
    """Read a YAML run config; raises ConfigError naming the first key that does not fit."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"run config {path}: cannot read it ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"run config {path}: not YAML ({error})") from error
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise ConfigError(f"run config {path}: {where}: {first['msg']}; got {first.get('input')!r}") from error

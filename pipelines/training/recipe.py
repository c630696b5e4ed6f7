"""The training recipe: method and hyperparameters, all of what makes a candidate from a dataset.

Owns defaults that suit a 135M model on two CPU cores. Refuses to know where training runs (`infra.trainers` does).
"""

from pydantic import BaseModel, ConfigDict, Field


class SftRecipe(BaseModel):
    """Supervised warm start on corrections: it teaches the format, and leaves RL room."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(14, ge=0)
    """Optimizer steps; 0 skips the phase."""
    batch_size: int = Field(8, ge=1)
    """Rows per step."""
    learning_rate: float = Field(2e-4, gt=0)
    warmup_steps: int = Field(2, ge=0)
    save_every: int = Field(10, ge=1)
    """Steps between checkpoints."""


class GrpoRecipe(BaseModel):
    """Group relative policy optimization (Shao et al. 2024, arXiv 2402.03300), without a KL term."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(14, ge=0)
    """Optimizer steps; 0 skips the phase."""
    prompts_per_step: int = Field(8, ge=1)
    group_size: int = Field(8, ge=2)
    """Rollouts of each prompt; their mean is the baseline."""
    learning_rate: float = Field(5e-5, gt=0)
    warmup_steps: int = Field(0, ge=0)
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of rollouts."""
    max_completion_tokens: int = Field(48, ge=1)
    save_every: int = Field(4, ge=1)
    """Steps between checkpoints."""


class HealthLimits(BaseModel):
    """Beyond these the stage fails instead of handing on a model trained on noise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_masked_share: float = Field(0.1, ge=0, le=1)
    """Rollouts without a verdict because the infrastructure failed."""
    max_truncated_share: float = Field(0.5, ge=0, le=1)
    """Rollouts cut at max_completion_tokens."""
    max_zero_variance_share: float = Field(0.9, ge=0, le=1)
    """Groups whose rollouts all scored the same, which teach nothing."""
    max_logprob_gap: float = Field(0.2, gt=0)
    """Mean absolute difference of token log-probabilities between trainer and rollout server, nats. A rollout server with
    other weights than the trainer's shows up here first."""


class Recipe(BaseModel):
    """SFT warm start, then GRPO."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sft: SftRecipe = SftRecipe()
    grpo: GrpoRecipe = GrpoRecipe()
    health: HealthLimits = HealthLimits()
    trainable_layers: int | None = Field(15, ge=1)
    """How many of the top transformer layers are trained; the rest and the embeddings are frozen. None trains all."""
    max_prompt_tokens: int = Field(512, ge=1)
    """Tasks with longer prompts are left out of training, and counted."""

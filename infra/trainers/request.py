"""What is asked of a training worker and what it answers: plain records that cross the process boundary as JSON."""

from dataclasses import dataclass

from pipelines.training.health import TrainingFacts
from pipelines.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    base_model: str
    """Folder of the model to start from, Hugging Face layout."""
    dataset: str
    """Folder with tasks.jsonl (RewardTask) and sft.jsonl (SftRow), training split only."""
    work_dir: str
    """Folder of checkpoints and results; the same folder again resumes."""
    recipe: Recipe
    rollout_url: str
    """OpenAI API of a replica of role rollout. Unused when recipe.grpo.steps is 0."""
    rollout_model: str
    """Model name that replica serves."""
    seed: int = 0
    mlflow_url: str = ""
    """Where curves are logged; empty logs none."""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    phase: str
    """sft or grpo."""
    step: int
    of: int
    metrics: dict[str, float]
    message: str = ""
    """A line for people instead of a step, such as where training resumed."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    warm_start_dir: str
    """Weights after SFT, before GRPO."""
    model_dir: str
    """Final weights: safetensors and tokenizer, as vLLM loads them."""
    facts: TrainingFacts
    num_tasks: int
    num_sft_rows: int
    num_too_long: int
    """Tasks left out because their prompt is longer than recipe.max_prompt_tokens."""
    sft_wall_s: float
    grpo_wall_s: float
    resumed_from: dict[str, int]
    """Phase to the step its last attempt started at; empty when nothing was resumed."""

"""GRPO phase: TRL's GRPOTrainer with rollouts from the rollout replica and rewards from the verifiers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from infra.trainers.checkpoints import MarkComplete
from infra.trainers.curves import Curves
from infra.trainers.output_head import score_answers_only
from infra.trainers.rollouts import RolloutEngine, score_reward
from pipelines.training.recipe import GrpoRecipe


def run_grpo(
    model: Any,
    tokenizer: Any,
    engine: RolloutEngine,
    *,
    recipe: GrpoRecipe,
    seed: int,
    folder: Path,
    resume: Path | None,
    curves: Curves,
) -> None:
    """Train in place for `recipe.steps` optimizer steps, from a checkpoint when one is given."""
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=recipe.steps,
        # One group at a time bounds memory.
        per_device_train_batch_size=recipe.group_size,
        gradient_accumulation_steps=recipe.prompts_per_step,
        num_generations=recipe.group_size,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        lr_scheduler_type="constant_with_warmup",
        temperature=recipe.temperature,
        max_completion_length=recipe.max_completion_tokens,
        beta=0.0,
        save_steps=recipe.save_every,
        save_total_limit=2,
        logging_steps=1,
        # The filter would log the mean of earlier losses instead of NaN.
        logging_nan_inf_filter=False,
        seed=seed,
        data_seed=seed,
        bf16=True,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        gradient_checkpointing=False,
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        reward_funcs=[score_reward],
        rollout_func=engine.generate,
        # The prompt column carries task ids; the engine renders the task at the server.
        train_dataset=Dataset.from_dict({"prompt": sorted(engine.tasks)}),
        processing_class=tokenizer,
        callbacks=[curves, MarkComplete()],
    )
    score_answers_only(model, recipe.temperature)
    trainer.remove_callback(PrinterCallback)
    with groups_kept_together():
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)


@contextmanager
def groups_kept_together() -> Iterator[None]:
    """Each micro-batch is one group, whose prompt is then computed once (`infra.trainers.shared_prefix`).

    TRL 1.16 shuffles the rollouts of a step before it cuts them into micro-batches. All of them make one optimizer step, so their
    order changes nothing but rounding.
    """
    shuffle = grpo_trainer.shuffle_sequence_dict
    grpo_trainer.shuffle_sequence_dict = lambda seq_dict: seq_dict
    try:
        yield
    finally:
        grpo_trainer.shuffle_sequence_dict = shuffle

"""SFT phase: TRL's SFTTrainer on the corrections, loss on the answer only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from infra.inference.client import message_to_openai, tool_to_openai
from infra.trainers.checkpoints import MarkComplete
from infra.trainers.curves import Curves
from infra.trainers.output_head import score_answers_only
from pipelines.rewards.model import SftRow
from pipelines.training.recipe import SftRecipe


def run_sft(
    model: Any,
    tokenizer: Any,
    rows: Sequence[SftRow],
    *,
    recipe: SftRecipe,
    seed: int,
    folder: Path,
    resume: Path | None,
    curves: Curves,
) -> None:
    """Train in place for `recipe.steps` optimizer steps, from a checkpoint when one is given."""
    config = SFTConfig(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        lr_scheduler_type="constant_with_warmup",
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
        packing=False,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([render_row(row, tokenizer) for row in rows]),
        processing_class=tokenizer,
        callbacks=[curves, MarkComplete()],
    )
    score_answers_only(model)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)


def render_row(row: SftRow, tokenizer: Any) -> dict[str, str]:
    """Prompt and completion as text, split exactly where generation starts. The Trainer adds the end-of-turn token itself."""
    tools = [tool_to_openai(t) for t in row.tools]
    messages = [message_to_openai(m) for m in row.prompt]
    prompt = tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*messages, message_to_openai(row.answer)], tools=tools or None, tokenize=False)
    completion = whole.removeprefix(prompt).rstrip("\n").removesuffix(tokenizer.eos_token)
    return {"prompt": prompt, "completion": completion}

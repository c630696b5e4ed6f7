"""The training worker: `python -m infra.trainers.worker REQUEST.json` runs SFT then GRPO and writes `result.json`.

Owns the order of phases and where each resumes. A finished phase leaves a model folder and is never run again.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from infra.trainers.request import TrainingProgress, TrainingRequest, TrainingResult
from pipelines.artifacts import from_json, to_json
from pipelines.errors import EverloopError, TrainingError
from pipelines.rewards.model import RewardTask, SftRow
from pipelines.training.health import RolloutStep, TrainingFacts, check_training

RESULT_NAME = "result.json"


@dataclass(slots=True)
class Worker:
    request: TrainingRequest
    log: Callable[[int, dict[str, float]], None]
    resumed_from: dict[str, int] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return Path(self.request.work_dir)

    def run(self) -> TrainingResult:
        from infra.trainers.policy import load_tokenizer

        base = Path(self.request.base_model)
        tokenizer = load_tokenizer(base)
        tasks, rows, num_too_long = self._read_dataset(tokenizer)
        warm = self._sft(base, tokenizer, rows)
        final = self._grpo(warm, tokenizer, tasks)
        sft, grpo = self._phase_facts("sft"), self._phase_facts("grpo")
        facts = TrainingFacts(
            sft_steps=sft.get("steps", 0),
            sft_losses=_losses(sft),
            grpo_steps=grpo.get("steps", 0),
            grpo_losses=_losses(grpo),
            rollouts=tuple(from_json(RolloutStep, orjson.dumps(s)) for s in grpo.get("rollouts", ())),
        )
        return TrainingResult(
            warm_start_dir=str(warm),
            model_dir=str(final),
            facts=facts,
            num_tasks=len(tasks),
            num_sft_rows=len(rows),
            num_too_long=num_too_long,
            sft_wall_s=sft.get("wall_s", 0.0),
            grpo_wall_s=grpo.get("wall_s", 0.0),
            resumed_from=self.resumed_from,
        )

    def _sft(self, base: Path, tokenizer: object, rows: list[SftRow]) -> Path:
        steps = self.request.recipe.sft.steps
        target = self.work / "warm_start"
        if steps == 0 or not rows:
            return base
        if self._is_done("sft", target):
            return target
        from infra.trainers.checkpoints import read_losses
        from infra.trainers.curves import Curves
        from infra.trainers.policy import export_model, load_policy
        from infra.trainers.sft import run_sft

        folder, resume, step = self._resume("sft", steps)
        curves = Curves("sft", {"loss": "loss", "learning_rate": "learning_rate"}, self.log)
        curves.losses |= read_losses(resume) if resume else {}
        all_done = resume if step >= steps else None
        model = load_policy(all_done or base, self.request.recipe.trainable_layers)
        started = time.monotonic()
        if not all_done:
            run_sft(
                model,
                tokenizer,
                rows,
                recipe=self.request.recipe.sft,
                seed=self.request.seed,
                folder=folder,
                resume=resume,
                curves=curves,
            )
        export_model(model, base, target)
        self._finish("sft", _loss_facts(curves.losses), started)
        return target

    def _grpo(self, warm: Path, tokenizer: object, tasks: list[RewardTask]) -> Path:
        steps = self.request.recipe.grpo.steps
        target = self.work / "model"
        if steps == 0:
            return warm
        if self._is_done("grpo", target):
            return target
        from infra.trainers.checkpoints import read_losses
        from infra.trainers.curves import Curves
        from infra.trainers.grpo import run_grpo
        from infra.trainers.policy import export_model, load_policy
        from infra.trainers.rollouts import RolloutEngine

        request = self.request
        folder, resume, step = self._resume("grpo", steps)
        engine = RolloutEngine(
            {t.id: t for t in tasks},
            request.recipe.grpo,
            url=request.rollout_url,
            model=request.rollout_model,
            folder=folder,
            resumed_at=step,
        )
        kept = {"loss": "loss", "learning_rate": "learning_rate", "entropy": "entropy", "grad_norm": "grad_norm"}
        curves = Curves("grpo", kept, self.log, engine.latest_metrics)
        curves.losses |= read_losses(resume) if resume else {}
        all_done = resume if step >= steps else None
        model = load_policy(all_done or warm, request.recipe.trainable_layers)
        started = time.monotonic()
        if not all_done:
            run_grpo(
                model,
                tokenizer,
                engine,
                recipe=request.recipe.grpo,
                seed=request.seed,
                folder=folder,
                resume=resume,
                curves=curves,
            )
        export_model(model, warm, target)
        rollouts = [orjson.loads(to_json(s)) for s in engine.steps]
        self._finish("grpo", _loss_facts(curves.losses) | {"rollouts": rollouts}, started)
        return target

    def _read_dataset(self, tokenizer: Any) -> tuple[list[RewardTask], list[SftRow], int]:
        from infra.trainers.sft import render_row

        folder = Path(self.request.dataset)
        rows = [from_json(SftRow, line) for line in (folder / "sft.jsonl").read_bytes().split(b"\n") if line]
        tasks = [from_json(RewardTask, line) for line in (folder / "tasks.jsonl").read_bytes().split(b"\n") if line]
        limit = self.request.recipe.max_prompt_tokens
        long = {r.task_id for r in rows if len(tokenizer(render_row(r, tokenizer)["prompt"])["input_ids"]) > limit}
        kept = [t for t in tasks if t.id not in long]
        if not kept:
            raise TrainingError(
                f"dataset {folder}: no task with a prompt of at most {limit} tokens; raise training.max_prompt_tokens"
            )
        return kept, [r for r in rows if r.task_id not in long], len(tasks) - len(kept)

    def _resume(self, phase: str, steps: int) -> tuple[Path, Path | None, int]:
        from infra.trainers.checkpoints import newest_checkpoint
        from infra.trainers.curves import report

        folder = self.work / phase
        folder.mkdir(parents=True, exist_ok=True)
        found = newest_checkpoint(folder)
        if found is None:
            return folder, None, 0
        path, step = found
        self.resumed_from[phase] = step
        report(TrainingProgress(phase, step, steps, {}, f"{phase} resumes at step {step} of {steps} with its optimizer state"))
        return folder, path, step

    def _is_done(self, phase: str, target: Path) -> bool:
        return (self.work / f"{phase}.json").exists() and target.is_dir()

    def _finish(self, phase: str, facts: dict[str, object], started: float) -> None:
        path = self.work / f"{phase}.json"
        partial = path.with_suffix(".partial")
        partial.write_bytes(orjson.dumps(facts | {"wall_s": time.monotonic() - started}, option=orjson.OPT_SERIALIZE_NUMPY))
        partial.replace(path)

    def _phase_facts(self, phase: str) -> dict[str, Any]:
        path = self.work / f"{phase}.json"
        facts: dict[str, Any] = orjson.loads(path.read_bytes()) if path.exists() else {}
        return facts


def _loss_facts(losses: dict[int, float]) -> dict[str, object]:
    return {"steps": max(losses, default=0), "losses": [loss for _, loss in sorted(losses.items())]}


def _losses(facts: dict[str, Any]) -> tuple[float, ...]:
    # JSON has no NaN: it is stored as null.
    return tuple(math.nan if loss is None else float(loss) for loss in facts.get("losses", ()))


def main(request_path: str) -> int:
    """Run one request; the last line on stderr is the error when there is one."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    request = from_json(TrainingRequest, Path(request_path).read_bytes())
    from infra.trainers.curves import metric_logger

    Path(request.work_dir).mkdir(parents=True, exist_ok=True)
    try:
        result = Worker(request, metric_logger(request)).run()
        findings = check_training(result.facts, request.recipe)
        if findings:
            raise TrainingError("training is not sound: " + "; ".join(f"{f.check}: {f.detail}" for f in findings))
    except EverloopError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    (Path(request.work_dir) / RESULT_NAME).write_bytes(to_json(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

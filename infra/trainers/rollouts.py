"""Rollouts for GRPO: prompts answered by the rollout replica with the trainer's current weights, scored by the task's verifier.

Owns the weight sync before each step, the masks of infrastructure failures and the record of each step. Refuses to turn a
failure into a reward: such a rollout has no reward and no gradient.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from infra.inference.client import ChatClient, Completion, Sampling
from infra.inference.weights import check_version, sync_weights, weights_version
from infra.trainers.policy import save_weights
from pipelines.artifacts import from_json, to_json
from pipelines.errors import InfrastructureError
from pipelines.rewards.model import RewardTask
from pipelines.rewards.verifiers import verify
from pipelines.training.health import RolloutStep
from pipelines.training.recipe import GrpoRecipe

GAP_SAMPLES = 4
"""Rollouts per step, spread over its groups, whose log-probabilities are recomputed to measure the train/rollout gap."""


class RolloutEngine:
    """Called by the trainer once per step; keeps the record of steps beside the checkpoints, so that it survives a kill."""

    def __init__(
        self, tasks: Mapping[str, RewardTask], recipe: GrpoRecipe, *, url: str, model: str, folder: Path, resumed_at: int
    ) -> None:
        self.tasks = tasks
        self.recipe = recipe
        self.url = url
        self.model = model
        self.folder = folder
        self._log_path = folder / "rollouts.jsonl"
        # Steps after the checkpoint will be taken again.
        self.steps = [s for s in read_steps(self._log_path) if s.step <= resumed_at]
        self._log_path.write_bytes(b"".join(to_json(s) + b"\n" for s in self.steps))

    def generate(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        """TRL's rollout function: task ids, each repeated `group_size` times in a row, to token ids, log-probs and rewards."""
        step = trainer.state.global_step + 1
        version = self.sync(trainer.model)
        group_ids = prompts[:: self.recipe.group_size]
        groups = asyncio.run(self._sample(group_ids))
        check_version(self.url, version)
        completions: list[Completion | None] = []
        scores: list[float | None] = []
        for task_id, group in zip(group_ids, groups, strict=True):
            completions.extend(group)
            scores.extend(None if c is None else verify(self.tasks[task_id], c.message).score for c in group)
        known = [c for c in completions if c is not None]
        if not known:
            raise InfrastructureError(
                f"rollout replica {self.url}: all {len(prompts)} rollouts of step {step} failed; see its log"
            )
        self._record(step, version, completions, scores, measure_gap(trainer, known[:: -(-len(known) // GAP_SAMPLES)]))
        # A masked rollout needs some tokens to stand in the batch; without a reward they get no gradient.
        filled = [c or known[0] for c in completions]
        return {
            "prompt_ids": [list(c.prompt_token_ids) for c in filled],
            "completion_ids": [list(c.token_ids) for c in filled],
            "logprobs": [list(c.logprobs) for c in filled],
            "score": scores,
        }

    def sync(self, model: Any) -> str:
        """Load the trainer's weights into the replica under their content's name; returns the name."""
        target = self.folder / "sync"
        save_weights(model, target)
        version = weights_version(target)
        sync_weights(self.url, target, version)
        shutil.rmtree(target)
        return version

    def latest_metrics(self) -> dict[str, float]:
        """The last step's numbers for the curves."""
        if not self.steps:
            return {}
        step = self.steps[-1]
        metrics = {
            "truncated_share": step.num_truncated / step.num_rollouts,
            "masked_share": step.num_masked / step.num_rollouts,
            "zero_variance_share": step.num_zero_variance / step.num_groups,
        }
        optional = {"reward": step.mean_reward, "logprob_gap": step.logprob_gap}
        return metrics | {name: value for name, value in optional.items() if value is not None}

    async def _sample(self, task_ids: Sequence[str]) -> list[list[Completion | None]]:
        async with ChatClient(self.url, self.model) as client:
            return await asyncio.gather(*(self._sample_group(client, t) for t in task_ids))

    async def _sample_group(self, client: ChatClient, task_id: str) -> list[Completion | None]:
        task = self.tasks[task_id]
        recipe = self.recipe
        sampling = Sampling(n=recipe.group_size, temperature=recipe.temperature, max_tokens=recipe.max_completion_tokens)
        try:
            return list(await client.complete(task.prompt, task.tools, sampling, token_ids=True))
        except InfrastructureError:
            return [None] * self.recipe.group_size

    def _record(
        self, step: int, version: str, completions: Sequence[Completion | None], scores: Sequence[float | None], gap: float | None
    ) -> None:
        size = self.recipe.group_size
        known = [c for c in completions if c is not None]
        rewards = [s for s in scores if s is not None]
        groups = [[s for s in scores[i : i + size] if s is not None] for i in range(0, len(scores), size)]
        record = RolloutStep(
            step=step,
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            num_rollouts=len(completions),
            num_masked=sum(s is None for s in scores),
            num_truncated=sum(c.truncated for c in known),
            num_groups=len(groups),
            num_zero_variance=sum(len(set(g)) <= 1 for g in groups),
            output_tokens=sum(c.output_tokens or 0 for c in known),
            input_tokens=sum(c.input_tokens or 0 for c in known),
            logprob_gap=gap,
            version=version,
        )
        self.steps.append(record)
        with self._log_path.open("ab") as log:
            log.write(to_json(record) + b"\n")


def score_reward(prompts: list[str], completions: list[Any], score: list[float | None], **kwargs: Any) -> list[float | None]:
    """TRL's reward function: the verifier's score that came with the rollout; None keeps a rollout out of baseline and loss."""
    return score


def read_steps(path: Path) -> list[RolloutStep]:
    """The recorded steps; a last line cut by a kill is left out, since its step will be taken again."""
    if not path.exists():
        return []
    return [from_json(RolloutStep, line) for line in path.read_bytes().split(b"\n") if line.endswith(b"}")]


def measure_gap(trainer: Any, rollouts: Sequence[Completion]) -> float | None:
    """Mean |log p(trainer) - log p(server)| over the tokens of a few rollouts, nats; B rollouts are taken one by one.

    The server's log-probabilities are those before temperature (vLLM's default), so the trainer's logits are not scaled.
    """
    gaps: list[float] = []
    for rollout in rollouts:
        ids_T = torch.tensor([*rollout.prompt_token_ids, *rollout.token_ids])
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            logits_TV = trainer.model(ids_T[None]).logits[0]
        start = len(rollout.prompt_token_ids)
        logprobs_CV = torch.log_softmax(logits_TV[start - 1 : -1].float(), dim=-1)
        ours_C = logprobs_CV.gather(1, ids_T[start:, None])[:, 0]
        theirs_C = torch.tensor(rollout.logprobs)
        if len(theirs_C) == len(ours_C):
            gaps.extend((ours_C - theirs_C).abs().tolist())
    return sum(gaps) / len(gaps) if gaps else None

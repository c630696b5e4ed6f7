"""The output head for the CPU computes what TRL's does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from infra.trainers.output_head import score_answers_only
from infra.trainers.policy import IGNORED, load_policy
from infra.trainers.shared_prefix import pack_rows
from tests.integration.engine_fixtures import make_tiny_model

ROUNDING = 1e-5
"""Largest difference of two gradients, as a share of the gradient: sums of float32 (eps 1.2e-7) taken in another order."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), 1)


def batch(num_scored: int) -> dict[str, torch.Tensor]:
    """Two sequences of 12 tokens, the second padded; the last `num_scored` of the first are its answer."""
    ids_BT = torch.randint(10, 200, (2, 12), generator=torch.Generator().manual_seed(0))
    attention_BT = torch.ones_like(ids_BT)
    attention_BT[1, 9:] = 0
    labels_BT = torch.full_like(ids_BT, IGNORED)
    if num_scored:
        labels_BT[0, -num_scored:] = ids_BT[0, -num_scored:]
        labels_BT[1, 6:9] = ids_BT[1, 6:9]
    return {"input_ids": ids_BT, "attention_mask": attention_BT, "labels": labels_BT}


def group_batch() -> dict[str, torch.Tensor]:
    """A group of three rollouts as GRPO pads them: one prompt of 6 tokens, padded left to 8, answers that begin alike."""
    draw = torch.Generator().manual_seed(1)
    prompt_T = torch.cat([torch.zeros(2, dtype=torch.long), torch.randint(10, 200, (6,), generator=draw)])
    answers_BT = torch.randint(10, 200, (3, 5), generator=draw)
    answers_BT[:, :2] = answers_BT[0, :2]
    attention_BT = torch.ones((3, 13), dtype=torch.long)
    attention_BT[:, :2] = 0
    attention_BT[1, 10:] = 0
    ids_BT = torch.cat([prompt_T.expand(3, -1), answers_BT], dim=1) * attention_BT
    labels_BT = torch.where(attention_BT.bool(), ids_BT, IGNORED)
    labels_BT[:, :8] = IGNORED
    return {"input_ids": ids_BT, "attention_mask": attention_BT, "labels": labels_BT}


def run(model_dir: Path, inputs: dict[str, torch.Tensor], *, ours: bool, temperature: float) -> tuple[Any, torch.Tensor]:
    model = load_policy(model_dir, None)
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy", "is_top1"))
    if ours:
        score_answers_only(model, temperature)
    output = model(**inputs, fused_lm_head=True)
    output.log_probs.sum().backward()
    return output, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("make_batch", "num_scored"), [(lambda: batch(4), 7), (group_batch, 12)], ids=["apart", "group"])
def test_values_and_gradients_are_those_of_trl(
    model_dir: Path, make_batch: Callable[[], dict[str, torch.Tensor]], num_scored: int, temperature: float
) -> None:
    ours, our_gradient = run(model_dir, make_batch(), ours=True, temperature=temperature)
    theirs, their_gradient = run(model_dir, make_batch(), ours=False, temperature=temperature)

    assert int(ours.label_mask.sum()) == num_scored
    assert torch.equal(ours.label_mask, theirs.label_mask)
    assert torch.equal(ours.is_top1.bool(), theirs.is_top1.bool())
    for name in ("loss", "log_probs", "entropy"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)
    assert float(their_gradient.norm()) > 0
    assert (our_gradient - their_gradient).norm() < ROUNDING * their_gradient.norm()


def test_a_prompt_is_packed_once_and_scored_tokens_are_never_shared() -> None:
    inputs = group_batch()
    packed = pack_rows(inputs["input_ids"], inputs["attention_mask"], inputs["labels"])
    assert packed.prefix_length == 6
    assert packed.ids_1L.shape == (1, 6 + 5 + 2 + 5)
    assert packed.positions_1L[0].tolist() == [*range(6), *range(6, 11), *range(6, 8), *range(6, 11)]
    second_row_first_token = 11
    assert packed.attention_11LL[0, 0, second_row_first_token].nonzero()[:, 0].tolist() == [*range(6), second_row_first_token]


def test_a_batch_without_answers_gives_a_loss_of_zero_and_no_gradient(model_dir: Path) -> None:
    output, gradient = run(model_dir, batch(0), ours=True, temperature=1.0)
    assert output.loss.item() == 0.0
    assert float(gradient.abs().max()) == 0.0


def test_generation_still_sees_logits_of_every_position(model_dir: Path) -> None:
    model = load_policy(model_dir, None)
    add_fused_lm_head(model)
    score_answers_only(model)
    inputs = batch(4)
    logits_BTV = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    assert logits_BTV.shape == (2, 12, model.config.vocab_size)

"""The scored forward pass on devices without Triton: a shared prompt is computed once, only answers meet the vocabulary.

There TRL 1.16 projects every position, the prompt's too, and multiplies in float32: half of a training step on a CPU.
Owns that one replacement; refuses to change what is computed (a test holds both against each other).
"""

import functools
import types
from typing import Any

import torch
from torch.nn import functional as F
from trl.trainer.utils import FusedCausalLMOutput

from infra.trainers.policy import IGNORED
from infra.trainers.shared_prefix import pack_rows


def score_answers_only(model: Any, temperature: float = 1.0) -> None:
    """Replace, in place, the head that TRL's trainers put on `model`; call it after the trainer is made. On CUDA nothing changes.

    `model(..., labels=labels_BT, fused_lm_head=True)` then returns, per next token, log-probabilities, entropy and top-1 hits of
    shape (B, T-1), zero where the label is IGNORED. Logits are divided by `temperature`. The entropy carries no gradient.
    """
    if next(model.parameters()).device.type != "cpu":
        return
    original = model.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return original(*args, **kwargs)
        ids_BT, labels_BT = kwargs["input_ids"], kwargs["labels"]
        attention_BT = kwargs.get("attention_mask")
        packed = pack_rows(ids_BT, torch.ones_like(ids_BT) if attention_BT is None else attention_BT, labels_BT)
        hidden_1LD = self.base_model(
            input_ids=packed.ids_1L, position_ids=packed.positions_1L, attention_mask=packed.attention_11LL, use_cache=False
        ).last_hidden_state
        mask_BT = labels_BT[:, 1:] != IGNORED
        hidden_ND = hidden_1LD[0, packed.place_BT[:, :-1][mask_BT]]
        return _score(hidden_ND, labels_BT[:, 1:], mask_BT, self.get_output_embeddings(), temperature)

    model.forward = types.MethodType(forward, model)


def _score(
    hidden_ND: torch.Tensor, labels_BT: torch.Tensor, mask_BT: torch.Tensor, head: torch.nn.Linear, temperature: float
) -> FusedCausalLMOutput:
    """Score the N positions of `mask_BT`, given what the model holds before each of them."""
    targets_N = labels_BT[mask_BT]
    logits_NV = F.linear(hidden_ND, head.weight, head.bias).float() / temperature
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    logprobs_N = logprobs_NV.gather(-1, targets_N[:, None])[:, 0]
    with torch.no_grad():
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
        is_top1_N = logits_NV.argmax(-1) == targets_N

    def spread(values_N: torch.Tensor) -> torch.Tensor:
        # masked_scatter keeps the graph even when no label is scored.
        return values_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, values_N)

    logprobs_BT = spread(logprobs_N)
    return FusedCausalLMOutput(
        loss=-logprobs_BT.sum() / mask_BT.sum().clamp(min=1),
        log_probs=logprobs_BT,
        entropy=spread(entropy_N),
        is_top1=spread(is_top1_N),
        label_mask=mask_BT,
    )

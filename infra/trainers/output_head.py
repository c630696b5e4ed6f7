"""The output head on devices without Triton: only answer tokens are projected onto the vocabulary.

There TRL 1.16 projects every position, the prompt's too, and multiplies in float32: half of a training step on a CPU.
Owns that one replacement; refuses to change what is computed (a test holds both against each other).
"""

import functools
import types
from typing import Any

import torch
from torch.nn import functional as F
from trl.trainer.utils import FusedCausalLMOutput

IGNORED = -100
"""Label of a position that is not scored, as in transformers and TRL."""


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
        labels_BT = kwargs.pop("labels")
        hidden_BTD = self.base_model(*args, **(kwargs | {"use_cache": False})).last_hidden_state
        return _score(hidden_BTD[:, :-1], labels_BT[:, 1:], self.get_output_embeddings(), temperature)

    model.forward = types.MethodType(forward, model)


def _score(hidden_BTD: torch.Tensor, labels_BT: torch.Tensor, head: torch.nn.Linear, temperature: float) -> FusedCausalLMOutput:
    mask_BT = labels_BT != IGNORED
    targets_N = labels_BT[mask_BT]
    logits_NV = F.linear(hidden_BTD[mask_BT], head.weight, head.bias).float() / temperature
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

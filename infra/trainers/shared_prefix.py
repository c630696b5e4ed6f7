"""Rows of a batch that begin with the same tokens, packed so that these are computed once.

The rollouts of a GRPO group share their prompt, and the rows of a warm start their system prompt and tools: of 8 x 170 tokens 430
are left. Owns the packing: `[prefix, rest of row 0, rest of row 1, ...]` as one sequence in which a row sees the prefix and
itself. Refuses to change what is computed (a test holds both against each other).
"""

from dataclasses import dataclass

import torch

from infra.trainers.policy import IGNORED


@dataclass(frozen=True, slots=True)
class PackedRows:
    """B rows of T columns in one sequence of L tokens."""

    ids_1L: torch.Tensor
    positions_1L: torch.Tensor
    """Place of each token in its own row, 0 first."""
    attention_11LL: torch.Tensor
    """True where a query (third dimension) sees a key (fourth)."""
    place_BT: torch.Tensor
    """Where column t of row b lies in the packed sequence; meaningless for padding."""
    prefix_length: int


def pack_rows(ids_BT: torch.Tensor, attention_BT: torch.Tensor, labels_BT: torch.Tensor) -> PackedRows:
    """Pack padded rows, on either side, each one run of real tokens. A scored token (label not IGNORED) is never shared."""
    real_BT = attention_BT.bool()
    position_BT = real_BT.long().cumsum(dim=1) - 1
    lengths_B = real_BT.sum(dim=1)
    scored_BT = (labels_BT != IGNORED) & real_BT
    prefix = min(_common_prefix(ids_BT, real_BT), _first_scored(position_BT, scored_BT))
    rests_B = lengths_B - prefix
    starts_B = prefix + rests_B.cumsum(dim=0) - rests_B
    shared_BT = position_BT < prefix
    place_BT = torch.where(shared_BT, position_BT, starts_B[:, None] + position_BT - prefix)
    row_BT = torch.where(shared_BT, 0, torch.arange(1, len(ids_BT) + 1, device=ids_BT.device)[:, None])
    places_N = place_BT[real_BT]
    flat_3L = ids_BT.new_empty((3, prefix + int(rests_B.sum())))
    for target_L, source_BT in zip(flat_3L, (ids_BT, position_BT, row_BT), strict=True):
        target_L[places_N] = source_BT[real_BT]
    ids_L, positions_L, rows_L = flat_3L
    order_L = torch.arange(len(rows_L), device=rows_L.device)
    same_row_LL = (rows_L[:, None] == rows_L[None, :]) | (rows_L[None, :] == 0)
    attention_LL = same_row_LL & (order_L[:, None] >= order_L[None, :])
    return PackedRows(ids_L[None], positions_L[None], attention_LL[None, None], place_BT, prefix)


def _common_prefix(ids_BT: torch.Tensor, real_BT: torch.Tensor) -> int:
    """Length of the longest beginning that all rows share."""
    rows = [ids[real] for ids, real in zip(ids_BT, real_BT, strict=True)]
    shortest = min(len(row) for row in rows)
    stacked_BS = torch.stack([row[:shortest] for row in rows])
    same_S = (stacked_BS == stacked_BS[0]).all(dim=0)
    return int(same_S.long().cumprod(dim=0).sum())


def _first_scored(position_BT: torch.Tensor, scored_BT: torch.Tensor) -> int:
    """Smallest position of a scored token in its row; beyond every row when none is scored."""
    positions_N = position_BT[scored_BT]
    return int(positions_N.min()) if len(positions_N) else position_BT.shape[1]

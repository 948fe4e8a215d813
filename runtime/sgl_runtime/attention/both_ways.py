"""Attention of encoders: every token of a text looks at all of them; nothing is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.attention.base import Rotary
from sgl_runtime.device.ops import HeadNorms
from sgl_runtime.forward.forward_batch import ForwardBatch

MAX_STRETCH = 1.25
"""How much longer than the shortest text of a group the longest may be: what is left over is padding."""


@dataclass(frozen=True)
class _Group:
    """Texts of similar length, attended together.

    Attributes:
        places: (b, n) int64 places of their tokens in the pass; 0 for padding.
        own: (b, n) bool, True where there is a token.
        mask: (b, 1, 1, n) bool, the same; None without padding.
    """

    places: Tensor
    own: Tensor
    mask: Tensor | None


class BothWaysAttention:
    """See `AttentionBackend`; a pass holds whole texts."""

    captured = None

    def prepare(self, forward_batch: ForwardBatch) -> "BothWaysAttend":
        """See `AttentionBackend`."""
        batch = forward_batch.batch
        assert not batch.prefix_lens.any(), "an encoder reads a text in one pass"
        device = forward_batch.input_ids.device
        starts = np.cumsum(batch.extend_lens) - batch.extend_lens
        groups = []
        for rows in group_by_length(batch.extend_lens.tolist()):
            lengths = batch.extend_lens[rows]
            columns = np.arange(int(lengths.max()))
            own = columns < lengths[:, None]
            places = torch.from_numpy(np.where(own, starts[rows][:, None] + columns, 0)).to(device, torch.int64)
            known = torch.from_numpy(own).to(device)
            groups.append(_Group(places, known, None if own.all() else known[:, None, None, :]))
        return BothWaysAttend(groups)


def group_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Rows in groups of similar length, each row in one."""
    groups: list[list[int]] = []
    shortest = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not groups or lengths[row] > shortest * MAX_STRETCH:
            groups.append([])
            shortest = lengths[row]
        groups[-1].append(row)
    return groups


class BothWaysAttend:
    """See `Attend`; as many heads of keys and values as of queries.

    Args:
        groups: The texts, each in one of them.
    """

    def __init__(self, groups: Sequence[_Group]) -> None:
        self._groups = groups

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        assert rotary is None, "positions of an encoder are in its embeddings"
        assert head_norms is None, "an encoder's queries and keys are not normed"
        out = torch.empty_like(qkv[:, : qkv.shape[1] // 3], memory_format=torch.contiguous_format)
        for group in self._groups:
            q, k, v = qkv[group.places].transpose(1, 2).chunk(3, dim=1)
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask).transpose(1, 2)
            out[group.places[group.own]] = attended[group.own]
        return out

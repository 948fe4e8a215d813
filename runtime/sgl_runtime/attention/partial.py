"""Partial attention: over one part of a context, in a form that parts can be merged."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Partial:
    """Attention over a part of the context.

    Attributes:
        out: (B, H, D), normalised within the part.
        lse: (B, H, 1) float32 logarithm of the sum of the exponentiated scores of the part.
    """

    out: Tensor
    lse: Tensor

    def merge(self, other: "Partial") -> Tensor:
        """(B, H, D) attention over both parts, in the type of `out`.

        Source: arXiv:2501.01005 section 2.2, the composition of attention states.
        """
        top = torch.maximum(self.lse, other.lse)
        mine, theirs = (self.lse - top).exp(), (other.lse - top).exp()
        return ((self.out * mine + other.out * theirs) / (mine + theirs)).to(self.out.dtype)


def attend_part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention of queries over a part of their context.

    Args:
        q: (..., Q, D).
        k, v: (..., N, D).
        mask: Broadcastable to (..., Q, N), False where a key is not looked at; each query looks at one at least.

    Returns:
        Output (..., Q, D) in the type of q, and log-sum-exp of the scores (..., Q, 1) in float32: in 16 bits a
        sum of thousands of weights is percents from what it is.
    """
    scores = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).float()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(dim=-1, keepdim=True)
    return (scores - lse).exp_().to(v.dtype) @ v, lse

"""Ops: the operations that a device may fuse, each with its plain torch form."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Norm = tuple[Tensor, float]
"""Weights (C,) of an RMS norm, and what is added to the mean square."""

HeadNorms = tuple[Tensor, Tensor, float]
"""Weights (D,) of the RMS norms of each head of queries and of keys, and what is added to the mean square."""


class Ops:
    """Plain torch forms; they run on any device and are the oracle of the fused ones."""

    def pack_weight(self, weight: Tensor) -> Tensor:
        """A loaded weight in the form that `linear` reads fastest; here the weight itself.

        Args:
            weight: (O, I).
        """
        return weight

    def tune_linears(self, row_counts: Sequence[int]) -> None:
        """Find the fastest way to compute each packed linear as a rehearsal used it; called once, before any is.

        Args:
            row_counts: Numbers of rows that will be met most.
        """

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X times the transpose of weight.

        Args:
            x: (T, I).
            weight: (O, I), dtype of x, as `pack_weight` gave it.
            bias: (O,) or None.

        Returns:
            (T, O), dtype of x.
        """
        return F.linear(x, weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm over the last dimension, computed in float32.

        Args:
            x: (T, C).
            weight: (C,).
            eps: Added to the mean square.

        Source: arXiv:1910.07467.
        """
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return weight * (wide * scale).to(x.dtype)

    def norm_linear(self, x: Tensor, norm: Norm, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """A linear of the RMS norm of x.

        Args:
            x: (T, I).
            norm: Of the last dimension.
            weight, bias: See `linear`.

        Returns:
            (T, O).
        """
        return self.linear(self.rms_norm(x, *norm), weight, bias)

    def gated_linear(self, x: Tensor, norm: Norm, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """SiLU of the first half of a linear of the RMS norm of x, times its second half.

        Args:
            x: (T, I).
            norm: Of the last dimension.
            weight, bias: See `linear`, of 2 O outputs.

        Returns:
            (T, O).
        """
        return self.silu_and_mul(self.norm_linear(x, norm, weight, bias))

    def add_linear(self, residual: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """A linear of x, added to the residual stream.

        Args:
            residual: (T, O); may be overwritten.
            x: (T, I).
            weight, bias: See `linear`.

        Returns:
            (T, O), the sum.
        """
        return residual + self.linear(x, weight, bias)

    def norm_heads(self, qkv: Tensor, norms: HeadNorms, *, num_heads: int) -> None:
        """Norm each head of queries and keys, in place.

        Args:
            qkv: (T, H + 2 G, D).
            norms: Of queries and keys.
            num_heads: H.
        """
        q_weight, k_weight, eps = norms
        num_groups = (qkv.shape[1] - num_heads) // 2
        for begin, count, weight in ((0, num_heads, q_weight), (num_heads, num_groups, k_weight)):
            heads = qkv[:, begin : begin + count]
            heads.copy_(self.rms_norm(heads, weight, eps))

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """SiLU of the first half of the last dimension times the second half.

        Args:
            x: (T, 2 I).

        Returns:
            (T, I).
        """
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    def mask_logits(self, logits: Tensor, masks: Tensor) -> None:
        """Set the logits of tokens that may not come to minus infinity, in place.

        Args:
            logits: (R, V) float.
            masks: (R, ceil(V / 32)) int32, bit i % 32 of word i // 32 set where token i may come.
        """
        bits = torch.arange(32, device=masks.device, dtype=torch.int32)
        allowed = (masks.unsqueeze(-1) >> bits & 1).flatten(1)[:, : logits.shape[1]]
        logits.masked_fill_(allowed == 0, float("-inf"))

    def draw(self, logits: Tensor, temperatures: Tensor, uniforms: Tensor, masks: Tensor | None = None) -> Tensor:
        """A token for every row: a draw from the softmax, or the likeliest token where the temperature is 0.

        Each row's draw depends on its own number alone.  Here it inverts the cumulative distribution in id order.

        Args:
            logits: (R, V) float, tokens that may not come at minus infinity.
            temperatures: (R,) float32.
            uniforms: (R,) float64 in [0, 1).
            masks: See `mask_logits`; None: all tokens may come.

        Returns:
            (R,) int64.
        """
        if masks is not None:
            logits = logits.clone()
            self.mask_logits(logits, masks)
        out = logits.argmax(dim=-1)
        rows = (temperatures > 0).nonzero().squeeze(1)
        if len(rows):
            probs = (logits[rows].float() / temperatures[rows].unsqueeze(1)).softmax(dim=-1)
            out[rows] = invert(probs, uniforms[rows].unsqueeze(1))
        return out

    def logprobs(self, logits: Tensor, ids: Tensor) -> Tensor:
        """The log probability of one token of each row.

        Args:
            logits: (R, V) float.
            ids: (R,) int64.

        Returns:
            (R,) float32.
        """
        return logits.float().log_softmax(dim=-1).gather(1, ids.unsqueeze(1)).squeeze(1)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate pairs (i, i + D / 2) of every head.

        Args:
            x: (T, heads, D).
            cos, sin: (T, D / 2), dtype of x.

        Returns:
            (T, heads, D).

        Source: arXiv:2104.09864, in the half-split form.
        """
        first, second = x.chunk(2, dim=-1)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The place at which the running total of weights passes a share of their sum.

    Args:
        weights: (R, K), not negative.
        uniforms: (R, 1) float64 in [0, 1), the share.

    Returns:
        (R,) int64; the weight there is never zero.
    """
    cumulative = weights.double().cumsum(dim=-1)
    targets = uniforms * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, targets, right=True).squeeze(1)
    # A uniform next to 1 may land past the last token of positive weight by rounding.
    last = (weights > 0).cumsum(dim=-1).argmax(dim=-1)
    return torch.minimum(index, last)

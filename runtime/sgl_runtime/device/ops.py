"""Ops: the operations that a device may fuse, each with its plain torch form."""

import torch
import torch.nn.functional as F
from torch import Tensor


class Ops:
    """Plain torch forms; they run on any device and are the oracle of the fused ones."""

    def pack_weight(self, weight: Tensor) -> Tensor:
        """A loaded weight in the form that `linear` reads fastest; here the weight itself.

        Args:
            weight: (O, I).
        """
        return weight

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

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Add x to the residual stream, then norm.

        Returns:
            The normed sum and the sum, both (T, C).
        """
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """SiLU of the first half of the last dimension times the second half.

        Args:
            x: (T, 2 I).

        Returns:
            (T, I).
        """
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

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

"""Layer norm with weight and bias."""

import torch.nn.functional as F
from torch import Tensor, nn

from sgl_runtime.layers.build_context import BuildContext


class LayerNorm(nn.Module):
    """Norm over the last dimension.

    Args:
        size: Features.
        eps: Added to the variance.
        context: Build context.

    Source: arXiv:1607.06450.
    """

    def __init__(self, size: int, *, eps: float, context: BuildContext) -> None:
        super().__init__()
        self.weight = context.parameter(size)
        self.bias = context.parameter(size)
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(T, C) to (T, C)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self._eps)

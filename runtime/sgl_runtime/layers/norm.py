"""RMS norm."""

from torch import Tensor, nn

from sgl_runtime.device.ops import Norm
from sgl_runtime.layers.build_context import BuildContext


class RMSNorm(nn.Module):
    """Root-mean-square norm.

    Args:
        size: Features.
        eps: Added to the mean square.
        context: Build context.
    """

    def __init__(self, size: int, *, eps: float, context: BuildContext) -> None:
        super().__init__()
        self.weight = context.parameter(size)
        self.eps = eps
        self._ops = context.ops

    def forward(self, x: Tensor) -> Tensor:
        """(T, C) to (T, C)."""
        return self._ops.rms_norm(x, self.weight, self.eps)

    @property
    def parts(self) -> Norm:
        """What the device's operations need to know of it."""
        return self.weight, self.eps

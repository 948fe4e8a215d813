"""BuildContext: what every layer is built with, in place of globals."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from sgl_runtime.device.ops import Ops


@dataclass(frozen=True)
class BuildContext:
    """Given to every layer's constructor.

    Attributes:
        dtype: Type of the weights.
        device: Where they live.
        ops: The device's fused operations.
    """

    dtype: torch.dtype
    device: torch.device
    ops: Ops

    def parameter(self, *shape: int) -> Parameter:
        """An uninitialised weight."""
        return Parameter(self.empty(*shape), requires_grad=False)

    def empty(self, *shape: int) -> Tensor:
        """An uninitialised tensor of the weights' type."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)

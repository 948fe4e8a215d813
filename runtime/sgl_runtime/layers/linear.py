"""Linear layers: plain, and several side by side in one weight."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.norm import RMSNorm


class Linear(nn.Module):
    """y = x W^T + b.

    Args:
        in_size, out_size: Features.
        bias: Whether there is one.
        context: Build context.
    """

    def __init__(self, in_size: int, out_size: int, *, bias: bool, context: BuildContext) -> None:
        super().__init__()
        self.weight = context.parameter(out_size, in_size)
        self.bias = context.parameter(out_size) if bias else None
        self._ops = context.ops
        self._packed: Tensor | None = None

    def pack(self) -> None:
        """Bring the loaded weight into the device's form; the loaded one is let go, and loading is over."""
        loaded = self.weight.data
        self._packed = self._ops.pack_weight(loaded)
        if self._packed is not loaded:
            self.weight.data = loaded.new_empty(0)

    @property
    def packed(self) -> Tensor:
        """The weight in the device's form."""
        assert self._packed is not None, "weights are packed once they are loaded"
        return self._packed

    def forward(self, x: Tensor) -> Tensor:
        """(T, in) to (T, out)."""
        return self._ops.linear(x, self.packed, self.bias)

    def after_norm(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """(T, in), normed first, to (T, out)."""
        return self._ops.norm_linear(x, norm.parts, self.packed, self.bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """(T, in) to the (T, out) sum with the residual stream, which may be overwritten."""
        return self._ops.add_linear(residual, x, self.packed, self.bias)


class MergedLinear(Linear):
    """Several linears over the same input as one product.

    Args:
        in_size: Features of the input.
        out_sizes: Features of each part, in order.
        bias: Whether the parts have one.
        context: Build context.
    """

    def __init__(self, in_size: int, out_sizes: Sequence[int], *, bias: bool, context: BuildContext) -> None:
        super().__init__(in_size, sum(out_sizes), bias=bias, context=context)
        starts = [sum(out_sizes[:index]) for index in range(len(out_sizes) + 1)]
        self._parts = [slice(*pair) for pair in pairwise(starts)]

    def part(self, index: int, name: str) -> Tensor:
        """A view of one part's `weight` or `bias`, for loading."""
        parameter = self.weight if name == "weight" else self.bias
        assert parameter is not None, f"part {index} has no {name}"
        return parameter.data[self._parts[index]]

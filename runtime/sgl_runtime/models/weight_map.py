"""WeightMap: puts weights by name into a model's parameters and checks that none is missing."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.layers.linear import Linear, MergedLinear


class WeightMap:
    """Targets by name, each filled once.

    Args:
        optional: Names that may come and are not used.
    """

    def __init__(self, *, optional: Iterable[str] = ()) -> None:
        self._targets: dict[str, Tensor] = {}
        self._optional = frozenset(optional)

    def add(self, name: str, target: Tensor | None) -> None:
        """Register where a weight goes; nothing for None (a bias that the model has not)."""
        if target is not None:
            self._targets[name] = target.data

    def add_linear(self, name: str, linear: Linear) -> None:
        """Register where the weight and the bias of a linear go."""
        self.add(f"{name}.weight", linear.weight)
        self.add(f"{name}.bias", linear.bias)

    def add_merged(self, prefix: str, parts: Sequence[str], linear: MergedLinear) -> None:
        """Register where the weights and biases of linears go that are one here.

        Args:
            prefix: In front of each name.
            parts: Names of the linears, in the order of the merged one.
            linear: The merged one.
        """
        for index, part in enumerate(parts):
            self.add(f"{prefix}{part}.weight", linear.part(index, "weight"))
            if linear.bias is not None:
                self.add(f"{prefix}{part}.bias", linear.part(index, "bias"))

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy every weight to its target.

        Raises:
            ModelLoadError: a name is unknown, comes twice, is missing at the end, or has another shape.
        """
        waiting = dict(self._targets)
        for name, value in weights:
            if name in self._optional and name not in self._targets:
                continue
            target = waiting.pop(name, None)
            if target is None:
                raise ModelLoadError(f"weight {name!r} is not expected, or comes twice")
            if target.shape != value.shape:
                raise ModelLoadError(
                    f"weight {name!r} has shape {tuple(value.shape)}; the config asks for {tuple(target.shape)}"
                )
            with torch.no_grad():
                target.copy_(value)
        if waiting:
            names = ", ".join(sorted(waiting)[:3])
            raise ModelLoadError(f"{len(waiting)} weights are missing, among them {names}")

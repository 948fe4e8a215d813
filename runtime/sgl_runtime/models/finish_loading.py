"""What becomes of a model's weights once they are there."""

import torch
from torch import nn

from sgl_runtime.layers.linear import Linear


def make_up(model: nn.Module) -> None:
    """Fill every weight with small random numbers, the same each time: vectors with 1, so that norms change little."""
    parameters = list(model.parameters())
    generator = torch.Generator(parameters[0].device).manual_seed(0)
    for parameter in parameters:
        if parameter.dim() == 1:
            parameter.data.fill_(1.0)
        else:
            parameter.data.normal_(0.0, 0.02, generator=generator)


def pack_linears(model: nn.Module) -> None:
    """Pack every linear of a loaded model."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()

"""The activations of plain feed-forward blocks, by the names in models' configs."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.errors import ModelLoadError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name.

    Raises:
        ModelLoadError: there is none.
    """
    if name not in ACTIVATIONS:
        raise ModelLoadError(f"hidden_act is {name!r}; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]

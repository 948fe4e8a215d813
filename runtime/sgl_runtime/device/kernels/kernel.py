"""Kernel: what stands in front of every Triton kernel, so that it can be compiled before it is first launched."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor


class Kernel:
    """A Triton kernel, launched as usual: `kernel[grid](...)`.

    On tensors without memory (those on torch's device meta) nothing is launched: what the launch would need is compiled
    for the GPU in use.  So whoever runs a model on such tensors has compiled what the model will launch.

    Args:
        function: As `triton.jit` made it.
        varying: See `kernel`.
    """

    def __init__(self, function: Any, varying: Sequence[str]) -> None:
        self.function = function
        self.varying = frozenset(varying)
        self.__doc__ = function.fn.__doc__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.launch, grid)

    def launch(self, grid: Any, *args: Any, **settings: Any) -> None:
        """Launch it, or compile what would be launched.

        Args:
            grid: Numbers of programs.
            *args: Arguments of the kernel; the first is a tensor.
            **settings: Compile-time constants and options of Triton.
        """
        self.function.run(*args, grid=grid, warmup=args[0].is_meta, **settings)


def kernel(
    *, varying: Sequence[str] = (), make: Callable[..., Any] = triton.jit
) -> Callable[[Callable[..., Any]], Kernel]:
    """A decorator that makes a kernel of a function.

    Args:
        varying: Arguments that are not compiled into it: numbers of which some are 1 or divisible by 16 and others not,
            and tensors of which some begin at a multiple of 16 bytes.  Of all other arguments that is known when it is
            compiled, and loads are the wider for it; of these it would only make more variants.
        make: What compiles the function.
    """

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(make(function, do_not_specialize=list(varying)), varying)

    return decorate


def is_for_gpu(tensor: Tensor) -> bool:
    """Whether a launch on a tensor runs on a GPU, or compiles for the one there is; else Triton interprets it."""
    return tensor.is_cuda or (tensor.is_meta and torch.cuda.is_available())

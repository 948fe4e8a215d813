"""ShapesOnly: tensors without memory go through a model in microseconds."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class ShapesOnly(TorchFunctionMode):
    """While it is on, what a decoder does most with tensors on the meta device is answered here.

    torch answers too, but its checks of shapes import all that stands behind its own compiler, sympy among it: seconds
    of a start in which no other thread of Python gets on.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        named = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is not None and args and args[0].is_meta:
            result = answer(*args, **named)
            if result is not None:
                return result
        return func(*args, **named)


_NUMBERS = (torch.int64, torch.int32)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _embedding(ids: Tensor, weight: Tensor, **settings: object) -> Tensor:
    return weight.new_empty((*ids.shape, weight.shape[1]))


def _entries(x: Tensor, index: object) -> Tensor | None:
    """Rows by their numbers, or entries by those of row and column; other forms are torch's."""
    numbers = index if isinstance(index, tuple) else (index,)
    first = numbers[0]
    if not isinstance(first, Tensor):
        return None
    for each in numbers:
        if not isinstance(each, Tensor) or each.dtype not in _NUMBERS or each.shape != first.shape:
            return None
    return x.new_empty((*first.shape, *x.shape[len(numbers) :]))


def _alike(x: Tensor, **settings: Any) -> Tensor:
    return x.new_empty(x.shape, **settings)


def _elementwise(x: Tensor, other: object, **settings: object) -> Tensor | None:
    """Of two tensors of one shape and type, or with a number that does not change the type."""
    if isinstance(other, Tensor):
        is_plain = other.shape == x.shape and other.dtype == x.dtype
    else:
        is_plain = x.is_floating_point() or (x.dtype in _NUMBERS and type(other) is int)
    return x.new_empty(x.shape) if is_plain else None


def _quotient(x: Tensor, other: object, **settings: object) -> Tensor | None:
    return _elementwise(x, other) if x.is_floating_point() else None


def _compared(x: Tensor, other: object) -> Tensor | None:
    return None if isinstance(other, Tensor) else x.new_empty(x.shape, dtype=torch.bool)


def _either(condition: Tensor, x: object = None, other: object = None) -> Tensor | None:
    return _elementwise(x, other) if isinstance(x, Tensor) and x.shape == condition.shape else None


def _sum(x: Tensor, *factors: Tensor, **settings: object) -> Tensor:
    return x


_ANSWERS: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: _linear,
    functional.embedding: _embedding,
    Tensor.__getitem__: _entries,
    Tensor.addmm_: _sum,
    torch.empty_like: _alike,
    torch.where: _either,
    Tensor.gt: _compared,
    Tensor.add: _elementwise,
    Tensor.mul: _elementwise,
    Tensor.sub: _elementwise,
    Tensor.__and__: _elementwise,
    Tensor.div: _quotient,
}
"""Each gives the result of an operation without its values, None for a form that it does not know."""

"""Triton's interpreter, mended where it does not know the newest numpy, and where it takes its time."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter


class PatchOnce:
    """Puts the interpreter's functions in the place of Triton's once a launch, and not again at each call within it.

    Args:
        patch: Does it for the modules that a function uses.
    """

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self._patch = patch
        self._patched: set[str] = set()
        self._scopes: list[Any] = []

    def __call__(self, function: Any) -> "PatchOnce":
        modules = {value.__name__ for value in function.__globals__.values() if inspect.ismodule(value)}
        modules &= {tl.__name__, tl.core.__name__}
        if not modules <= self._patched:
            self._patched |= modules
            self._scopes.append(self._patch(function))
        return self

    def restore(self) -> None:
        """The launch is over."""
        while self._scopes:
            self._scopes.pop().restore()
        self._patched.clear()


@pytest.fixture(autouse=True)
def _mended_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loop bounds that were loaded from memory, numbers that numpy warns of, and functions that call functions.

    The interpreter keeps the first in arrays of one entry, which numpy no longer turns into Python's integers, and for
    the last it looks through all of Triton's functions at every call.  Integers wrap in kernels; and rows that only fill
    a pass up compute with whatever memory held before, which may be infinite.
    """
    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_and_mend)
    monkeypatch.setattr(interpreter, "_patch_lang", PatchOnce(interpreter._patch_lang))
    with np.errstate(over="ignore", invalid="ignore"):
        yield

"""Triton's interpreter, mended where it does not know the newest numpy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from triton.runtime import interpreter


@pytest.fixture(autouse=True)
def _mended_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loop bounds that were loaded from memory, and integers that wrap.

    The interpreter keeps the former in arrays of one entry, which numpy no longer turns into Python's integers, and
    numpy warns of the latter.
    """
    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_and_mend)
    with np.errstate(over="ignore"):
        yield

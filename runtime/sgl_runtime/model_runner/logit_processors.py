"""LogitProcessors: code of the operator's, or of clients where that is allowed, that changes logits before a draw.

A processor is a callable `(logits, params) -> logits`, or a class of such: `logits` is (n, V) float32 of the rows that
ask for it, `params` a dict for each row (see `ProcessorCall`), and what it returns, commonly `logits` itself changed in
place, has the same shape.  It is called once for all rows of a pass; if that raises, once for each row, so that only
the rows at fault fail.
"""

import importlib
import logging
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import ProcessorCall
from sgl_runtime.errors import ConfigError

logger = logging.getLogger(__name__)

Processor = Callable[[Tensor, list[dict[str, Any]]], Tensor]

MAX_UNPICKLED = 64
"""Processors of clients that are kept."""


class LogitProcessors:
    """Finds processors and calls them.

    Args:
        paths: Import path, `module:attribute`, of each named processor.

    Raises:
        ConfigError: one cannot be imported or is nothing to call.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._named = {name: _imported(name, path) for name, path in paths.items()}
        self._unpickled: OrderedDict[str, Processor] = OrderedDict()

    @property
    def num_unpickled(self) -> int:
        """Processors of clients that are kept."""
        return len(self._unpickled)

    def apply(self, logits: Tensor, calls: Sequence[ProcessorCall], places: NDArray[np.int64]) -> dict[int, str]:
        """Change logits in place.

        Args:
            logits: (R, V) float32.
            calls: Who asks for what.
            places: (B,) row of `logits` for each row of the batch.

        Returns:
            What went wrong, by row of the batch.
        """
        failures: dict[int, str] = {}
        groups: dict[tuple[str, bool], list[ProcessorCall]] = {}
        for call in calls:
            groups.setdefault((call.name, call.is_pickled), []).append(call)
        for group in groups.values():
            try:
                processor = self._find(group[0])
            except Exception as error:
                logger.warning("a custom logit processor cannot be loaded: %r", error)
                failures.update((call.row, f"cannot be loaded: {_describe(error)}") for call in group)
                continue
            try:
                _run(processor, logits, group, places)
            except Exception as error:
                if len(group) == 1:
                    failures[group[0].row] = f"failed: {_describe(error)}"
                    continue
                failures.update(_run_singly(processor, logits, group, places))
        return failures

    def check(
        self, logits: Tensor, calls: Sequence[ProcessorCall], places: NDArray[np.int64], failures: dict[int, str]
    ) -> dict[int, str]:
        """Find rows that leave nothing to draw, once token masks were applied; they and those that failed become all 0.

        Args:
            logits: (R, V) float32, changed in place.
            calls: Who asked for what.
            places: (B,) row of `logits` for each row of the batch.
            failures: What went wrong before, by row of the batch.

        Returns:
            All that went wrong.
        """
        if not calls:
            return failures
        found = dict(failures)
        rows = places[[call.row for call in calls]].tolist()
        highest = logits[rows].amax(dim=-1).tolist()
        for call, row, value in zip(calls, rows, highest, strict=True):
            if call.row not in found and not -np.inf < value < np.inf:
                found[call.row] = f"left no token to draw: the highest logit is {value}"
            if call.row in found:
                logits[row].zero_()
        return found

    def _find(self, call: ProcessorCall) -> Processor:
        if not call.is_pickled:
            return self._named[call.name]
        if call.name not in self._unpickled:
            self._unpickled[call.name] = _instance(pickle.loads(bytes.fromhex(call.name)))
            if len(self._unpickled) > MAX_UNPICKLED:
                self._unpickled.popitem(last=False)
        self._unpickled.move_to_end(call.name)
        return self._unpickled[call.name]


def _run(processor: Processor, logits: Tensor, calls: Sequence[ProcessorCall], places: NDArray[np.int64]) -> None:
    rows = torch.from_numpy(places[[call.row for call in calls]]).to(logits.device)
    chosen = logits[rows]
    changed = processor(chosen, [dict(call.params) for call in calls])
    if not isinstance(changed, Tensor) or changed.shape != chosen.shape:
        shown = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise TypeError(f"it returned {shown}; it must return a tensor of shape {tuple(chosen.shape)}")
    logits[rows] = changed.to(logits.dtype)


def _run_singly(
    processor: Processor, logits: Tensor, calls: Sequence[ProcessorCall], places: NDArray[np.int64]
) -> dict[int, str]:
    failures = {}
    for call in calls:
        try:
            _run(processor, logits, [call], places)
        except Exception as error:
            failures[call.row] = f"failed: {_describe(error)}"
    return failures


def _imported(name: str, path: str) -> Processor:
    module, _, attribute = path.partition(":")
    try:
        return _instance(getattr(importlib.import_module(module), attribute))
    except Exception as error:
        raise ConfigError(f"custom_logit_processor {name}={path} cannot be used: {_describe(error)}") from error


def _instance(value: Any) -> Processor:
    processor = value() if isinstance(value, type) else value
    if not callable(processor):
        raise TypeError(f"{processor!r} cannot be called")
    return processor  # type: ignore[no-any-return]


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

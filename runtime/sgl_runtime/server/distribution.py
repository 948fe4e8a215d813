"""Distribution: how many values were how large, counted at little cost for each."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Distribution:
    """Counts values by upper bounds.

    Args:
        bounds: In order; a value counts at the first one that it does not exceed.

    Attributes:
        sum: Of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulated(self) -> list[tuple[str, float]]:
        """For each bound, as a label, how many values do not exceed it; the last bound is infinite."""
        labels = [*map(repr, map(float, self._bounds)), "+Inf"]
        return list(zip(labels, accumulate(self._counts), strict=True))

"""Segments: room in one array, given out in runs."""

from bisect import insort


class Segments:
    """First fit; neighbours that are free become one.

    Args:
        size: Entries of the array.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[tuple[int, int]] = [(0, size)] if size else []
        self._taken: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """Entries that are not taken."""
        return sum(count for _, count in self._free)

    def take(self, count: int) -> int | None:
        """The first entry of a run, None when no run is long enough; a run of no entries takes no room."""
        if count == 0:
            return 0
        for index, (start, length) in enumerate(self._free):
            if length >= count:
                rest = [(start + count, length - count)] if length > count else []
                self._free[index : index + 1] = rest
                self._taken[start] = count
                return start
        return None

    def give_back(self, start: int, count: int) -> None:
        """Free a run that was taken."""
        if count == 0:
            return
        assert self._taken.pop(start) == count, "a run is given back that was not taken"
        insort(self._free, (start, count))
        merged: list[tuple[int, int]] = []
        for each, length in self._free:
            if merged and merged[-1][0] + merged[-1][1] == each:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((each, length))
        self._free = merged

"""Caches of what has been compiled, bounded by memory and used by all compiling threads."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows how much memory it takes."""

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        ...


Kept = TypeVar("Kept", bound=Sized)


class SizedCache(Generic[Kept]):
    """The most recently used values by what they stand for.

    Args:
        max_bytes: Memory that the values may take; one value is kept in any case.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._values: OrderedDict[Hashable, Kept] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """The value of a key, made if it is not there."""
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
                return known
        # Made outside of the lock: two threads may make the same one, which costs time but no correctness.
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self._num_bytes += made.size_bytes
            while self._num_bytes > self._max_bytes and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._num_bytes -= oldest.size_bytes
        return made

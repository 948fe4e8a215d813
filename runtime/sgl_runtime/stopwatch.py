"""Stopwatch: how long the parts of a start took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by part, in the order in which the parts came; it runs from when it is made."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._parts: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done inside counts as this part."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._parts[name] = self._parts.get(name, 0.0) + time.monotonic() - begin

    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._begin

    def fields(self) -> str:
        """All of it and its parts, as fields of a log line."""
        return " ".join(f"{name}={value:.2f}" for name, value in {"seconds": self.seconds(), **self._parts}.items())

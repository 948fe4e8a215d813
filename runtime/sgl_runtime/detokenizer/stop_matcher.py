"""StopMatcher: how much of the end of an output may still become one stop string."""


class StopMatcher:
    """Follows an output byte by byte; the cost of a byte does not depend on the stop's length.

    Args:
        stop: The stop string in UTF-8, not empty.

    Attributes:
        matched_len: Length of the longest end of the output that is a beginning of the stop, and not all of it.

    Source: Knuth, Morris and Pratt, "Fast pattern matching in strings", 1977.
    """

    def __init__(self, stop: bytes) -> None:
        self._stop = stop
        self._fallback = _borders(stop)
        self.matched_len = 0

    def feed(self, data: bytes) -> None:
        """Append bytes to the output."""
        stop, fallback, matched = self._stop, self._fallback, self.matched_len
        for byte in data:
            while matched and stop[matched] != byte:
                matched = fallback[matched]
            if stop[matched] == byte:
                matched += 1
                if matched == len(stop):
                    matched = fallback[matched]
        self.matched_len = matched


def _borders(pattern: bytes) -> list[int]:
    """For each length, the longest proper beginning of that part of the pattern which is also its end."""
    borders = [0, 0]
    for byte in pattern[1:]:
        length = borders[-1]
        while length and pattern[length] != byte:
            length = borders[length]
        borders.append(length + 1 if pattern[length] == byte else 0)
    return borders

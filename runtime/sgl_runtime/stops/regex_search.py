"""RegexSearch: where an output that comes byte by byte matches a stop regex."""

from sgl_runtime.stops.stop_automaton import StopAutomaton


class RegexSearch:
    """Tries a match from every byte on, all at once.

    Beginnings that have led to the same state go the same way from there, so only the earliest of them is followed:
    a byte costs at most as many steps as the automaton has states, whatever the regex.

    Args:
        automaton: The regex; it does not match the empty text.

    Attributes:
        num_bytes: Bytes that were fed.
        match: Begin and end of the match that begins first, of several such the longest; None while there is none.
    """

    def __init__(self, automaton: StopAutomaton) -> None:
        self.regex = automaton.regex
        self.num_bytes = 0
        self.match: tuple[int, int] | None = None
        self._automaton = automaton
        self._table = memoryview(automaton.table).cast("i")
        # State -> the earliest beginning that led there, in order of the beginnings.
        self._open: dict[int, int] = {}

    @property
    def open_from(self) -> int:
        """First byte from which the output so far may still become a match; `num_bytes` where there is none."""
        return next(iter(self._open.values()), self.num_bytes)

    def feed(self, data: bytes) -> None:
        """Append bytes to the output."""
        table, width = self._table, self._automaton.num_classes
        classes, accepting = self._automaton.byte_classes, self._automaton.accepting
        for byte in data:
            column = classes[byte]
            self._open.setdefault(0, self.num_bytes)
            self.num_bytes += 1
            reached: dict[int, int] = {}
            ended: int | None = None
            for state, begin in self._open.items():
                target = table[state * width + column]
                if target < 0 or target in reached:
                    continue
                reached[target] = begin
                if ended is None and accepting[target]:
                    ended = begin
            self._open = reached
            if ended is not None and (self.match is None or ended <= self.match[0]):
                self.match = (ended, self.num_bytes)

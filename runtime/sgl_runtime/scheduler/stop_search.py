"""StopSearch: the stop strings and stop regexes of one request in its output."""

from collections.abc import Sequence
from dataclasses import dataclass

from sgl_runtime.stops.regex_search import RegexSearch
from sgl_runtime.stops.stop_automaton import StopAutomaton


@dataclass(frozen=True)
class StopMatch:
    """What ended an output.

    Attributes:
        text: What matched.
        regex: The regex that it matched; None for a stop string.
    """

    text: str
    regex: str | None


class StopSearch:
    """Looks at an output as it grows.

    Args:
        strings: Stop strings, none empty.
        automata: Stop regexes.
    """

    def __init__(self, strings: Sequence[str], automata: Sequence[StopAutomaton]) -> None:
        self._strings = [string.encode() for string in strings]
        self._longest = max(map(len, self._strings), default=0)
        self._searches = [RegexSearch(automaton) for automaton in automata]
        self._output = bytearray()

    def feed(self, data: bytes) -> StopMatch | None:
        """Append the bytes of a token; the match that begins first, of several such the longest."""
        begin = max(0, len(self._output) - self._longest + 1)
        self._output += data
        found: list[tuple[int, int, str | None]] = []
        for raw in self._strings:
            position = self._output.find(raw, begin)
            if position >= 0:
                found.append((position, -(position + len(raw)), None))
        for search in self._searches:
            search.feed(data)
            if search.match is not None:
                found.append((search.match[0], -search.match[1], search.regex))
        if not found:
            return None
        first, minus_end, regex = min(found, key=lambda match: match[:2])
        return StopMatch(self._output[first:-minus_end].decode(errors="replace"), regex)


def stop_search(strings: Sequence[str], automata: Sequence[StopAutomaton]) -> StopSearch | None:
    """The search of a request; None where it has neither stop strings nor regexes."""
    return StopSearch(strings, automata) if strings or automata else None

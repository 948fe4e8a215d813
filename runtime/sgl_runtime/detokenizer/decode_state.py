"""DecodeState: the output of one request as bytes, and how much of it may be shown."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sgl_runtime.detokenizer.stop_matcher import StopMatcher
from sgl_runtime.ipc.messages import DetokenizeStart
from sgl_runtime.stops.regex_search import RegexSearch
from sgl_runtime.tokenizer.vocabulary import Vocabulary

_MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True)
class FinalText:
    """The end of an output.

    Attributes:
        text: What is left to show.
        num_text_ids: How many ids lie wholly inside the whole text.
        text_tail: Text after the last of them.
    """

    text: str
    num_text_ids: int
    text_tail: str


class DecodeState:
    """Decodes one request.

    Text is cut only where a character begins, so the pieces put together are the text decoded at once.  What is held
    back: a beginning of a character (3 bytes), of a stop string, or of what a stop regex may still come to match.

    Args:
        start: How this request is decoded.
        vocabulary: Bytes of each id.
    """

    def __init__(self, start: DetokenizeStart, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._skipped_ids = vocabulary.special_ids if start.skip_special_tokens else frozenset()
        self._trims_stop = not start.no_stop_trim
        self._stops = [stop.encode() for stop in start.stop]
        self._matchers = [StopMatcher(stop) for stop in self._stops]
        self._searches = [RegexSearch(automaton) for automaton in start.stop_automata]
        self._output = bytearray()
        self._num_shown_bytes = 0
        # Where each id ends in the output.
        self._id_ends: list[int] = []

    def append(self, ids: Sequence[int]) -> None:
        """Add generated ids to the output."""
        table = self._vocabulary.token_bytes
        begin = len(self._output)
        for token_id in ids:
            if token_id not in self._skipped_ids and token_id < len(table):
                self._output += table[token_id]
            self._id_ends.append(len(self._output))
        new_bytes = bytes(self._output[begin:])
        for matcher in self._matchers:
            matcher.feed(new_bytes)
        for search in self._searches:
            search.feed(new_bytes)

    def take_text(self) -> str:
        """Text that can be shown now and was not shown before."""
        held = max((matcher.matched_len for matcher in self._matchers), default=0)
        end = min(len(self._output) - held, _whole_characters_end(self._output))
        end = min(end, *(search.open_from for search in self._searches)) if self._searches else end
        return self._show_until(end)

    def finish(self, *, at_stop_string: bool) -> FinalText:
        """The rest of the text.

        Args:
            at_stop_string: Whether the output ended because it holds a stop string, or a match of a stop regex; it is
                then cut there, unless the request wants to keep it.
        """
        end = self._first_stop() if at_stop_string and self._trims_stop else len(self._output)
        num_text_ids = bisect_right(self._id_ends, end)
        # A token boundary inside a character is no place to cut text: step back to one that is.
        while num_text_ids and self._splits_character(self._id_ends[num_text_ids - 1], end):
            num_text_ids -= 1
        tail_begin = self._id_ends[num_text_ids - 1] if num_text_ids else 0
        tail = self._output[tail_begin:end].decode(errors="replace")
        return FinalText(self._show_until(end), num_text_ids, tail)

    def _show_until(self, end: int) -> str:
        begin, self._num_shown_bytes = self._num_shown_bytes, max(end, self._num_shown_bytes)
        return self._output[begin : self._num_shown_bytes].decode(errors="replace")

    def _first_stop(self) -> int:
        # Nothing from the first byte of a match on was shown: it was a beginning of the stop until this step.
        found = [self._output.find(stop, self._num_shown_bytes) for stop in self._stops]
        found += [search.match[0] for search in self._searches if search.match is not None]
        return min((position for position in found if position >= 0), default=len(self._output))

    def _splits_character(self, position: int, end: int) -> bool:
        return position < end and _is_continuation(self._output[position])


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _whole_characters_end(data: bytearray) -> int:
    """Where an unfinished UTF-8 character at the end of `data` begins, or the end."""
    for begin in range(len(data) - 1, max(len(data) - _MAX_CHARACTER_BYTES, -1), -1):
        byte = data[begin]
        if not _is_continuation(byte):
            return begin if len(data) - begin < _character_length(byte) else len(data)
    return len(data)


def _character_length(lead: int) -> int:
    """Bytes of the character that begins with `lead`; 1 for a byte that begins none."""
    if 0xC2 <= lead <= 0xDF:
        return 2
    if 0xE0 <= lead <= 0xEF:
        return 3
    return 4 if 0xF0 <= lead <= 0xF4 else 1

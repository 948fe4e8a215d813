"""ItemLogprobs: which tokens are behind the text of a message, where others are behind thinking and calls."""

from bisect import bisect_left, bisect_right
from typing import Any

Entry = dict[str, Any]


class ItemLogprobs:
    """Takes the log probabilities of all tokens of a reply, and gives those of its messages.

    A message that begins the reply gets them as it grows.  What stands in front of any other one was told apart by its
    text alone, so its tokens are found when it is whole: where its text stands among the bytes of the tokens.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._begins: list[int] = []
        self._raw = bytearray()
        self._num_given = 0
        self._num_shown_bytes = 0
        # Up to here the bytes belong to items that are whole.
        self._position = 0

    def add(self, entries: list[Entry]) -> None:
        """More tokens."""
        for entry in entries:
            self._begins.append(len(self._raw))
            self._raw += bytes(entry["bytes"])
        self._entries += entries

    def of_beginning(self, text: str) -> list[Entry]:
        """The tokens behind the next text of a message that begins the reply."""
        self._num_shown_bytes += len(text.encode())
        return self._give(self._num_given, bisect_left(self._begins, self._num_shown_bytes))

    def rest(self) -> list[Entry]:
        """All that was not given yet."""
        return self._give(self._num_given, len(self._entries))

    def of_message(self, text: str, *, is_last: bool) -> list[Entry]:
        """The tokens behind a whole message that stands behind other items.

        Args:
            text: Its text.
            is_last: Whether the reply ends with it; then its last token, which has no text, is one of them.
        """
        wanted = text.encode()
        begin = self._raw.rfind(wanted, self._position) if is_last else self._raw.find(wanted, self._position)
        if begin < 0:
            # Its text was put together anew, as where a message goes on behind a mark.
            return []
        self._position = begin + len(wanted)
        end = len(self._entries) if is_last else bisect_left(self._begins, self._position)
        return self._give(max(0, bisect_right(self._begins, begin) - 1), end)

    def pass_over(self, text: str) -> None:
        """An item that shows no log probabilities is whole."""
        wanted = text.encode()
        begin = self._raw.find(wanted, self._position)
        if begin >= 0:
            self._position = begin + len(wanted)

    def _give(self, begin: int, end: int) -> list[Entry]:
        self._num_given = max(begin, end)
        return self._entries[begin:end]

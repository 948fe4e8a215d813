"""RegexCursor: a place in the text of a regex; what every part of the parser reads with."""

import re

from sgl_runtime.errors import GrammarError

_REPEAT = re.compile(r"\{(?:([0-9]+)(?:(,)([0-9]*))?|,([0-9]*))\}")
_GROUP_NAME = re.compile(r"(\w+)>")


class RegexCursor:
    """A cursor over the text of a regex.

    Args:
        text: The regex.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.position >= len(self.text)

    def peek(self) -> str:
        """The next character, "" at the end."""
        return self.text[self.position : self.position + 1]

    def next(self) -> str:
        """Take the next character; there must be one."""
        char = self.text[self.position]
        self.position += 1
        return char

    def next_or(self, complaint: str) -> str:
        """Take the next character.

        Raises:
            GrammarError: with this complaint, at the end of the regex.
        """
        if self.at_end:
            raise self.error(complaint, self.position)
        return self.next()

    def take(self, expected: str) -> bool:
        """Take a text if it comes next."""
        if not self.text.startswith(expected, self.position):
            return False
        self.position += len(expected)
        return True

    def error(self, complaint: str, position: int) -> GrammarError:
        """The error for what stands at a position."""
        shown = self.text[position : position + 20]
        place = f"at position {position}" + (f", {shown!r}" if shown else ", the end")
        return GrammarError(f"regex: {complaint} ({place})")

    def peek_repeat(self) -> re.Match[str] | None:
        """The counted repeat whose brace is the character before the cursor or at it, if it is one."""
        start = self.position - 1 if self.position and self.text[self.position - 1] == "{" else self.position
        return _REPEAT.match(self.text, start)

    def take_repeat(self, limit: int) -> tuple[int, int | None] | None:
        """Take `{m}`, `{m,}`, `{,n}` or `{m,n}` if it comes next; any other brace is a literal."""
        match = _REPEAT.match(self.text, self.position)
        if match is None:
            return None
        least_text, comma, most_text, only_most = match.groups()
        least = int(least_text or "0")
        if only_most is not None:
            most = int(only_most) if only_most else None
        elif comma is None:
            most = least
        else:
            most = int(most_text) if most_text else None
        if max(least, most or 0) > limit:
            raise self.error("the repetition number is too large", self.position)
        self.position = match.end()
        return least, most

    def read_group_name(self, start: int) -> None:
        """Take `name>`."""
        match = _GROUP_NAME.match(self.text, self.position)
        if match is None or not match.group(1).isidentifier():
            raise self.error("bad or missing group name", start)
        self.position = match.end()

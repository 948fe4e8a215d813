"""JsonScanner: where a JSON value ends, in text that arrives in pieces."""

import re
from enum import Enum, auto

MAX_DEPTH = 128
MAX_NUMBER_CHARACTERS = 1024

_SPACE = " \t\r\n"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = ("true", "false", "null")
_HEX = "0123456789abcdefABCDEF"


class _State(Enum):
    VALUE = auto()
    ITEM_OR_END = auto()
    KEY_OR_END = auto()
    KEY = auto()
    COLON = auto()
    BEHIND = auto()
    STRING = auto()
    ESCAPE = auto()
    WORD = auto()


class JsonScanner:
    """Follows one value.

    A line break or another control character in a string, which JSON forbids and models write, is taken as its escape.

    Attributes:
        is_done: Whether the value is whole.
        is_wrong: Whether the text is no JSON; what was read before is the beginning of some.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.is_wrong = False
        self._state = _State.VALUE
        # The brackets that are open.
        self._open: list[str] = []
        self._is_key = False
        self._word = ""
        self._num_hex = 0

    def feed(self, text: str, begin: int = 0) -> tuple[int, str]:
        """Follow more text.

        Args:
            text: The text.
            begin: Where in it the new text begins.

        Returns:
            How many of its characters belong to the value, and those as JSON has them.
        """
        at = begin
        shown: list[str] = []
        while at < len(text) and not self.is_done and not self.is_wrong:
            if self._state is _State.STRING and (plain := _PLAIN.match(text, at)):
                shown.append(plain.group())
                at = plain.end()
                continue
            char = text[at]
            if self._state is _State.WORD and not (char.isalnum() or char in "+-."):
                self._end_word()
                continue
            seen = self._take(char)
            if self.is_wrong:
                break
            shown.append(seen)
            at += 1
        return at - begin, "".join(shown)

    def finish(self) -> None:
        """The text is over: a number at its end is whole."""
        if self._state is _State.WORD:
            self._end_word()

    def _take(self, char: str) -> str:
        match self._state:
            case _State.STRING:
                return self._in_string(char)
            case _State.ESCAPE:
                self._escaped(char)
            case _State.WORD:
                self._word += char
                self.is_wrong = len(self._word) > MAX_NUMBER_CHARACTERS
            case _ if char in _SPACE:
                pass
            case _State.COLON:
                self._state = _State.VALUE
                self.is_wrong = char != ":"
            case _State.BEHIND:
                self._behind(char)
            case _State.KEY | _State.KEY_OR_END if char == '"':
                self._state, self._is_key = _State.STRING, True
            case _State.KEY_OR_END | _State.ITEM_OR_END if char in "}]":
                self._close(char)
            case _State.VALUE | _State.ITEM_OR_END:
                self._begin_value(char)
            case _:
                self.is_wrong = True
        return char

    def _begin_value(self, char: str) -> None:
        if char == '"':
            self._state, self._is_key = _State.STRING, False
        elif char in "{[" and len(self._open) < MAX_DEPTH:
            self._open.append(char)
            self._state = _State.KEY_OR_END if char == "{" else _State.ITEM_OR_END
        elif char.isalnum() or char == "-":
            self._state, self._word = _State.WORD, char
        else:
            self.is_wrong = True

    def _in_string(self, char: str) -> str:
        if char == "\\":
            self._state, self._num_hex = _State.ESCAPE, 0
        elif char == '"':
            if self._is_key:
                self._state = _State.COLON
            else:
                self._end_value()
        elif char < " ":
            return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\u{ord(char):04x}")
        return char

    def _escaped(self, char: str) -> None:
        if self._num_hex:
            self._num_hex -= 1
            self.is_wrong = char not in _HEX
        elif char == "u":
            self._num_hex = 4
        else:
            self.is_wrong = char not in '"\\/bfnrt'
        if not self._num_hex:
            self._state = _State.STRING

    def _behind(self, char: str) -> None:
        if char == ",":
            self._state = _State.KEY if self._open[-1] == "{" else _State.VALUE
        elif char in "}]":
            self._close(char)
        else:
            self.is_wrong = True

    def _close(self, char: str) -> None:
        self.is_wrong = self._open[-1] != {"}": "{", "]": "["}[char]
        if not self.is_wrong:
            self._open.pop()
            self._end_value()

    def _end_word(self) -> None:
        self.is_wrong = self._word not in _WORDS and not _NUMBER.fullmatch(self._word)
        if not self.is_wrong:
            self._end_value()

    def _end_value(self) -> None:
        self._state = _State.BEHIND
        self.is_done = not self._open

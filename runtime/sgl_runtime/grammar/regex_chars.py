"""CharReader: reads a regex character by character; escapes, classes and counts are read here."""

import re
import unicodedata

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.char_set import EMPTY_SET, MAX_CODE_POINT, CharSet
from sgl_runtime.grammar.regex_tree import Chars, RegexFlags, Shorthand
from sgl_runtime.grammar.unicode_classes import category

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS = "0123456789abcdefABCDEF"
_OCTAL_DIGITS = "01234567"
_REPEAT = re.compile(r"\{(?:([0-9]+)(?:(,)([0-9]*))?|,([0-9]*))\}")
_GROUP_NAME = re.compile(r"(\w+)>")
_BRACED = re.compile(r"\{([^{}]*)\}")


class CharReader:
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

    def literal(self, char: str, flags: RegexFlags) -> Chars:
        """One character that stands for itself."""
        return Chars(CharSet.of(char), flags=flags)

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

    def read_escape(self, start: int, flags: RegexFlags) -> Chars:
        """Take what follows a backslash outside of a class (anchors are read elsewhere)."""
        digit = self.peek()
        if digit.isascii() and digit.isdigit() and digit != "0":
            octal = self.text[self.position : self.position + 3]
            if not (len(octal) == 3 and all(each in _OCTAL_DIGITS for each in octal)):
                raise self.error("back references are not supported", start)
        item = self._escaped_item(start, flags)
        return item if isinstance(item, Chars) else self.literal(item, flags)

    def read_class(self, start: int, flags: RegexFlags) -> Chars:
        """Take a class up to its closing bracket; the opening one is taken already."""
        negated = self.take("^")
        listed: list[tuple[int, int]] = []
        shorthands: list[Shorthand] = []
        categories = EMPTY_SET
        first = True
        while first or not self.take("]"):
            first = False
            item_at = self.position
            item = self._class_item(start, flags)
            if not self._is_range():
                if isinstance(item, str):
                    listed.append((ord(item), ord(item)))
                else:
                    shorthands.extend(item.shorthands)
                    categories = categories | item.resolve(generous=False) if not item.shorthands else categories
                continue
            self.take("-")
            high = self._class_item(start, flags)
            if not isinstance(item, str) or not isinstance(high, str) or ord(item) > ord(high):
                raise self.error(f"bad character range {self.text[item_at : self.position]}", item_at)
            listed.append((ord(item), ord(high)))
        return Chars(CharSet.from_ranges(listed) | categories, tuple(shorthands), negated=negated, flags=flags)

    def _is_range(self) -> bool:
        return self.peek() == "-" and self.text[self.position + 1 : self.position + 2] not in ("]", "")

    def _class_item(self, start: int, flags: RegexFlags) -> Chars | str:
        at = self.position
        char = self.next_or("unterminated character set")
        if char != "\\":
            return char
        if self.take("b"):
            return "\b"
        return self._escaped_item(at, flags)

    def _escaped_item(self, start: int, flags: RegexFlags) -> Chars | str:
        letter = self.next_or("bad escape (end of pattern)")
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in "dwsDWS":
            shorthand = Shorthand(letter.lower(), negated=letter.isupper(), charset=flags.charset)
            return Chars(EMPTY_SET, (shorthand,))
        if letter in "pP":
            return self._category(start, letter == "P", flags)
        if letter in _HEX_LENGTHS:
            return self._character(self._digits(_HEX_DIGITS, _HEX_LENGTHS[letter], start), 16, start)
        if letter == "N":
            return self._named(start)
        if letter.isascii() and letter.isdigit():
            return self._octal(letter, start)
        if letter.isascii() and letter.isalpha():
            raise self.error(f"bad escape \\{letter}", start)
        return letter

    def _digits(self, allowed: str, length: int, start: int) -> str:
        digits = self.text[self.position : self.position + length]
        if len(digits) < length or any(digit not in allowed for digit in digits):
            raise self.error(f"incomplete escape {self.text[start : self.position]}", start)
        self.position += length
        return digits

    def _octal(self, first: str, start: int) -> str:
        digits = first
        while len(digits) < 3 and self.peek() and self.peek() in _OCTAL_DIGITS:
            digits += self.next()
        if any(digit not in _OCTAL_DIGITS for digit in digits) or int(digits, 8) > 0o377:
            raise self.error(f"bad octal escape \\{digits}", start)
        return chr(int(digits, 8))

    def _character(self, digits: str, base: int, start: int) -> str:
        point = int(digits, base)
        if point > MAX_CODE_POINT:
            raise self.error("the code point is past U+10FFFF", start)
        return chr(point)

    def _named(self, start: int) -> str:
        match = _BRACED.match(self.text, self.position)
        try:
            char = unicodedata.lookup(match.group(1)) if match else ""
        except KeyError:
            char = ""
        if match is None or len(char) != 1:
            raise self.error("unknown character name", start)
        self.position = match.end()
        return char

    def _category(self, start: int, negated: bool, flags: RegexFlags) -> Chars:
        match = _BRACED.match(self.text, self.position)
        name = match.group(1) if match else self.peek()
        self.position = match.end() if match else self.position + len(name)
        if name.startswith("^"):
            name, negated = name[1:], not negated
        members = category(name)
        if members is None:
            raise self.error(f"unknown or unsupported character property {name!r}; general categories are known", start)
        return Chars(members.complement() if negated else members, flags=flags)

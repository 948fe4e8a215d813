r"""Parser of regexes in the syntax of Python's `re`, with `\p{...}` for general categories.

What cannot be a regular language (back references, atomic groups, conditions) is refused with its position.
"""

from sgl_runtime.grammar.regex_chars import CharReader
from sgl_runtime.grammar.regex_tree import (
    ANY,
    DOLLAR,
    END,
    LINE_END,
    LINE_START,
    NEWLINE,
    START,
    Alternation,
    Chars,
    Concat,
    Look,
    Node,
    RegexFlags,
    Repeat,
    word_boundary,
)

MAX_REPEAT = 2**31 - 1
_MAX_DEPTH = 100
_SPACES = " \t\n\r\f\v"


def parse_regex(pattern: str) -> Node:
    """Parse a whole regex.

    Raises:
        GrammarError: the regex is malformed or not supported; the message names the position.
    """
    return _Parser(CharReader(pattern)).parse()


class _Parser:
    def __init__(self, reader: CharReader) -> None:
        self._reader = reader
        self._flags = RegexFlags()
        self._depth = 0

    def parse(self) -> Node:
        node = self._alternation()
        if not self._reader.at_end:
            raise self._reader.error("unbalanced parenthesis", self._reader.position)
        return node

    def _alternation(self) -> Node:
        options = [self._concatenation()]
        while self._reader.take("|"):
            options.append(self._concatenation())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _concatenation(self) -> Node:
        parts: list[Node] = []
        while not self._reader.at_end and self._reader.peek() not in "|)":
            if self._flags.verbose and self._skip_blank():
                continue
            start = self._reader.position
            node = self._atom()
            if node is not None:
                parts.append(self._quantified(node, start))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _skip_blank(self) -> bool:
        reader = self._reader
        if reader.peek() in _SPACES:
            reader.next()
            return True
        if reader.take("#"):
            while not reader.at_end and reader.next() != "\n":
                pass
            return True
        return False

    def _atom(self) -> Node | None:
        """The next item without its quantifier; None for one that matches nothing by itself and takes none."""
        reader = self._reader
        start = reader.position
        char = reader.next()
        if char == "(":
            return self._group(start)
        if char == "[":
            return reader.read_class(start, self._flags)
        if char == ".":
            return ANY if self._flags.dot_all else Chars(NEWLINE.listed, negated=True)
        if char == "^":
            return LINE_START if self._flags.multiline else START
        if char == "$":
            return LINE_END if self._flags.multiline else DOLLAR
        if char == "\\":
            return self._escape(start)
        if char in "*+?" or (char == "{" and reader.peek_repeat() is not None):
            raise reader.error("nothing to repeat", start)
        return reader.literal(char, self._flags)

    def _escape(self, start: int) -> Node:
        reader = self._reader
        letter = reader.peek()
        if letter == "A":
            reader.next()
            return START
        if letter == "Z":
            reader.next()
            return END
        if letter in ("b", "B"):
            reader.next()
            return word_boundary(self._flags.charset, negated=letter == "B")
        return reader.read_escape(start, self._flags)

    def _quantified(self, node: Node, start: int) -> Node:
        reader = self._reader
        count = self._quantifier()
        if count is None:
            return node
        if reader.take("+"):
            raise reader.error("possessive quantifiers are not supported", reader.position - 1)
        # Laziness picks among matches; the set of whole matches is the same.
        reader.take("?")
        again = reader.position
        if self._quantifier() is not None:
            raise reader.error("multiple repeat", again)
        least, most = count
        if most is not None and most < least:
            raise reader.error("min repeat greater than max repeat", start)
        if isinstance(node, Look):
            # Holding once is holding any number of times.
            return node if least else Repeat(node, 0, 1)
        return Repeat(node, least, most)

    def _quantifier(self) -> tuple[int, int | None] | None:
        reader = self._reader
        while self._flags.verbose and not reader.at_end and self._skip_blank():
            pass
        for mark, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if reader.take(mark):
                return count
        return reader.take_repeat(MAX_REPEAT)

    def _group(self, start: int) -> Node | None:
        reader = self._reader
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise reader.error(f"groups are nested more than {_MAX_DEPTH} deep", start)
        flags = self._flags
        node: Node | None
        if reader.take("?"):
            node, keep_flags = self._extension(start)
        else:
            node, keep_flags = self._alternation(), False
            self._close(start)
        if not keep_flags:
            self._flags = flags
        self._depth -= 1
        return node

    def _close(self, start: int) -> None:
        if not self._reader.take(")"):
            raise self._reader.error("missing ), unterminated subpattern", start)

    def _extension(self, start: int) -> tuple[Node | None, bool]:
        """A group that opens with `(?`: its node, and whether it changed the flags for what follows it."""
        reader = self._reader
        if reader.take("#"):
            while not reader.take(")"):
                if reader.at_end:
                    raise reader.error("missing ), unterminated comment", start)
                reader.next()
            return None, False
        for opening, ahead, negated in (
            ("=", True, False),
            ("!", True, True),
            ("<=", False, False),
            ("<!", False, True),
        ):
            if reader.take(opening):
                body = self._alternation()
                self._close(start)
                return Look(body, ahead=ahead, negated=negated), False
        if reader.take(">"):
            raise reader.error("atomic groups are not supported", start)
        if reader.take("("):
            raise reader.error("conditional groups are not supported", start)
        if reader.take("P="):
            raise reader.error("back references are not supported", start)
        if reader.take("P<"):
            reader.read_group_name(start)
        elif not reader.take(":"):
            return self._flag_group(start)
        body = self._alternation()
        self._close(start)
        return body, False

    def _flag_group(self, start: int) -> tuple[Node | None, bool]:
        reader = self._reader
        on = True
        seen = False
        while True:
            at = reader.position
            letter = reader.next_or("missing -, : or )")
            if letter == "-" and on:
                on = False
            elif letter in "aimsux" and not (letter in "au" and not on):
                self._flags = self._flags.with_letter(letter, on=on)
                seen = True
            elif letter == ":" and seen:
                body = self._alternation()
                self._close(start)
                return body, False
            elif letter == ")" and seen and on:
                if start != 0:
                    raise reader.error("global flags not at the start of the expression", start)
                return None, True
            elif letter == "L" and on:
                raise reader.error("flag L is not supported", at)
            else:
                raise reader.error(f"unknown extension ?{reader.text[start + 2 : at + 1]}", start)

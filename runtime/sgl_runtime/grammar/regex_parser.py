r"""Parser of regexes in the syntax of Python's `re`, with `\p{...}` for general categories, and of ECMAScript's.

In ECMAScript's syntax (JSON Schema's `pattern`) what only Python knows keeps Python's meaning.

What cannot be a regular language (back references, atomic groups, conditions) is refused with its position.
"""

from sgl_runtime.grammar.regex_chars import literal, read_class, read_escape
from sgl_runtime.grammar.regex_cursor import RegexCursor
from sgl_runtime.grammar.regex_tree import (
    ANY,
    DOLLAR,
    DOT,
    END,
    LINE_END,
    LINE_START,
    START,
    STRICT_DOLLAR,
    STRICT_DOT,
    Alternation,
    Chars,
    Charset,
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


def parse_regex(pattern: str, *, ecma: bool = False) -> Node:
    """Parse a whole regex.

    Args:
        pattern: The regex.
        ecma: Whether it is in the syntax of ECMAScript.

    Raises:
        GrammarError: the regex is malformed or not supported; the message names the position.
    """
    return _Parser(
        RegexCursor(pattern), RegexFlags(ecma=True, charset=Charset.SCHEMA) if ecma else RegexFlags()
    ).parse()


class _Parser:
    def __init__(self, cursor: RegexCursor, flags: RegexFlags) -> None:
        self._cursor = cursor
        self._flags = flags
        self._depth = 0

    def parse(self) -> Node:
        node = self._alternation()
        if not self._cursor.at_end:
            raise self._cursor.error("unbalanced parenthesis", self._cursor.position)
        return node

    def _alternation(self) -> Node:
        options = [self._concatenation()]
        while self._cursor.take("|"):
            options.append(self._concatenation())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _concatenation(self) -> Node:
        parts: list[Node] = []
        while not self._cursor.at_end and self._cursor.peek() not in "|)":
            if self._skip_ignored():
                continue
            start = self._cursor.position
            node = self._atom()
            if node is not None:
                parts.append(self._quantified(node, start))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _skip_ignored(self) -> bool:
        """Take a comment, or in verbose mode white space; returns whether there was some."""
        cursor = self._cursor
        start = cursor.position
        if cursor.take("(?#"):
            while cursor.next_or("missing ), unterminated comment") != ")":
                pass
        elif self._flags.verbose and cursor.peek() and cursor.peek() in _SPACES:
            cursor.next()
        elif self._flags.verbose and cursor.take("#"):
            while not cursor.at_end and cursor.next() != "\n":
                pass
        return cursor.position > start

    def _atom(self) -> Node | None:
        """The next item without its quantifier; None for flags that hold from here on."""
        cursor = self._cursor
        start = cursor.position
        char = cursor.next()
        if char == "(":
            return self._group(start)
        if char == "[":
            return read_class(cursor, start, self._flags)
        if char == ".":
            dot = STRICT_DOT if self._flags.ecma else DOT
            return ANY if self._flags.dot_all else dot
        if char == "^":
            return LINE_START if self._flags.multiline else START
        if char == "$":
            dollar = STRICT_DOLLAR if self._flags.ecma else DOLLAR
            return LINE_END if self._flags.multiline else dollar
        if char == "\\":
            return self._escape(start)
        if char in "*+?" or (char == "{" and cursor.peek_repeat() is not None):
            raise cursor.error("nothing to repeat", start)
        return literal(char, self._flags)

    def _escape(self, start: int) -> Node:
        cursor = self._cursor
        letter = cursor.peek()
        if letter == "A":
            cursor.next()
            return START
        if letter == "Z":
            cursor.next()
            return END
        if letter in ("b", "B"):
            cursor.next()
            return word_boundary(self._flags.charset, negated=letter == "B")
        return read_escape(cursor, start, self._flags)

    def _quantified(self, node: Node, start: int) -> Node:
        cursor = self._cursor
        count = self._quantifier()
        if count is None:
            return node
        if cursor.take("+"):
            raise cursor.error("possessive quantifiers are not supported", cursor.position - 1)
        # Laziness picks among matches; the set of whole matches is the same.
        cursor.take("?")
        again = cursor.position
        if self._quantifier() is not None:
            raise cursor.error("multiple repeat", again)
        least, most = count
        if most is not None and most < least:
            raise cursor.error("min repeat greater than max repeat", start)
        if self._cursor.text[start] != "(" and node is not STRICT_DOT and not isinstance(node, Chars):
            raise cursor.error("nothing to repeat: this is a place, not text", start)
        if isinstance(node, Look):
            # Holding once is holding any number of times.
            return node if least else Repeat(node, 0, 1)
        return Repeat(node, least, most)

    def _quantifier(self) -> tuple[int, int | None] | None:
        cursor = self._cursor
        while self._skip_ignored():
            pass
        for mark, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if cursor.take(mark):
                return count
        return cursor.take_repeat(MAX_REPEAT)

    def _group(self, start: int) -> Node | None:
        cursor = self._cursor
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise cursor.error(f"groups are nested more than {_MAX_DEPTH} deep", start)
        flags = self._flags
        node: Node | None
        if cursor.take("?"):
            node, keep_flags = self._extension(start)
        else:
            node, keep_flags = self._alternation(), False
            self._close(start)
        if not keep_flags:
            self._flags = flags
        self._depth -= 1
        return node

    def _close(self, start: int) -> None:
        if not self._cursor.take(")"):
            raise self._cursor.error("missing ), unterminated subpattern", start)

    def _extension(self, start: int) -> tuple[Node | None, bool]:
        """A group that opens with `(?`: its node, and whether it changed the flags for what follows it."""
        cursor = self._cursor
        for opening, ahead, negated in (
            ("=", True, False),
            ("!", True, True),
            ("<=", False, False),
            ("<!", False, True),
        ):
            if cursor.take(opening):
                body = self._alternation()
                self._close(start)
                return Look(body, ahead=ahead, negated=negated), False
        if cursor.take(">"):
            raise cursor.error("atomic groups are not supported", start)
        if cursor.take("("):
            raise cursor.error("conditional groups are not supported", start)
        if cursor.take("P="):
            raise cursor.error("back references are not supported", start)
        if cursor.take("P<") or (self._flags.ecma and cursor.take("<")):
            cursor.read_group_name(start)
        elif not cursor.take(":"):
            return self._flag_group(start)
        body = self._alternation()
        self._close(start)
        return body, False

    def _flag_group(self, start: int) -> tuple[Node | None, bool]:
        cursor = self._cursor
        on = True
        seen = False
        while True:
            at = cursor.position
            letter = cursor.next_or("missing -, : or )")
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
                    raise cursor.error("global flags not at the start of the expression", start)
                return None, True
            elif letter == "L" and on:
                raise cursor.error("flag L is not supported", at)
            else:
                raise cursor.error(f"unknown extension ?{cursor.text[start + 2 : at + 1]}", start)

"""The syntax tree of a regex.

The regexes of JSON schemas have more than one reading: ECMAScript and Python differ about `.`, `$` and shorthands.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from sgl_runtime.grammar.char_set import ANY_CHAR, EMPTY_SET, CharSet
from sgl_runtime.grammar.unicode_classes import ASCII_CLASSES, ECMA_SPACE, agreed_space, unicode_class, without_case


class Charset(Enum):
    r"""Which members a shorthand such as `\w` has."""

    BOTH = auto()  # what ASCII and Unicode agree on
    ASCII = auto()
    UNICODE = auto()
    ECMA = auto()
    SCHEMA = auto()  # what ECMAScript and Python's Unicode reading agree on


class Reader(Enum):
    """Who reads the regex of a JSON schema."""

    ALL = auto()  # it holds only where it holds for ECMAScript and for Python
    ECMA = auto()
    PYTHON = auto()


@dataclass(frozen=True)
class RegexFlags:
    """The flags in force at some place of a regex; `ecma` is for the syntax of JSON Schema's `pattern`."""

    ecma: bool = False
    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False
    charset: Charset = Charset.BOTH

    def with_letter(self, letter: str, *, on: bool) -> "RegexFlags":
        """These flags with the one of a flag letter set or cleared."""
        if letter == "a":
            return replace(self, charset=Charset.ASCII)
        if letter == "u":
            return replace(self, charset=Charset.UNICODE)
        if letter == "i":
            return replace(self, ignore_case=on)
        if letter == "m":
            return replace(self, multiline=on)
        if letter == "s":
            return replace(self, dot_all=on)
        assert letter == "x", letter
        return replace(self, verbose=on)


@dataclass(frozen=True)
class Shorthand:
    r"""`\d`, `\w`, `\s` or, negated, `\D`, `\W`, `\S`."""

    letter: str
    negated: bool
    charset: Charset

    @property
    def has_readings(self) -> bool:
        """Whether it is up to the reader which members it has."""
        return self.charset in (Charset.BOTH, Charset.SCHEMA)

    def resolve(self, *, generous: bool) -> CharSet:
        """The members; `generous` takes those of either reading, otherwise those of both."""
        wide = generous != self.negated
        use_unicode = self.charset is Charset.UNICODE or (self.has_readings and wide)
        members = unicode_class(self.letter) if use_unicode else ASCII_CLASSES[self.letter]
        if self.letter == "s" and self.has_readings and wide:
            members = members | ECMA_SPACE
        if self.letter == "s" and self.charset is Charset.SCHEMA and not wide:
            members = agreed_space()
        if self.letter == "s" and self.charset is Charset.ECMA:
            members = agreed_space() | ECMA_SPACE
        return members.complement() if self.negated else members


@dataclass(frozen=True)
class Chars:
    """One character of a set.

    Attributes:
        listed: Members that were spelled out.
        shorthands: Further members.
        negated: Whether the characters outside are meant.
        flags: Flags in force; they decide about case.
    """

    listed: CharSet
    shorthands: tuple[Shorthand, ...] = ()
    negated: bool = False
    flags: RegexFlags = field(default_factory=RegexFlags)

    def resolve(self, *, generous: bool) -> CharSet:
        """The characters; see `Shorthand.resolve` for `generous`."""
        members = self.listed
        for shorthand in self.shorthands:
            members = members | shorthand.resolve(generous=generous != self.negated)
        if self.flags.ignore_case:
            members = without_case(members, ascii_only=self.flags.charset is Charset.ASCII)
        return members.complement() if self.negated else members


@dataclass(frozen=True)
class Concat:
    """Parts one after the other; no parts: the empty string."""

    parts: tuple["Node", ...] = ()


@dataclass(frozen=True)
class Alternation:
    """One of several options."""

    options: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """`body` from `least` to `most` times; no upper limit when `most` is None."""

    body: "Node"
    least: int
    most: int | None


@dataclass(frozen=True)
class Look:
    """A condition on the text after (`ahead`) or before this place."""

    body: "Node"
    ahead: bool
    negated: bool


@dataclass(frozen=True)
class Reading:
    """What stands for different things to different readers.

    Attributes:
        narrow: What one reader takes it for; it holds only where `wide` does.
        wide: What the other reader takes it for.
        narrow_reader: Which of ECMA and PYTHON the one reader is.
    """

    narrow: "Node"
    wide: "Node"
    narrow_reader: Reader


Node = Chars | Concat | Alternation | Repeat | Look | Reading

ANY = Chars(ANY_CHAR)
NOTHING = Chars(EMPTY_SET)
NEWLINE = Chars(CharSet.of("\n"))
START = Look(ANY, ahead=False, negated=True)
END = Look(ANY, ahead=True, negated=True)
# `$` also holds before a line break that ends the text.
BEFORE_LAST_BREAK = Look(Concat((NEWLINE, END)), ahead=True, negated=False)
DOLLAR = Alternation((END, BEFORE_LAST_BREAK))
STRICT_DOLLAR = Reading(END, DOLLAR, Reader.ECMA)
DOT = Chars(NEWLINE.listed, negated=True)
STRICT_DOT = Reading(Chars(CharSet.of("\n\r\u2028\u2029"), negated=True), DOT, Reader.ECMA)
LINE_START = Alternation((START, Look(NEWLINE, ahead=False, negated=False)))
LINE_END = Alternation((END, Look(NEWLINE, ahead=True, negated=False)))


def word_boundary(charset: Charset, *, negated: bool) -> Node:
    r"""`\b`, or `\B` when negated, made of looks at the characters on both sides."""
    word = Chars(EMPTY_SET, (Shorthand("w", negated=False, charset=charset),))

    def side(*, ahead: bool, is_word: bool) -> Look:
        return Look(word, ahead=ahead, negated=not is_word)

    boundary = Alternation(
        tuple(
            Concat((side(ahead=False, is_word=before), side(ahead=True, is_word=before == negated)))
            for before in (True, False)
        )
    )
    if not negated:
        return boundary
    # In an empty text `\B` holds nowhere for Python up to 3.13.
    some_text = Alternation((Look(ANY, ahead=False, negated=False), Look(ANY, ahead=True, negated=False)))
    in_text = Concat((boundary, some_text))
    return Reading(in_text, boundary, Reader.PYTHON) if charset is Charset.SCHEMA else in_text


def disputes(node: Node) -> frozenset[str]:
    """What readers do not agree about in a tree: letters of shorthands, "" for anything else."""
    if isinstance(node, Chars):
        return frozenset(each.letter for each in node.shorthands if each.has_readings)
    if isinstance(node, Reading):
        return disputes(node.narrow) | {""}
    if isinstance(node, Concat | Alternation):
        parts = node.parts if isinstance(node, Concat) else node.options
        return frozenset().union(*map(disputes, parts))
    return disputes(node.body)


def read(node: Node, reader: Reader, *, in_negation: bool = False) -> Node:
    """A tree as a reader takes it, without `Reading` nodes.

    What holds for all readers stays apart in shorthands: `Chars.resolve` settles them.
    """
    if isinstance(node, Reading):
        takes_narrow = not in_negation if reader is Reader.ALL else reader is node.narrow_reader
        return read(node.narrow if takes_narrow else node.wide, reader, in_negation=in_negation)
    if isinstance(node, Chars):
        return node if reader is Reader.ALL else replace(node, shorthands=_read_shorthands(node.shorthands, reader))
    if isinstance(node, Concat):
        return Concat(tuple(read(part, reader, in_negation=in_negation) for part in node.parts))
    if isinstance(node, Alternation):
        return Alternation(tuple(read(option, reader, in_negation=in_negation) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(read(node.body, reader, in_negation=in_negation), node.least, node.most)
    return replace(node, body=read(node.body, reader, in_negation=in_negation != node.negated))


def _read_shorthands(shorthands: tuple[Shorthand, ...], reader: Reader) -> tuple[Shorthand, ...]:
    charset = Charset.ECMA if reader is Reader.ECMA else Charset.UNICODE
    return tuple(replace(each, charset=charset) if each.charset is Charset.SCHEMA else each for each in shorthands)

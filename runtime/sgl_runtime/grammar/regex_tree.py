"""The syntax tree of a regex."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from sgl_runtime.grammar.char_set import ANY_CHAR, EMPTY_SET, CharSet
from sgl_runtime.grammar.unicode_classes import ASCII_CLASSES, ECMA_SPACE, unicode_class, without_case


class Charset(Enum):
    r"""Which members a shorthand such as `\w` has."""

    BOTH = auto()  # what ASCII and Unicode agree on
    ASCII = auto()
    UNICODE = auto()


@dataclass(frozen=True)
class RegexFlags:
    """The flags in force at some place of a regex."""

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

    def resolve(self, *, generous: bool) -> CharSet:
        """The members; `generous` takes those of either reading, otherwise those of both."""
        wide = generous != self.negated
        use_unicode = self.charset is Charset.UNICODE or (self.charset is Charset.BOTH and wide)
        members = unicode_class(self.letter) if use_unicode else ASCII_CLASSES[self.letter]
        if self.letter == "s" and use_unicode and self.charset is Charset.BOTH:
            members = members | ECMA_SPACE
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


Node = Chars | Concat | Alternation | Repeat | Look

ANY = Chars(ANY_CHAR)
NOTHING = Chars(EMPTY_SET)
NEWLINE = Chars(CharSet.of("\n"))
START = Look(ANY, ahead=False, negated=True)
END = Look(ANY, ahead=True, negated=True)
# `$` also holds before a line break that ends the text.
BEFORE_LAST_BREAK = Look(Concat((NEWLINE, END)), ahead=True, negated=False)
DOLLAR = Alternation((END, BEFORE_LAST_BREAK))
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
    return Concat((boundary, some_text))

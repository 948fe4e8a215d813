"""JSON strings: free ones, with a length, with a pattern.

Free strings may spell a character in every way that JSON knows; lengths count characters, however they are spelled.
With a pattern a character has one spelling, the one that `json.dumps(..., ensure_ascii=False)` writes.
"""

import json
from dataclasses import dataclass

import numpy as np

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, intersect
from sgl_runtime.grammar.char_set import ANY_CHAR, CharSet
from sgl_runtime.grammar.graph import without_repeats
from sgl_runtime.grammar.json_schema.formats import format_dfa
from sgl_runtime.grammar.nfa import Nfa
from sgl_runtime.grammar.regex import search_to_dfa

_QUOTE = CharSet.of('"')
_BACKSLASH = CharSet.of("\\")
_CONTROL = CharSet.between("\0", "\x1f")
_MUST_ESCAPE = _QUOTE | _BACKSLASH | _CONTROL
_PLAIN = _MUST_ESCAPE.complement()
_HEX = CharSet.of("0123456789abcdefABCDEF")
_D = CharSet.of("dD")

# One character of a free string.  Places: 0 before it, 1 behind a backslash, 2 behind \u, 3 to 5 with three to one
# hex digits to come, 6 behind \ud, 7 and 8 with two and one digits of a high surrogate to come, 9 to 12 on the way
# through the \ud of the low one; _DONE behind the character.
_DONE = 13
# Places inside the escape of a given character: behind the backslash, \u, \u0, \u00, \u000 and \u001.
_ESCAPE_PLACES = 6
_ONE_CHAR = (
    (0, _PLAIN, _DONE),
    (0, _BACKSLASH, 1),
    (1, CharSet.of('"\\/bfnrt'), _DONE),
    (1, CharSet.of("u"), 2),
    (2, _HEX - _D, 3),
    (2, _D, 6),
    (3, _HEX, 4),
    (4, _HEX, 5),
    (5, _HEX, _DONE),
    (6, CharSet.between("0", "7"), 4),
    (6, CharSet.of("89abAB"), 7),
    (7, _HEX, 8),
    (8, _HEX, 9),
    (9, _BACKSLASH, 10),
    (10, CharSet.of("u"), 11),
    (11, _D, 12),
    (12, CharSet.of("cdefCDEF"), 4),
)


@dataclass(frozen=True)
class StringShape:
    """What a string must satisfy.

    Attributes:
        least, most: Limits on its number of characters; no upper one when `most` is None.
        pattern: A regex that it matches somewhere.
        format: Name of a format that it has, one of `FORMATS`.
    """

    least: int = 0
    most: int | None = None
    pattern: str | None = None
    format: str | None = None


@dataclass(frozen=True)
class StringValues:
    """A string that is one of some values.

    Attributes:
        values: The strings.
    """

    values: frozenset[str]


StringAtom = StringShape | StringValues


def string_dfa(shape: StringShape, budget: Budget) -> CharDfa:
    """The JSON spellings, with quotes, of the strings that satisfy a shape.

    Raises:
        GrammarError: the pattern is malformed, not supported or too large.
    """
    if shape.pattern is None and shape.format is None:
        return free_string(shape.least, shape.most, budget)
    parts = []
    if shape.pattern is not None:
        parts.append(search_to_dfa(shape.pattern, budget))
    if shape.format is not None:
        parts.append(format_dfa(shape.format, budget))
    raw = parts[0] if len(parts) == 1 else intersect(parts[0], parts[1], budget)
    return quoted(with_length(raw, shape.least, shape.most, budget), budget)


def free_string(least: int, most: int | None, budget: Budget) -> CharDfa:
    """Strings of `least` to `most` characters (None: any number from `least` on), with their quotes."""
    num_chars = least if most is None else most
    budget.check_states(num_chars * _DONE)
    nfa = Nfa(budget)
    start, end = nfa.add_states(), nfa.add_states()
    first = nfa.add_states((num_chars + 1) * _DONE)
    nfa.add_edge(start, _QUOTE, first)
    places = first + np.arange(num_chars) * _DONE
    for source, chars, target in _ONE_CHAR:
        nfa.add_edges(places + source, chars, places + target)
        if most is None:
            last = first + num_chars * _DONE
            nfa.add_edge(last + source, chars, last + target % _DONE)
    nfa.add_edges(first + np.arange(least, num_chars + 1) * _DONE, _QUOTE, end)
    return nfa.to_dfa(start, end)


def with_length(dfa: CharDfa, least: int, most: int | None, budget: Budget) -> CharDfa:
    """The strings of an automaton that have `least` to `most` characters."""
    if most is not None and not has_longer(dfa, most, budget):
        most = None
    if least == 0 and most is None:
        return dfa
    num_states = (least if most is None else most) + 1
    budget.check_states(num_states)
    table = np.arange(1, num_states + 1, dtype=np.int32)[:, None]
    table[-1] = num_states - 1 if most is None else -1
    accepting = np.arange(num_states) >= least
    counter = CharDfa(Alphabet.from_sets([ANY_CHAR])[0], table, accepting)
    return intersect(dfa, counter, budget)


def has_longer(dfa: CharDfa, length: int, budget: Budget) -> bool:
    """Whether an automaton accepts strings of more than `length` characters."""
    stamps = np.empty(dfa.num_states, dtype=np.int64)
    reached = np.zeros(1, dtype=np.int64)
    for _ in range(length + 1):
        budget.spend(16)
        targets = dfa.table[reached].ravel()
        reached = without_repeats(targets[targets >= 0].astype(np.int64), stamps)
        if not len(reached):
            return False
    return True


def quoted(dfa: CharDfa, budget: Budget) -> CharDfa:
    """The JSON spellings of the strings of an automaton, with their quotes."""
    nfa = Nfa(budget)
    start, end = nfa.add_states(), nfa.add_states()
    first = nfa.add_states(dfa.num_states)
    nfa.add_edge(start, _QUOTE, first)
    nfa.add_edges(first + np.flatnonzero(dfa.accepting), _QUOTE, end)
    behind_backslash = nfa.add_states(dfa.num_states * _ESCAPE_PLACES)
    escapes = np.zeros(dfa.num_states, dtype=bool)
    for column, chars in enumerate(dfa.alphabet.char_sets()):
        sources = np.flatnonzero(dfa.table[:, column] >= 0)
        targets = first + dfa.table[sources, column]
        plain = chars - _MUST_ESCAPE
        if plain:
            nfa.add_edges(first + sources, plain, targets)
        for low, high in (chars & _MUST_ESCAPE).ranges:
            escapes[sources] = True
            for point in range(low, high + 1):
                spelling = json.dumps(chr(point))[1:-1]
                place = 0 if len(spelling) == 2 else 4 + int(spelling[4])
                nfa.add_edges(behind_backslash + sources * _ESCAPE_PLACES + place, CharSet.of(spelling[-1]), targets)
    escaping = np.flatnonzero(escapes)
    places = behind_backslash + escaping * _ESCAPE_PLACES
    nfa.add_edges(first + escaping, _BACKSLASH, places)
    for source, char, target in ((0, "u", 1), (1, "0", 2), (2, "0", 3), (3, "0", 4), (3, "1", 5)):
        nfa.add_edges(places + source, CharSet.of(char), places + target)
    return nfa.to_dfa(start, end)

"""JSON strings in bytes: what `json.dumps(..., ensure_ascii=False)` writes between the quotes, and all other spellings.

A character has one canonical spelling: itself in UTF-8, or an escape for quotes, backslashes and control characters.
"""

from json.encoder import encode_basestring

import numpy as np

from sgl_runtime.grammar.alphabet import Alphabet, IntArray
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_set import MAX_CODE_POINT, CharSet
from sgl_runtime.grammar.fragment import NO_LABEL, ByteFragment
from sgl_runtime.grammar.graph import Flags, Labels, Table, as_labels, trim_labelled
from sgl_runtime.grammar.minimize import merge_if_equal, minimize_labelled
from sgl_runtime.grammar.nfa import Nfa
from sgl_runtime.grammar.utf8 import Utf8Tree, compose, to_bytes

_SHORT_ESCAPES = {'"': '"', "\\": "\\", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = "0123456789abcdef"
_CONTINUATION = list(range(0x80, 0xC0))
_MUST_ESCAPE = CharSet.of('"\\') | CharSet.between("\0", "\x1f")
_ESCAPED = [point for point in range(128) if chr(point) in _MUST_ESCAPE]
_PLAIN = [point for point in range(128) if chr(point) not in _MUST_ESCAPE]

# One character of a string in any spelling.  Places: 0 before it, 1 behind a backslash, 2 behind \u, 3 to 5 with three
# to one hex digits to come, 6 behind \ud, 7 and 8 with two and one digits of a high surrogate to come, 9 to 12 on the
# way through the \ud of the low one.
_ANY_HEX = CharSet.of("0123456789abcdefABCDEF")
_D = CharSet.of("dD")
_NUM_PLACES = 13
_ONE_CHAR = (
    (0, _MUST_ESCAPE.complement(), 0),
    (0, CharSet.of("\\"), 1),
    (1, CharSet.of('"\\/bfnrt'), 0),
    (1, CharSet.of("u"), 2),
    (2, _ANY_HEX - _D, 3),
    (2, _D, 6),
    (3, _ANY_HEX, 4),
    (4, _ANY_HEX, 5),
    (5, _ANY_HEX, 0),
    (6, CharSet.between("0", "7"), 4),
    (6, CharSet.of("89abAB"), 7),
    (7, _ANY_HEX, 8),
    (8, _ANY_HEX, 9),
    (9, CharSet.of("\\"), 10),
    (10, CharSet.of("u"), 11),
    (11, _D, 12),
    (12, CharSet.of("cdefCDEF"), 4),
)


def canonical(text: str) -> bytes:
    """The canonical spelling of a string, without quotes; lone surrogates are spelled as no valid UTF-8."""
    return encode_basestring(text)[1:-1].encode("utf-8", "surrogatepass")


def spellable_chars(usable_bytes: Flags) -> CharSet:
    """The characters whose canonical spelling consists of usable bytes.

    Args:
        usable_bytes: (256,) bool.
    """
    points = np.arange(MAX_CODE_POINT + 1)
    spellable = np.ones(len(points), dtype=bool)
    spellable[:128] = [usable_bytes[list(canonical(chr(point)))].all() for point in range(128)]
    for least, first_byte, num_more in ((0x80, 0xC0, 1), (0x800, 0xE0, 2), (0x10000, 0xF0, 3)):
        above = points[least:]
        spelled = usable_bytes[np.minimum(first_byte + (above >> 6 * num_more), 255)]
        for place in range(num_more):
            spelled &= usable_bytes[0x80 + (above >> 6 * place & 0x3F)]
        spellable[least:] = spelled
    edges = np.flatnonzero(np.diff(spellable.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    return CharSet.from_ranges((low, high - 1) for low, high in edges.tolist())


def any_spelling(usable_bytes: Flags, budget: Budget) -> ByteFragment:
    """Every spelling of every string, all with label 0.

    Args:
        usable_bytes: (256,) bool, the bytes to spell with.
        budget: Paid for the construction.
    """
    nfa = Nfa(budget)
    first = nfa.add_states(_NUM_PLACES)
    for source, chars, target in _ONE_CHAR:
        nfa.add_edge(first + source, chars, first + target)
    automaton = to_bytes(nfa.to_dfa(first, first), budget)
    table = np.where(usable_bytes, automaton.table[:, automaton.byte_classes], np.int32(-1))
    table, labels = trim_labelled(table, as_labels(automaton.accepting), 0, budget)
    return ByteFragment.of(*minimize_labelled(table, labels, budget))


def spelled(alphabet: Alphabet, table: Table, labels: Labels, budget: Budget) -> ByteFragment:
    """The canonical spellings of the strings that an automaton over characters labels.

    Args:
        alphabet: C classes of characters.
        table: (S, C) int32, next state or -1, trimmed and smallest.
        labels: (S,) int32.
        budget: Limits the number of byte states.

    Raises:
        GrammarError: the budget does not suffice.
    """
    # A column stands for a class of characters, or for a node: characters of which some bytes have been read.
    columns = _Columns(table, budget)
    top = np.full(256, -1, dtype=np.int32)
    ascii_classes = alphabet.class_of(np.arange(128, dtype=np.int32))
    top[_PLAIN] = ascii_classes[_PLAIN]
    is_used = np.append((table >= 0).any(axis=0), False)
    if is_used[alphabet.classes[np.append(alphabet.starts[1:], MAX_CODE_POINT) > 128]].any():
        _add_utf8(columns, alphabet, top)
    if is_used[ascii_classes[_ESCAPED]].any():
        top[ord("\\")] = _add_escapes(columns, ascii_classes)
    full = columns.table(top)
    all_labels = np.append(labels, np.full(len(full) - len(labels), NO_LABEL)).astype(np.int32)
    # Behind a backslash may follow just what follows elsewhere.
    return ByteFragment.of(*merge_if_equal(full, all_labels, budget))


def _add_utf8(columns: "_Columns", alphabet: Alphabet, top: IntArray) -> None:
    """Add the characters of more than one byte, and the columns of their first bytes to `top`."""
    tree = Utf8Tree(alphabet)
    below = 0
    for level, first_byte in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):
        nodes = tree.nodes(level)
        below = columns.add(np.where(nodes < 0, -1, nodes + below), _CONTINUATION)
        for byte, node in enumerate(tree.leads[level], start=first_byte):
            top[byte] = below + node if node >= 0 else -1


class _Columns:
    """The byte state of every character state in combination with every class and node."""

    def __init__(self, table: Table, budget: Budget) -> None:
        self._table = table
        self._budget = budget
        self._num_states = len(table)
        self._rows: list[tuple[IntArray, list[int]]] = []

    def add(self, nodes: IntArray, read: list[int]) -> int:
        """Add nodes of one kind; returns the column of the first.

        Args:
            nodes: (N, F) int, the columns of the children of each node, -1 for none.
            read: The F bytes that lead to the children.
        """
        self._budget.spend(16)
        pairs, rows = compose(self._table, nodes, self._num_states)
        self._num_states += len(rows)
        self._budget.check_states(self._num_states)
        self._rows.append((rows, read))
        first: int = self._table.shape[1]
        self._table = np.concatenate([self._table, pairs], axis=1)
        return first

    def table(self, top: IntArray) -> Table:
        """The whole table, given the column of each first byte."""
        table = np.full((self._num_states, 256), -1, dtype=np.int32)
        table[: len(self._table)] = np.where(top >= 0, self._table[:, top], np.int32(-1))
        at = len(self._table)
        for rows, read in self._rows:
            table[at : at + len(rows), read] = rows
            at += len(rows)
        return table


def _add_escapes(columns: _Columns, ascii_classes: IntArray) -> int:
    """Add what follows a backslash; returns its column."""
    last = []
    for row in range(2):
        points = range(row * 16, row * 16 + 16)
        last.append([-1 if chr(point) in _SHORT_ESCAPES.values() else ascii_classes[point] for point in points])
    at = columns.add(np.array(last), list(_HEX.encode()))
    at = columns.add(np.array([[at, at + 1]]), list(b"01"))
    at = columns.add(np.array([[at]]), [ord("0")])
    at = columns.add(np.array([[at]]), [ord("0")])
    short = [ascii_classes[ord(char)] for char in _SHORT_ESCAPES.values()]
    return columns.add(np.array([[*short, at]]), [*map(ord, _SHORT_ESCAPES), ord("u")])

"""From characters to bytes: a CharDfa becomes the smallest ByteAutomaton of the same strings in UTF-8.

Encoded characters form a tree that is three bytes deep at most below the first byte.  A byte state is a character
state, or a character state with a node of that tree: "in state s, these bytes of a character have been read".  Two of
the latter are equal exactly when their 64 continuations are, so that equal rows, taken level by level, give the
smallest automaton without another minimisation.
"""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.alphabet import Alphabet, IntArray
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.char_set import MAX_CODE_POINT

_FAN = 64
_DEAD = np.int32(-1)


def to_bytes(dfa: CharDfa, budget: Budget) -> ByteAutomaton:
    """Encode the language of a smallest character automaton in UTF-8.

    Raises:
        GrammarError: the automaton has more states than the budget allows.
    """
    tree = Utf8Tree(dfa.alphabet)
    num_states = dfa.num_states
    # By level, the state of each character state with each node; level 0: after a whole character of each class.
    levels: list[IntArray] = [dfa.table]
    rows: list[IntArray] = []
    for level in (1, 2, 3):
        budget.spend(16)
        pairs, level_rows = compose(levels[-1], tree.nodes(level), num_states)
        num_states += len(level_rows)
        budget.check_states(num_states)
        levels.append(pairs)
        rows.append(level_rows)
    return _assemble(dfa, tree, levels, np.concatenate(rows))


class Utf8Tree:
    """The classes of an alphabet by encoded bytes, equal nodes stored once.

    A node is its 64 children: nodes one level down, at the bottom classes.

    Args:
        alphabet: The classes of the characters.

    Attributes:
        ascii: (128,) int32, class of each one-byte character.
        leads: For the lead bytes of 2, 3 and 4 byte characters (from 0xC0, 0xE0 and 0xF0 on) their nodes by level, -1
            for none.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.ascii = alphabet.class_of(np.arange(128, dtype=np.int32))
        self._alphabet = alphabet
        self._numbers: dict[int, dict[bytes, int]] = {1: {}, 2: {}, 3: {}}
        self._uniform: dict[tuple[int, int], int] = {}
        self.leads = {
            level: self._find(level, np.arange(num_leads), least).tolist()
            for level, num_leads, least in ((1, 32, 0x80), (2, 16, 0x800), (3, 5, 0x10000))
        }

    def nodes(self, level: int) -> IntArray:
        """(N, 64) int32, the children of each node of a level."""
        return np.frombuffer(b"".join(self._numbers[level]), dtype=np.int32).reshape(-1, _FAN)

    def _find(self, level: int, blocks: NDArray[np.int64], least: int) -> NDArray[np.int64]:
        """The nodes of some blocks of 64 ** level code points, those below `least` or past the last left out."""
        starts = self._alphabet.starts
        low = blocks * _FAN**level
        high = low + (_FAN**level - 1)
        interval = np.searchsorted(starts, low, side="right") - 1
        is_uniform = (np.searchsorted(starts, high, side="right") - 1 == interval) & (low >= least)
        is_uniform &= high <= MAX_CODE_POINT
        found = np.full(len(blocks), -1, dtype=np.int64)
        for at in np.flatnonzero(is_uniform).tolist():
            found[at] = self._find_uniform(level, int(self._alphabet.classes[interval[at]]))
        mixed = np.flatnonzero(~is_uniform & (high >= least) & (low <= MAX_CODE_POINT))
        if not len(mixed):
            return found
        inside = blocks[mixed][:, None] * _FAN + np.arange(_FAN)
        if level > 1:
            children = self._find(level - 1, inside.ravel(), least).reshape(-1, _FAN)
        else:
            children = self._alphabet.class_of(inside.astype(np.int32)).astype(np.int64)
            children[(inside < least) | (inside > MAX_CODE_POINT)] = -1
        found[mixed] = [self._number(level, row) for row in children.astype(np.int32)]
        return found

    def _find_uniform(self, level: int, number: int) -> int:
        """The node of `level` below which every character has class `number`."""
        known = self._uniform.get((level, number))
        if known is None:
            child = number if level == 1 else self._find_uniform(level - 1, number)
            known = self._uniform[level, number] = self._number(level, np.full(_FAN, child, dtype=np.int32))
        return known

    def _number(self, level: int, children: IntArray) -> int:
        if children.max() < 0:
            return -1
        numbers = self._numbers[level]
        return numbers.setdefault(children.tobytes(), len(numbers))


def _padded(table: IntArray) -> IntArray:
    """The table with a column of -1 at its end, which index -1 finds."""
    return np.concatenate([table, np.full((len(table), 1), _DEAD, dtype=np.int32)], axis=1)


def compose(below: IntArray, nodes: IntArray, first_state: int) -> tuple[IntArray, IntArray]:
    """Pair every character state with every node of a level.

    Args:
        below: (S, P) int32, the byte state of each character state with each child.
        nodes: (N, F) int, children or -1.
        first_state: Number of the first state that is new here.

    Returns:
        (S, N) int32, the byte state of each pair or -1; and (R, F) int32, the rows of the new states.
    """
    below = _padded(below)
    result = np.full((len(below), len(nodes)), _DEAD, dtype=np.int32)
    numbers: dict[bytes, int] = {}
    for column, children in enumerate(nodes):
        distinct = np.unique(children)
        keys = np.ascontiguousarray(below[:, distinct])
        width = keys.dtype.itemsize * keys.shape[1]
        _, first, inverse = np.unique(
            keys.view(np.dtype((np.void, width))).ravel(), return_index=True, return_inverse=True
        )
        rows = below[first][:, children]
        states = [
            first_state + numbers.setdefault(row.tobytes(), len(numbers)) if (row >= 0).any() else -1 for row in rows
        ]
        result[:, column] = np.array(states, dtype=np.int32)[inverse]
    return result, np.frombuffer(b"".join(numbers), dtype=np.int32).reshape(-1, nodes.shape[1])


def _assemble(dfa: CharDfa, tree: Utf8Tree, levels: list[IntArray], inside: IntArray) -> ByteAutomaton:
    """One table over byte classes: character states first, then the states inside a character."""
    # A first byte stands for a class (one byte) or a node (more): a column of `levels`, or the dead one at the end.
    offsets = np.cumsum([0, *(pairs.shape[1] for pairs in levels)])
    column = np.full(256, offsets[-1])
    for first_byte, level, numbers in (
        (0x00, 0, tree.ascii.tolist()),
        (0xC0, 1, tree.leads[1]),
        (0xE0, 2, tree.leads[2]),
        (0xF0, 3, tree.leads[3]),
    ):
        for byte, number in enumerate(numbers, start=first_byte):
            column[byte] = offsets[level] + number if number >= 0 else offsets[-1]
    # Continuation bytes have no edge from a character state; they differ where some node tells them apart.
    children = np.concatenate([tree.nodes(level) for level in (1, 2, 3)])
    _, first_of_kind, kind = np.unique(children, axis=1, return_index=True, return_inverse=True)
    has_inside = len(inside) > 0
    if has_inside:
        column[0x80:0xC0] = offsets[-1] + 1 + kind.ravel()
    kept, classes = np.unique(column, return_inverse=True)
    num_top = int((kept <= offsets[-1]).sum())
    table = np.full((dfa.num_states + len(inside), len(kept)), _DEAD, dtype=np.int32)
    table[: dfa.num_states, :num_top] = _padded(np.concatenate(levels, axis=1))[:, kept[:num_top]]
    if has_inside:
        table[dfa.num_states :, num_top:] = inside[:, first_of_kind]
    accepting = np.concatenate([dfa.accepting, np.zeros(len(inside), dtype=bool)])
    return ByteAutomaton(classes.astype(np.uint8), table, accepting)

"""From characters to bytes: a CharDfa becomes the smallest ByteAutomaton of the same strings in UTF-8.

Encoded characters form a tree that is three bytes deep at most below the first byte.  A byte state is a character
state, or a character state with a node of that tree: "in state s, these bytes of a character have been read".  Two of
the latter are equal exactly when their 64 continuations are, so that equal rows, taken level by level, give the
smallest automaton without another minimisation.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

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
    tree = _Utf8Tree.of(dfa.alphabet)
    num_states = dfa.num_states
    # By level, the state of each character state with each node; level 0: after a whole character of each class.
    levels: list[IntArray] = [dfa.table]
    rows: list[IntArray] = []
    for level in (1, 2, 3):
        budget.spend(16)
        pairs, level_rows = _compose(levels[-1], tree.nodes(level), num_states)
        num_states += len(level_rows)
        budget.check_states(num_states)
        levels.append(pairs)
        rows.append(level_rows)
    return _assemble(dfa, tree, levels, np.concatenate(rows))


@dataclass
class _Utf8Tree:
    """The classes of an alphabet by encoded bytes, equal nodes stored once.

    Attributes:
        ascii: (128,) int32, class of each one-byte character.
        leads: For the lead bytes of 2, 3 and 4 byte characters their nodes (-1: none), by level.
        starts: The alphabet's `starts`.
        numbers: By level, the number of each node; a node is its 64 children (nodes one level down, classes at the
            bottom).
        uniform: The nodes below which every character has one class, by level and class.
    """

    ascii: IntArray
    starts: list[int]
    leads: dict[int, list[int]] = field(default_factory=dict)
    numbers: dict[int, dict[bytes, int]] = field(default_factory=lambda: {1: {}, 2: {}, 3: {}})
    uniform: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, alphabet: Alphabet) -> "_Utf8Tree":
        tree = cls(alphabet.class_of(np.arange(128, dtype=np.int32)), alphabet.starts.tolist())
        tree.leads[1] = [tree._node(alphabet, 1, lead << 6) for lead in range(2, 32)]
        tree.leads[2] = [tree._node(alphabet, 2, lead << 12, least=0x800) for lead in range(16)]
        tree.leads[3] = [tree._node(alphabet, 3, lead << 18, least=0x10000) for lead in range(5)]
        return tree

    def nodes(self, level: int) -> IntArray:
        """(N, 64) int32, the children of each node of a level."""
        return np.frombuffer(b"".join(self.numbers[level]), dtype=np.int32).reshape(-1, _FAN)

    def _node(self, alphabet: Alphabet, level: int, low: int, least: int = 0) -> int:
        """The node of the 64 ** level code points from `low` on, those below `least` or past the last left out."""
        step = _FAN ** (level - 1)
        last = low + step * _FAN - 1
        interval = bisect_right(self.starts, low) - 1
        if low >= least and last <= MAX_CODE_POINT and bisect_right(self.starts, last) - 1 == interval:
            return self._uniform(level, int(alphabet.classes[interval]))
        starts = low + np.arange(_FAN, dtype=np.int64) * step
        children = alphabet.class_of(starts)
        children[(starts < least) | (starts > MAX_CODE_POINT)] = _DEAD
        if level > 1:
            mapped = [
                self._node(alphabet, level - 1, start) if least <= start <= MAX_CODE_POINT else -1
                for start in starts.tolist()
            ]
            children = np.array(mapped, dtype=np.int32)
        return self._number(level, children)

    def _uniform(self, level: int, number: int) -> int:
        """The node of `level` below which every character has class `number`."""
        known = self.uniform.get((level, number))
        if known is None:
            child = number if level == 1 else self._uniform(level - 1, number)
            known = self.uniform[level, number] = self._number(level, np.full(_FAN, child, dtype=np.int32))
        return known

    def _number(self, level: int, children: IntArray) -> int:
        if (children < 0).all():
            return -1
        numbers = self.numbers[level]
        return numbers.setdefault(children.astype(np.int32).tobytes(), len(numbers))


def _padded(table: IntArray) -> IntArray:
    """The table with a column of -1 at its end, which index -1 finds."""
    return np.concatenate([table, np.full((len(table), 1), _DEAD, dtype=np.int32)], axis=1)


def _compose(below: IntArray, nodes: IntArray, first_state: int) -> tuple[IntArray, IntArray]:
    """Pair every character state with every node of a level.

    Args:
        below: (S, P) int32, the byte state of each character state with each child.
        nodes: (N, 64) int32, children or -1.
        first_state: Number of the first state that is new here.

    Returns:
        (S, N) int32, the byte state of each pair or -1; and (R, 64) int32, the rows of the new states.
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
    return result, np.frombuffer(b"".join(numbers), dtype=np.int32).reshape(-1, _FAN)


def _assemble(dfa: CharDfa, tree: _Utf8Tree, levels: list[IntArray], inside: IntArray) -> ByteAutomaton:
    """One table over byte classes: character states first, then the states inside a character."""
    # A first byte stands for a class (one byte) or a node (more): a column of `levels`, or the dead one at the end.
    offsets = np.cumsum([0, *(pairs.shape[1] for pairs in levels)])
    column = np.full(256, offsets[-1])
    for first_byte, level, numbers in (
        (0x00, 0, tree.ascii.tolist()),
        (0xC2, 1, tree.leads[1]),
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

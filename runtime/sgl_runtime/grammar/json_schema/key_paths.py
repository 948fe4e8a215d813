"""KeyPaths: one automaton of an object's keys, of which each of its states allows a part.

An object with hundreds of names, and patterns beside them, allows fewer of its keys with each that has come.  What is
written for a state of the automaton depends on the keys that are allowed of those behind it: where these are all of
them, it is the state itself; else it is a copy, one for all states of the object that agree about these.
"""

import numpy as np

from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.fragment import ByteFragment

_QUOTE = ord('"')
_DEAD = -1


class KeyPaths:
    """Writes parts of an automaton of keys.

    Args:
        builder: Gets the states.
        fragment: The automaton.
        first: Where all of it was written, with pops at its ends.
    """

    def __init__(self, builder: AutomatonBuilder, fragment: ByteFragment, first: int) -> None:
        self._builder = builder
        self._fragment = fragment
        self._first = first
        self._ahead = _labels_ahead(fragment)
        self._states: dict[tuple[int, int], int] = {}

    def start(self, labels: list[int]) -> int:
        """The state behind the opening quote of the keys with some labels."""
        wanted = sum(1 << label for label in labels) & self._ahead[0]
        pending: list[tuple[int, int]] = []
        start = self._state(0, wanted, pending)
        while pending:
            state, allowed = pending.pop()
            self._write(state, allowed, pending)
        return start

    def _state(self, state: int, allowed: int, pending: list[tuple[int, int]]) -> int:
        """The state of the builder for one of the automaton with the labels that are allowed of those ahead."""
        if not allowed:
            return _DEAD
        if allowed == self._ahead[state]:
            return self._first + state
        known = self._states.get((state, allowed))
        if known is None:
            known = self._states[state, allowed] = self._builder.new_state()
            pending.append((state, allowed))
        return known

    def _write(self, state: int, allowed: int, pending: list[tuple[int, int]]) -> None:
        here = self._states[state, allowed]
        label = int(self._fragment.labels[state])
        if label >= 0 and allowed >> label & 1:
            self._builder.add_pop(here, _QUOTE, label)
        by_class = [
            self._state(target, allowed & self._ahead[target], pending) if target >= 0 else _DEAD
            for target in self._fragment.class_table[state].tolist()
        ]
        by_byte = np.array(by_class, dtype=np.int32)[self._fragment.byte_classes]
        (data,) = np.nonzero(by_byte != _DEAD)
        self._builder.add_edges(np.full(len(data), here), data, by_byte[data])


def _labels_ahead(fragment: ByteFragment) -> list[int]:
    """For each state the labels that can come behind it, as bits."""
    num_states, num_labels = fragment.num_states, int(fragment.labels.max()) + 1
    is_own = np.zeros((num_states + 1, num_labels), dtype=bool)
    (ends,) = np.nonzero(fragment.labels >= 0)
    is_own[ends, fragment.labels[ends]] = True
    # The last row is that of "no edge", which index -1 finds.
    ahead = np.packbits(is_own, axis=1, bitorder="little")
    while True:
        grown = ahead.copy()
        for targets in fragment.class_table.T:
            grown[:-1] |= grown[targets]
        if np.array_equal(grown, ahead):
            return [int.from_bytes(row.tobytes(), "little") for row in ahead[:-1]]
        ahead = grown

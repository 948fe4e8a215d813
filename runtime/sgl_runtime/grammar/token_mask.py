"""Token masks on the host: which tokens keep an automaton alive, one packed row of bits for each state."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.graph import spans
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

MaskRow = NDArray[np.int32]


def compute_mask(automaton: ByteAutomaton, state: int, order: VocabularyOrder) -> MaskRow:
    """Walk the vocabulary from a state, all tokens at once, byte position by byte position.

    Neighbours share prefixes and die together: a level looks only at the children of prefixes that are alive.

    Returns:
        (ceil(V / 32),) int32; bit i % 32 of word i // 32 says that token i leads to a state.
    """
    width = automaton.table.shape[1]
    # Entry (state, class) of the table stands at state * width + class.
    next_state = automaton.table.ravel()
    # Prefixes that are alive, by their index on the level above, and the automaton state behind each.
    nodes = np.zeros(1, dtype=np.int32)
    states = np.array([state], dtype=np.int32)
    first_child = order.root_children
    allowed = np.zeros((order.size + 31) // 32 * 32, dtype=bool)
    for level in order.levels:
        begins = first_child.take(nodes)
        counts = first_child.take(nodes + 1) - begins
        children = spans(begins, counts)
        if not len(children):
            break
        after = next_state.take(
            np.repeat(states * width, counts) + automaton.byte_classes.take(level.byte.take(children))
        )
        (alive,) = np.nonzero(after >= 0)
        nodes, states = children.take(alive), after.take(alive)
        is_alive = np.zeros(len(level.byte), dtype=bool)
        is_alive[nodes] = True
        allowed[level.token_ids[is_alive.take(level.token_prefix)]] = True
        first_child = level.first_child
    return np.packbits(allowed, bitorder="little").view(np.int32)


class TokenMaskCache:
    """Remembers the rows of states that were visited, the least recently used ones leave first.

    Args:
        order: The vocabulary.
        max_bytes: Most memory that rows take.
    """

    def __init__(self, order: VocabularyOrder, *, max_bytes: int) -> None:
        self.order = order
        self._max_rows = max(1, max_bytes // (4 * ((order.size + 31) // 32)))
        self._rows: OrderedDict[tuple[int, int], MaskRow] = OrderedDict()

    def row(self, automaton: ByteAutomaton, automaton_id: int, state: int) -> MaskRow:
        """The row of a state; not to be written to.

        Args:
            automaton: The automaton.
            automaton_id: A number that no other automaton of this cache has ever had.
            state: One of its states.
        """
        key = (automaton_id, state)
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
            return row
        row = self._rows[key] = compute_mask(automaton, state, self.order)
        if len(self._rows) > self._max_rows:
            self._rows.popitem(last=False)
        return row

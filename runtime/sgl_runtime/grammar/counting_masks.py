"""CountingMasks: masks of the states that count the characters of a free string, told from one walk of the vocabulary.

A string of 3 to 100 characters has a hundred states that each allow most tokens.  What they allow follows from the
number of characters that a token holds, and from where it closes the string, which are the same for all of them.
"""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import spans
from sgl_runtime.grammar.json_schema.json_spelling import any_spelling
from sgl_runtime.grammar.vocabulary_order import Indices, VocabularyOrder
from sgl_runtime.grammar.vocabulary_walk import Prefixes

_QUOTE = ord('"')
_NEVER = np.iinfo(np.int16).max
# The automaton of all spellings has some ten states.
_MAX_STATES = 10_000
_TIMEOUT_S = 60.0


class CountingMasks:
    """Knows of each token how many characters it adds to a string.

    Args:
        order: The vocabulary.
    """

    def __init__(self, order: VocabularyOrder) -> None:
        # Characters that a token needs room for, the last one perhaps not whole; for tokens that stay in the string.
        self._needed = np.full((order.size + 31) // 32 * 32, _NEVER, dtype=np.int16)
        # By level, the prefixes that end with the closing quote, and the characters before it.
        self._closings: dict[int, tuple[Indices, NDArray[np.int16]]] = {}
        body = any_spelling(order.usable_bytes, Budget(max_states=_MAX_STATES, timeout_s=_TIMEOUT_S)).table
        nodes = np.arange(*order.root_children, dtype=np.int32)
        states, counts = np.zeros(len(nodes), dtype=np.int32), np.zeros(len(nodes), dtype=np.int16)
        for depth, level in enumerate(order.levels, start=1):
            data = level.byte.take(nodes)
            # State 0 is between two characters.
            (closing,) = np.nonzero((states == 0) & (data == _QUOTE))
            if len(closing):
                self._closings[depth] = nodes.take(closing), counts.take(closing)
            after = body[states, data]
            (alive,) = np.nonzero(after >= 0)
            nodes, states = nodes.take(alive), after.take(alive)
            counts = counts.take(alive) + (states == 0).astype(np.int16)
            needed = np.full(len(level.byte), _NEVER, dtype=np.int16)
            needed[nodes] = counts + (states != 0)
            self._needed[level.token_ids] = needed.take(level.token_prefix)
            begins = level.first_child.take(nodes)
            num_children = level.first_child.take(nodes + 1) - begins
            nodes, states, counts = (
                spans(begins, num_children), np.repeat(states, num_children), np.repeat(counts, num_children)
            )  # fmt: skip

    def mask(self, least: int, most: int, label: int) -> tuple[NDArray[np.int32], Prefixes]:
        """The tokens that stay in the string, as a packed row, and the prefixes that end it.

        Args:
            least, most: Limits on the number of characters to come.
            label: With which the string ends.
        """
        pending: Prefixes = {}
        for depth, (nodes, counts) in self._closings.items():
            (fitting,) = np.nonzero((counts >= least) & (counts <= most))
            if len(fitting):
                pending[depth] = nodes.take(fitting), np.full(len(fitting), label, dtype=np.int32)
        row = np.packbits(self._needed <= min(most, _NEVER - 1), bitorder="little").view(np.int32)
        return row, pending

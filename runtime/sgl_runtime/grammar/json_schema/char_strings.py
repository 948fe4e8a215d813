"""CharStrings: many strings as an automaton over characters, of which the spellings are written once and not per state.

A pattern together with a length has a state for each place in the pattern with each length.  Spelled byte by byte, each
of them would need a dozen more for what is inside a character.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import NO_LABEL, ByteFragment
from sgl_runtime.grammar.graph import Labels, Table
from sgl_runtime.grammar.json_schema.json_spelling import spelled

MIN_STATES = 2048
"""From so many states over characters on they are not spelled out."""
_MAX_KINDS = 16


@dataclass(frozen=True, eq=False)
class CharStrings:
    """A trimmed automaton over classes of characters, and how characters are spelled.

    Attributes:
        table: (S, C) int32, the next state by class, -1 where it may not come; state 0 is the start.
        labels: (S,) int32, see `ByteFragment`.
        kinds: (S,) int64, which of `characters` spells what may come at each state.
        characters: One character each of some classes, labelled by its class.
    """

    table: Table
    labels: Labels
    kinds: NDArray[np.int64]
    characters: tuple[ByteFragment, ...]

    @classmethod
    def of(cls, alphabet: Alphabet, table: Table, labels: Labels, budget: Budget) -> "CharStrings | None":
        """The strings of an automaton; None where too many different sets of characters may come in its states.

        Args:
            alphabet: C classes of characters.
            table: (S, C) int32, next state or -1, trimmed.
            labels: (S,) int32.
            budget: Limits the work.
        """
        rows, kinds = np.unique(table >= 0, axis=0, return_inverse=True)
        if len(rows) > _MAX_KINDS:
            return None
        return cls(table, labels, kinds.ravel(), tuple([_one_character(alphabet, row, budget) for row in rows]))

    @cached_property
    def label_set(self) -> frozenset[int]:
        """The labels that occur."""
        return frozenset(self.labels.tolist()) - {NO_LABEL}

    @property
    def is_empty(self) -> bool:
        """Whether no text at all has a label."""
        return not self.label_set

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        arrays = self.table.nbytes + self.labels.nbytes + self.kinds.nbytes
        return arrays + sum(character.size_bytes for character in self.characters)


def _one_character(alphabet: Alphabet, may_come: NDArray[np.bool_], budget: Budget) -> ByteFragment:
    """The spellings of the characters of some classes, each labelled by its class."""
    (classes,) = np.nonzero(may_come)
    table = np.full((1 + len(classes), len(may_come)), -1, dtype=np.int32)
    table[0, classes] = np.arange(1, len(classes) + 1)
    return spelled(alphabet, table, np.append(np.int32(-1), classes.astype(np.int32)), budget)

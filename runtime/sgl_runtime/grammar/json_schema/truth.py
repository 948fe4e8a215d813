"""Truth of atoms with a third value, and the labels that follow from it.

An atom may be unknown for a text: where readings of a format, a pattern or a number differ.  A text gets a label only
where all readings lead to the same one.
"""

from collections.abc import Callable, Sequence
from itertools import product

TruthLabel = Callable[[tuple[bool, ...]], int]
"""The label of a value by the truth of each atom; -1 for values that are not wanted."""

Truth = int
FALSE: Truth = 0
TRUE: Truth = 1
UNKNOWN: Truth = 2

MAX_TABLE_ATOMS = 8
_MAX_UNKNOWN = 10


class TruthLabels:
    """What a `TruthLabel` says, each question asked once.

    Args:
        num_atoms: Number of atoms.
        label_of: The function.

    Attributes:
        table: The label of every combination of truths, the first atom varying slowest; None where there are more
            than `MAX_TABLE_ATOMS` atoms.
    """

    def __init__(self, num_atoms: int, label_of: TruthLabel) -> None:
        self._num_atoms = num_atoms
        self._label_of = label_of
        self._known: dict[tuple[Truth, ...], int] = {}
        self.table: tuple[int, ...] | None = None
        if num_atoms <= MAX_TABLE_ATOMS:
            self.table = tuple([label_of(truths) for truths in product((False, True), repeat=num_atoms)])

    def label(self, truths: tuple[Truth, ...]) -> int:
        """The label that every reading of the unknown truths leads to, -1 where they differ."""
        known = self._known.get(truths)
        if known is None:
            known = self._known[truths] = self._common(truths)
        return known

    def needs_falsehood(self, atom: int) -> bool:
        """Whether a label ever depends on an atom being false, rather than false or unknown."""
        if self.table is None:
            return True
        bit = 1 << (self._num_atoms - 1 - atom)
        return any(
            label >= 0 and not index & bit and self.table[index | bit] != label
            for index, label in enumerate(self.table)
        )

    def _common(self, truths: tuple[Truth, ...]) -> int:
        unknown = [at for at, truth in enumerate(truths) if truth == UNKNOWN]
        if len(unknown) > _MAX_UNKNOWN:
            return -1
        reading = [truth == TRUE for truth in truths]
        labels = set()
        for values in product((False, True), repeat=len(unknown)):
            for at, value in zip(unknown, values, strict=True):
                reading[at] = value
            labels.add(self._label_of(tuple(reading)))
        return labels.pop() if len(labels) == 1 else -1


def all_true(truths: Sequence[Truth]) -> Truth:
    """The truth of "all of these"."""
    if FALSE in truths:
        return FALSE
    return UNKNOWN if UNKNOWN in truths else TRUE

"""The product of several automata that read the same text, labelled by what all of them say together.

Union, intersection, complement and exclusive choice are one operation here: each part marks a text, and a function maps
the marks of all parts to a label or to none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import Indices, Labels, Table, trim_labelled
from sgl_runtime.grammar.minimize import minimize_labelled

LabelOfMarks = Callable[[tuple[int, ...]], int]

_MAX_KEY = 2**62
# Combinations of marks that may still come; with more of them a state is kept without a closer look.
_MAX_OUTCOMES = 4096


@dataclass(frozen=True, eq=False)
class Part:
    """A complete automaton: every state has an edge for every class; state 0 is the start.

    Attributes:
        table: (S, C) int32, next state.
        marks: (S,) int32, the mark of the texts that end at a state; from 0 on, below 63.
        ahead: (S,) int64, bit m is set where a text that goes through the state can end with mark m.
        is_smallest: Whether every state can be reached (but perhaps the last one) and no two of them go on alike.
    """

    table: Table
    marks: Labels
    ahead: Indices
    is_smallest: bool = False


def with_reach(table: Table, marks: Labels) -> Part:
    """A part whose marks ahead are looked up edge by edge."""
    ahead = np.left_shift(np.int64(1), marks.astype(np.int64))
    while True:
        further = np.bitwise_or(ahead, np.bitwise_or.reduce(ahead[table], axis=1)) if table.shape[1] else ahead
        if np.array_equal(further, ahead):
            return Part(table, marks, ahead)
        ahead = further


def labelled_product(parts: Sequence[Part], label_of: LabelOfMarks, budget: Budget) -> tuple[Table, Labels]:
    """The smallest automaton that gives every text the label of its marks.

    Args:
        parts: Automata over one alphabet, at least one.
        label_of: The label of a tuple of marks, one of each part; -1 for texts that are not wanted.
        budget: Limits the states and the time.

    Returns:
        (S, C) int32 next states, -1 where no label can be reached; and (S,) int32 labels.

    Raises:
        GrammarError: the budget does not suffice.
    """
    decisions = _Decisions(parts, label_of)
    if len(parts) > 1:
        table, labels = _Exploration(parts, decisions, budget).run()
    else:
        part = parts[0]
        by_mark = np.array([decisions.label((mark,)) for mark in range(int(part.marks.max()) + 1)], dtype=np.int32)
        if part.is_smallest and len(np.unique(by_mark)) == len(by_mark):
            return _without_dead(part, by_mark)
        table, labels = part.table, by_mark[part.marks]
    table, labels = trim_labelled(table, labels, 0, budget)
    return minimize_labelled(table, labels, budget)


def _without_dead(part: Part, label_of_mark: Labels) -> tuple[Table, Labels]:
    """A smallest part with labels instead of marks, without the states that have no label ahead."""
    labelled = int(np.left_shift(np.int64(1), np.flatnonzero(label_of_mark >= 0)).sum())
    alive = part.ahead & labelled > 0
    alive[-1] &= len(alive) == 1 or bool((part.table == len(alive) - 1).any())
    if not alive[0]:
        return np.full((1, part.table.shape[1]), -1, dtype=np.int32), np.full(1, -1, dtype=np.int32)
    renumber = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
    return renumber[part.table[alive]], label_of_mark[part.marks[alive]]


class _Decisions:
    """Labels of tuples of marks, and of what can still come."""

    def __init__(self, parts: Sequence[Part], label_of: LabelOfMarks) -> None:
        self._label_of = label_of
        self._labels: dict[tuple[int, ...], int] = {}
        self._outcomes: dict[tuple[int, ...], int | None] = {}

    def label(self, marks: tuple[int, ...]) -> int:
        """The label of a text with these marks."""
        known = self._labels.get(marks)
        if known is None:
            known = self._labels[marks] = self._label_of(marks)
        return known

    def outcome(self, ahead: tuple[int, ...]) -> int | None:
        """The label of every text that goes on from here, None where they differ or are too many to see.

        Args:
            ahead: For each part the set of marks that may come, as bits.
        """
        if ahead not in self._outcomes:
            self._outcomes[ahead] = self._common_label(ahead)
        return self._outcomes[ahead]

    def _common_label(self, ahead: tuple[int, ...]) -> int | None:
        choices = [[mark for mark in range(bits.bit_length()) if bits >> mark & 1] for bits in ahead]
        if np.prod([float(len(each)) for each in choices]) > _MAX_OUTCOMES:
            return None
        common: int | None = None
        for marks in combinations(*choices):
            label = self.label(marks)
            if common is not None and label != common:
                return None
            common = label
        return common


class _Exploration:
    """Breadth-first search of the reachable tuples of states."""

    def __init__(self, parts: Sequence[Part], decisions: _Decisions, budget: Budget) -> None:
        self._parts = parts
        self._decisions = decisions
        self._budget = budget
        self._strides = _strides([len(part.table) for part in parts])
        self._numbers: dict[int | bytes, int] = {}
        self._labels: list[int] = []
        self._sinks: dict[int, int] = {}

    def run(self) -> tuple[Table, Labels]:
        """Table and labels of the states that were found; edges to where no label is ahead are -1."""
        width = self._parts[0].table.shape[1]
        # State 0 has no text behind it and stays out of `_sinks`, so that it is always explored.
        frontier = np.zeros((1, len(self._parts)), dtype=np.int32)
        self._numbers[self._keys(frontier).tolist()[0]] = 0
        self._labels.append(self._decisions.label(tuple(int(part.marks[0]) for part in self._parts)))
        owners = [0]
        blocks: list[tuple[list[int], Table]] = []
        while len(frontier):
            self._budget.spend(16)
            targets = np.stack([part.table[frontier[:, at]].ravel() for at, part in enumerate(self._parts)], axis=1)
            keys, first, inverse = np.unique(self._keys(targets), return_index=True, return_inverse=True)
            states = targets[first]
            known = len(self._labels)
            numbers, fresh = self._number(keys.tolist(), states)
            blocks.append((owners, numbers[inverse.ravel()].reshape(len(frontier), width)))
            owners = numbers[fresh].tolist()
            frontier = states[fresh]
            self._budget.check_states(len(self._labels))
            self._budget.spend(len(self._labels) - known)
        table = np.full((len(self._labels), width), -1, dtype=np.int32)
        for numbered, block in blocks:
            table[numbered] = block
        for sink in self._sinks.values():
            table[sink] = sink
        return table, np.array(self._labels, dtype=np.int32)

    def _keys(self, states: Table) -> NDArray[np.int64] | NDArray[np.void]:
        """One value for each row of states."""
        if self._strides is not None:
            return states @ self._strides
        packed = np.ascontiguousarray(states)
        return packed.view(np.dtype((np.void, packed.dtype.itemsize * packed.shape[1]))).ravel()

    def _number(self, keys: list[int | bytes], states: Table) -> tuple[Labels, list[int]]:
        """The numbers of tuples, new ones if need be; and which rows are to be explored."""
        numbers = np.empty(len(keys), dtype=np.int32)
        fresh: list[int] = []
        ahead = np.stack([part.ahead[states[:, at]] for at, part in enumerate(self._parts)], axis=1).tolist()
        marks = np.stack([part.marks[states[:, at]] for at, part in enumerate(self._parts)], axis=1).tolist()
        for row, key in enumerate(keys):
            number = self._numbers.get(key)
            if number is None:
                outcome = self._decisions.outcome(tuple(ahead[row]))
                if outcome is None:
                    number = self._add(self._decisions.label(tuple(marks[row])))
                    fresh.append(row)
                elif outcome < 0:
                    number = -1
                else:
                    number = self._sinks.get(outcome, -1)
                    if number < 0:
                        number = self._sinks[outcome] = self._add(outcome)
                self._numbers[key] = number
            numbers[row] = number
        return numbers, fresh

    def _add(self, label: int) -> int:
        self._labels.append(label)
        return len(self._labels) - 1


def _strides(sizes: list[int]) -> Indices | None:
    """Weights that give every tuple of states a number of its own; None where 64 bits do not suffice."""
    strides = [1]
    for size in sizes:
        strides.append(strides[-1] * size)
    return None if strides[-1] > _MAX_KEY else np.array(strides[:-1], dtype=np.int64)

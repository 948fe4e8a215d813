"""Nfa: a nondeterministic automaton over characters under construction, and its determinisation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.alphabet import Alphabet, IntArray
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, smallest
from sgl_runtime.grammar.char_set import ANY_CHAR, CharSet

_NFA_STATES_PER_STATE = 4


@dataclass(frozen=True)
class NfaEdges:
    """All edges of an `Nfa` as arrays, labels spelled out as classes of one alphabet.

    Attributes:
        alphabet: The partition that the labels induce.
        source, symbol, target: (E,) int64, edges on characters; `symbol` is a class.
        epsilon: For each state with edges on nothing, their targets.
    """

    alphabet: Alphabet
    source: NDArray[np.int64]
    symbol: NDArray[np.int64]
    target: NDArray[np.int64]
    epsilon: dict[int, list[int]]


class Nfa:
    """States are numbers; fragments are added in place and joined by edges on nothing.

    Args:
        budget: Limits the number of states (generously: determinisation leaves most of them out).
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.num_states = 0
        self._set_numbers: dict[CharSet, int] = {}
        self._edges: list[tuple[int, int, int]] = []
        self._epsilon: list[tuple[int, int]] = []
        self._any_text = -1

    def add_states(self, count: int = 1) -> int:
        """Make states; returns the number of the first."""
        first = self.num_states
        self.num_states += count
        self.budget.spend()
        self.budget.check_states(self.num_states // _NFA_STATES_PER_STATE)
        return first

    def add_edge(self, source: int, chars: CharSet, target: int) -> None:
        """An edge on any character of a set."""
        self._edges.append((source, self._set_number(chars), target))

    def add_epsilon(self, source: int, target: int) -> None:
        """An edge on nothing."""
        self._epsilon.append((source, target))

    def any_text_state(self, end: int) -> int:
        """A state behind which any text leads to `end`, which is where an automaton accepts."""
        if self._any_text < 0:
            self._any_text = self.add_states()
            self.add_edge(self._any_text, ANY_CHAR, self._any_text)
            self.add_epsilon(self._any_text, end)
        return self._any_text

    def edges(self) -> NfaEdges:
        """The edges so far."""
        alphabet, member = Alphabet.from_sets(list(self._set_numbers))
        source, label, target = np.array(self._edges, dtype=np.int64).reshape(-1, 3).T
        set_of_pair, symbol_of_pair = np.nonzero(member.T)
        counts = np.bincount(set_of_pair, minlength=len(self._set_numbers))
        offsets = np.cumsum(counts) - counts
        repeats = counts[label]
        at = np.repeat(offsets[label] - (np.cumsum(repeats) - repeats), repeats) + np.arange(int(repeats.sum()))
        epsilon: dict[int, list[int]] = {}
        for from_state, to_state in self._epsilon:
            epsilon.setdefault(from_state, []).append(to_state)
        return NfaEdges(alphabet, np.repeat(source, repeats), symbol_of_pair[at], np.repeat(target, repeats), epsilon)

    def to_dfa(self, start: int, accept: int) -> CharDfa:
        """The smallest deterministic automaton of the strings that lead from `start` to `accept`.

        Raises:
            GrammarError: the budget does not suffice.
        """
        subsets = _Subsets(self.edges(), self.num_states, accept, self._any_text, self.budget)
        first = subsets.entry(start)
        table, accepting = subsets.explore()
        if first < 0:
            # The start accepts nothing: any state without edges serves.
            first, accepting = 0, np.zeros_like(accepting)
        return smallest(subsets.alphabet, table, accepting, first, self.budget)

    def _set_number(self, chars: CharSet) -> int:
        return self._set_numbers.setdefault(chars, len(self._set_numbers))


class _Subsets:
    """The subset construction, done row by row only where the automaton is not deterministic already.

    Deterministic state q < N stands for the subset {q} of the N states; larger subsets get numbers from N on.
    """

    def __init__(self, edges: NfaEdges, num_states: int, accept: int, any_text: int, budget: Budget) -> None:
        self.alphabet = edges.alphabet
        self._budget = budget
        self._num_states = num_states
        self._epsilon = edges.epsilon
        self._numbers: dict[tuple[int, ...], int] = {}
        self._members: list[tuple[int, ...]] = []
        self._rows: list[IntArray] = []
        self._has_edges = np.zeros(num_states, dtype=bool)
        self._has_edges[edges.source] = True
        self._has_edges[accept] = True
        self._accept = accept
        self._any_text = any_text
        self._closures: dict[int, int] = {}
        self._table = self._single_rows(edges)

    def entry(self, state: int) -> int:
        """The deterministic state that entering an NFA state leads to, -1 where nothing can follow."""
        if state not in self._epsilon:
            return state
        known = self._closures.get(state)
        if known is None:
            known = self._closures[state] = self._number(self._closure(state))
        return known

    def explore(self) -> tuple[IntArray, NDArray[np.bool_]]:
        """Make the rows of all subsets; returns the whole table and the accepting flags."""
        while len(self._rows) < len(self._members):
            self._budget.spend(8)
            self._rows.append(self._row(self._members[len(self._rows)]))
        accepting = np.zeros(self._num_states + len(self._members), dtype=bool)
        accepting[self._accept] = True
        accepting[self._num_states :] = [self._accept in members for members in self._members]
        rows = np.array(self._rows, dtype=np.int32).reshape(len(self._rows), self.alphabet.num_classes)
        return np.concatenate([self._table, rows]), accepting

    def _single_rows(self, edges: NfaEdges) -> IntArray:
        """Rows of the subsets of one state."""
        entries = np.arange(self._num_states)
        for state in self._epsilon:
            entries[state] = self.entry(state)
        target = entries[edges.target]
        width = self.alphabet.num_classes
        live = target >= 0
        num_targets = self._num_states + len(self._members)
        keys = np.unique((edges.source * width + edges.symbol)[live] * num_targets + target[live])
        cell, target = keys // num_targets, keys % num_targets
        table = np.full((self._num_states, width), -1, dtype=np.int32)
        table.ravel()[cell] = target
        repeated = np.append(cell[1:] == cell[:-1], False) if len(cell) else np.zeros(0, dtype=bool)
        for doubled in np.unique(cell[repeated]).tolist():
            low, high = np.searchsorted(cell, [doubled, doubled + 1])
            table.ravel()[doubled] = self._union(target[low:high].tolist())
        return table

    def _row(self, members: tuple[int, ...]) -> IntArray:
        rows = self._table[list(members)]
        row: IntArray = rows.max(axis=0)
        lowest = np.where(rows < 0, np.int32(2**31 - 1), rows).min(axis=0)
        (mixed,) = np.nonzero((lowest != row) & (row >= 0))
        done: dict[bytes, int] = {}
        columns = np.ascontiguousarray(rows.T[mixed])
        for column, targets in zip(mixed.tolist(), columns, strict=True):
            key = targets.tobytes()
            if key not in done:
                done[key] = self._union([target for target in targets.tolist() if target >= 0])
            row[column] = done[key]
        return row

    def _union(self, targets: list[int]) -> int:
        states: set[int] = set()
        for target in targets:
            if target < self._num_states:
                states.add(target)
            else:
                states.update(self._members[target - self._num_states])
        self._budget.spend(len(states))
        return self._number(states)

    def _closure(self, state: int) -> set[int]:
        """The states with edges (or acceptance) that `state` reaches on nothing."""
        found = {state}
        pending = [state]
        while pending:
            for target in self._epsilon.get(pending.pop(), ()):
                if target not in found:
                    found.add(target)
                    pending.append(target)
        self._budget.spend(len(found))
        return {each for each in found if self._has_edges[each]}

    def _number(self, states: set[int]) -> int:
        if len(states) <= 1:
            return next(iter(states), -1)
        if self._any_text in states:
            # Whatever the other states would accept is accepted already.
            states = {self._any_text, self._accept}
        key = tuple(sorted(states))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._num_states + len(self._members)
            self._members.append(key)
            self._budget.check_states(len(self._members))
        return number

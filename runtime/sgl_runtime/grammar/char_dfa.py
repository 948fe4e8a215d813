"""CharDfa: a deterministic automaton over characters, the form in which front ends compose languages.

The last step of every front end, `utf8.to_bytes`, turns it into a `ByteAutomaton`.
"""

from dataclasses import dataclass

import numpy as np

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import Flags, Indices, Table, trim
from sgl_runtime.grammar.minimize import minimize


@dataclass(frozen=True, eq=False)
class CharDfa:
    """A trimmed automaton: every state is reachable and can reach acceptance; state 0 is the start.

    Attributes:
        alphabet: Classes of characters, C of them.
        table: (S, C) int32, next state or -1.
        accepting: (S,) bool.
    """

    alphabet: Alphabet
    table: Table
    accepting: Flags

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.table)

    @property
    def is_empty(self) -> bool:
        """Whether no string at all is accepted."""
        return not self.accepting.any()

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.table.nbytes + self.accepting.nbytes + self.alphabet.starts.nbytes + self.alphabet.classes.nbytes

    def accepts(self, text: str) -> bool:
        """Whether the whole string is in the language."""
        state = 0
        points = np.array([ord(char) for char in text], dtype=np.int32)
        for number in self.alphabet.class_of(points).tolist():
            state = int(self.table[state, number]) if number >= 0 else -1
            if state < 0:
                return False
        return bool(self.accepting[state])


def smallest(alphabet: Alphabet, table: Table, accepting: Flags, start: int, budget: Budget) -> CharDfa:
    """Trim, minimise, and merge the classes that no state tells apart."""
    table, accepting = trim(table, accepting, start, budget)
    table, accepting = minimize(table, accepting, budget)
    alphabet, table = _merge_classes(alphabet, table)
    return CharDfa(alphabet, table, accepting)


def num_states_by_length(dfa: CharDfa, most: int, budget: Budget) -> Indices:
    """How many states the strings of each length lead to.

    Args:
        dfa: The automaton.
        most: The greatest length.
        budget: Paid for each length.

    Returns:
        (most + 1,) int64.
    """
    counts = np.zeros(most + 1, dtype=np.int64)
    reached = np.zeros(1, dtype=np.int64)
    for length in range(most + 1):
        counts[length] = len(reached)
        budget.spend()
        targets = dfa.table[reached]
        following = np.unique(targets[targets >= 0]).astype(np.int64)
        if np.array_equal(following, reached):
            counts[length:] = len(reached)
            break
        reached = following
    return counts


def intersect(first: CharDfa, second: CharDfa, budget: Budget) -> CharDfa:
    """The strings that both automata accept."""
    alphabet, in_first, in_second = Alphabet.joint(first.alphabet, second.alphabet)
    # Class -1 of one side has no edge there: the column of -1 in a padded table.
    table_a = _with_dead_column(first.table)[:, in_first].astype(np.int64)
    table_b = _with_dead_column(second.table)[:, in_second].astype(np.int64)
    width = second.num_states
    known = np.zeros(1, dtype=np.int64)
    frontier = known
    rows = []
    while len(frontier):
        budget.spend(16)
        next_a, next_b = table_a[frontier // width], table_b[frontier % width]
        pairs = np.where((next_a >= 0) & (next_b >= 0), next_a * width + next_b, -1)
        rows.append(np.stack([np.repeat(frontier, pairs.shape[1]), pairs.ravel()]))
        targets = np.unique(pairs[pairs >= 0])
        frontier = targets[~_contains(known, targets)]
        known = np.union1d(known, frontier)
        budget.check_states(len(known))
    table = np.full((len(known), alphabet.num_classes), -1, dtype=np.int32)
    sources, targets = np.concatenate(rows, axis=1)
    columns = np.tile(np.arange(alphabet.num_classes), len(sources) // max(alphabet.num_classes, 1))
    live = targets >= 0
    table[np.searchsorted(known, sources[live]), columns[live]] = np.searchsorted(known, targets[live])
    accepting = first.accepting[known // width] & second.accepting[known % width]
    return smallest(alphabet, table, accepting, 0, budget)


def _contains(ascending: Indices, values: Indices) -> Flags:
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Flags = ascending[at] == values
    return found


def _with_dead_column(table: Table) -> Table:
    return np.concatenate([table, np.full((len(table), 1), -1, dtype=np.int32)], axis=1)


def _merge_classes(alphabet: Alphabet, table: Table) -> tuple[Alphabet, Table]:
    if table.shape[1] == 0:
        return alphabet, table
    columns, inverse = np.unique(table.T, axis=0, return_inverse=True)
    dead = (columns < 0).all(axis=1)
    renumber = np.where(dead, -1, np.cumsum(~dead) - 1).astype(np.int32)
    merged = alphabet.merged(renumber[inverse.ravel()], int((~dead).sum()))
    return merged, np.ascontiguousarray(columns[~dead].T)

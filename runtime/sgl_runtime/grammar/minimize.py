"""Minimisation of deterministic automata by partition refinement on whole arrays."""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import Flags, Indices, InverseEdges, Labels, Table, as_labels, distinct_rows

_NUM_TRIES = 4


def minimize(table: Table, accepting: Flags, budget: Budget) -> tuple[Table, Flags]:
    """`minimize_labelled` for an automaton that accepts or does not."""
    table, labels = minimize_labelled(table, as_labels(accepting), budget)
    return table, labels >= 0


def minimize_labelled(table: Table, labels: Labels, budget: Budget) -> tuple[Table, Labels]:
    """The smallest automaton that gives every text the same label.

    Args:
        table: (S, C) int32, next state or -1; state 0 is the start and every state can reach a label.
        labels: (S,) int32, -1 for none.
        budget: Paid for every round.

    Returns:
        Table and labels of the smallest automaton; its start is state 0.
    """
    for attempt in range(_NUM_TRIES):
        block = _refine(table, labels, budget, np.random.default_rng(attempt))
        _, first, dense = np.unique(block, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order) + 1, dtype=np.int32)
        rank[order] = np.arange(len(order))
        rank[-1] = -1
        renumber = np.append(rank[dense], np.int32(-1))
        smallest = renumber[table[first[order]]]
        # Signatures are hashes, so that a collision would merge two states that differ: look, and draw others.
        if np.array_equal(renumber[table], smallest[renumber[:-1]]):
            return smallest, labels[first[order]]
    raise AssertionError(f"{_NUM_TRIES} random signatures in a row collided")


def merge_if_equal(table: Table, labels: Labels, budget: Budget) -> tuple[Table, Labels]:
    """`minimize_labelled` for an automaton in which states are seldom equal, so that a look at single rows pays."""
    rows = np.concatenate([table, labels[:, None]], axis=1)
    return (table, labels) if len(distinct_rows(rows)[0]) == len(rows) else minimize_labelled(table, labels, budget)


def _refine(table: Table, labels: Labels, budget: Budget, rng: np.random.Generator) -> NDArray[np.int64]:
    """Split blocks until all states of a block agree; returns the block of each state.

    A round looks only at the states with an edge into a state whose block has just got a new number, as in
    Hopcroft's algorithm ("An n log n algorithm for minimizing states in a finite automaton", 1971), but takes all
    pending splitters at once.
    """
    num_states = len(table)
    weights = rng.integers(1, 2**63, size=table.shape[1], dtype=np.uint64) | np.uint64(1)
    inverse = InverseEdges(table, loops=True)
    # The last entry stands for "no edge": index -1 of the table finds it.
    kinds, kind = np.unique(labels, return_inverse=True)
    block = np.append(kind + 1, 0).astype(np.int64)
    next_block = len(kinds) + 1
    size = np.bincount(block[:-1], minlength=num_states + next_block)
    affected: Indices = np.arange(num_states)
    while len(affected):
        budget.spend(16)
        signature = (block[table[affected]].astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
        own = block[affected]
        order = np.lexsort((signature, own))
        own, signature = own[order], signature[order]
        opens_block = np.append(True, own[1:] != own[:-1])
        opens_group = opens_block | np.append(True, signature[1:] != signature[:-1])
        group_at = np.flatnonzero(opens_group)
        group_size = np.diff(np.append(group_at, len(order)))
        group_block = own[group_at]
        fresh = _groups_to_renumber(group_size, group_block, size)
        if not fresh.any():
            break
        new_numbers = next_block + np.arange(int(fresh.sum()))
        next_block += len(new_numbers)
        if next_block > len(size):
            size = np.append(size, np.zeros(next_block, dtype=size.dtype))
        np.subtract.at(size, group_block[fresh], group_size[fresh])
        size[new_numbers] = group_size[fresh]
        number = np.where(fresh, 0, group_block)
        number[fresh] = new_numbers
        block[affected[order]] = np.repeat(number, group_size)
        changed = affected[order][np.repeat(fresh, group_size)]
        affected = inverse.sources(changed)
    return block[:-1]


def _groups_to_renumber(group_size: Indices, group_block: Indices, size: Indices) -> Flags:
    """Which groups leave their block: all but the states that were not looked at, or else the largest group."""
    heads = np.flatnonzero(np.append(True, group_block[1:] != group_block[:-1]))
    looked_at = np.add.reduceat(group_size, heads)
    whole = looked_at == size[group_block[heads]]
    fresh = np.ones(len(group_size), dtype=bool)
    num_groups = np.diff(np.append(heads, len(group_size)))
    # Sorting by block, then size, puts each block's largest group last.
    by_size = np.lexsort((group_size, np.repeat(np.arange(len(heads)), num_groups)))
    largest = by_size[heads + num_groups - 1]
    fresh[largest[whole]] = False
    return fresh

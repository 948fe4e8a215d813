"""Given texts with labels of their own, laid over an automaton that labels all other texts.

The texts form a tree.  Each of its nodes also knows where the automaton below is after the same bytes, and has that
state's edges where the tree has none.  Sorted texts are added one by one and subtrees that are complete are merged with
equal ones, so that the whole tree never exists (Daciuk and others, "Incremental construction of minimal acyclic
finite-state automata", 2000).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import NO_LABEL, ByteFragment
from sgl_runtime.grammar.graph import trim_labelled
from sgl_runtime.grammar.minimize import merge_if_equal

EMPTY = ByteFragment.of(np.full((1, 256), -1, dtype=np.int32), np.full(1, NO_LABEL, dtype=np.int32))
_DEAD = -1


def overlay(below: ByteFragment, texts: Mapping[bytes, int], budget: Budget) -> ByteFragment:
    """The automaton that gives `texts` their labels (or NO_LABEL) and any other text the label that `below` gives it.

    Args:
        below: A smallest automaton.
        texts: Labels of given texts.
        budget: Limits the number of states.

    Raises:
        GrammarError: the budget does not suffice.
    """
    if not texts:
        return below
    layer = _Layer(below, budget)
    previous = b""
    for text in sorted(texts):
        layer.back_to(_common_prefix_len(previous, text))
        layer.add(text, texts[text])
        previous = text
    start = layer.finish()
    return EMPTY if start == _DEAD else layer.fragment(start)


def _common_prefix_len(first: bytes, second: bytes) -> int:
    length = min(len(first), len(second))
    for at in range(length):
        if first[at] != second[at]:
            return at
    return length


@dataclass(slots=True)
class _Node:
    """A node that may still get children.

    Attributes:
        below: State of the automaton below after the same bytes, or _DEAD.
        label: What the text up to here has.
        byte: The byte that leads here.
        edges: States of the complete children by their byte.
    """

    below: int
    label: int
    byte: int
    edges: dict[int, int] = field(default_factory=dict)


class _Layer:
    """The path of the last text, and the states of everything that is complete.

    States below keep their numbers; those of the layer follow.
    """

    def __init__(self, below: ByteFragment, budget: Budget) -> None:
        self._below = below
        self._table = below.table
        self._budget = budget
        self._numbers: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}
        self._path = [_Node(0, int(below.labels[0]), 0)] if not below.is_empty else [_Node(_DEAD, NO_LABEL, 0)]

    def add(self, text: bytes, label: int) -> None:
        """Extend the path, which spells a prefix of the text, to the text."""
        table, labels = self._table, self._below.labels
        below = self._path[-1].below
        for byte in text[len(self._path) - 1 :]:
            below = int(table[below, byte]) if below != _DEAD else _DEAD
            self._path.append(_Node(below, int(labels[below]) if below != _DEAD else NO_LABEL, byte))
        self._path[-1].label = label
        self._budget.spend(len(text))

    def back_to(self, depth: int) -> None:
        """Complete the nodes of the path that are deeper."""
        while len(self._path) > depth + 1:
            node = self._path.pop()
            self._path[-1].edges[node.byte] = self._complete(node)

    def finish(self) -> int:
        """Complete all; returns the start."""
        self.back_to(0)
        return self._complete(self._path[0])

    def fragment(self, start: int) -> ByteFragment:
        """The whole automaton."""
        below, num_below = self._below, self._below.num_states
        sources = np.array([source for _, source, _ in self._numbers], dtype=np.int64)
        padded = np.concatenate([self._table, np.full((1, 256), -1, dtype=np.int32)])
        rows = padded[sources]
        edges = [(at, *edge) for at, (_, _, edges) in enumerate(self._numbers) for edge in edges]
        at, byte, target = np.array(edges, dtype=np.int32).reshape(-1, 3).T
        rows[at, byte] = target
        table = np.concatenate([self._table, rows])
        labels = np.concatenate([below.labels, np.array([label for label, _, _ in self._numbers], dtype=np.int32)])
        assert start < num_below + len(rows)
        table, labels = trim_labelled(table, labels, start, self._budget)
        # Equal labels may have made a state of the layer equal to one that lies below another.
        return ByteFragment.of(*merge_if_equal(table, labels, self._budget))

    def _complete(self, node: _Node) -> int:
        """The state of a node that gets no more children."""
        below = node.below
        label_below = NO_LABEL
        edges = tuple(node.edges.items())
        if below == _DEAD:
            edges = tuple(edge for edge in edges if edge[1] != _DEAD)
        else:
            row = self._table[below]
            edges = tuple(edge for edge in edges if edge[1] != row[edge[0]])
            label_below = int(self._below.labels[below])
        if not edges and node.label == label_below:
            return below
        key = (node.label, below, edges)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._below.num_states + len(self._numbers)
            self._budget.check_states(len(self._numbers))
        return number

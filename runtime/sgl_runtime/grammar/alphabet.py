"""Alphabet: the characters cut into classes that an automaton does not tell apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.char_set import MAX_CODE_POINT, CharSet

IntArray = NDArray[np.int32]


@dataclass(frozen=True)
class Alphabet:
    """A partition of the code points.

    Attributes:
        starts: (M,) int32 ascending, the first code point of each interval; starts[0] is 0.
        classes: (M,) int32, the class of each interval; -1 where no automaton of this alphabet has an edge.
        num_classes: Number of classes, C.
    """

    starts: IntArray
    classes: IntArray
    num_classes: int

    @classmethod
    def from_sets(cls, sets: Sequence[CharSet]) -> "tuple[Alphabet, NDArray[np.bool_]]":
        """The coarsest partition in which every set is a union of classes.

        Returns:
            The alphabet and a (C, len(sets)) bool matrix: whether the class lies in the set.
        """
        lows = np.array([low for chars in sets for low, _ in chars.ranges], dtype=np.int64)
        highs = np.array([high + 1 for chars in sets for _, high in chars.ranges], dtype=np.int64)
        owner = np.repeat(np.arange(len(sets)), [len(chars.ranges) for chars in sets])
        starts = np.unique(np.concatenate([[0], lows, highs]))
        starts = starts[starts <= MAX_CODE_POINT]
        steps = np.zeros((len(starts) + 1, len(sets)), dtype=np.int8)
        np.add.at(steps, (np.searchsorted(starts, lows), owner), 1)
        np.add.at(steps, (np.searchsorted(starts, highs), owner), -1)
        member: NDArray[np.bool_] = np.cumsum(steps[:-1], axis=0, dtype=np.int8) > 0
        classes, representative = _group_rows(np.packbits(member, axis=1))
        used = member[representative].any(axis=1)
        renumber = np.where(used, np.cumsum(used) - 1, -1)
        alphabet = cls(starts.astype(np.int32), renumber[classes].astype(np.int32), int(used.sum()))
        return alphabet, member[representative[used]]

    @classmethod
    def joint(cls, first: "Alphabet", second: "Alphabet") -> "tuple[Alphabet, IntArray, IntArray]":
        """The common refinement of two alphabets.

        Returns:
            The alphabet, and for each of its classes the class in `first` and in `second` (-1 for none).
        """
        starts = np.union1d(first.starts, second.starts)
        pairs = np.stack([first.class_of(starts), second.class_of(starts)], axis=1)
        classes, representative = _group_rows(pairs)
        used = (pairs[representative] >= 0).any(axis=1)
        renumber = np.where(used, np.cumsum(used) - 1, -1)
        alphabet = cls(starts.astype(np.int32), renumber[classes].astype(np.int32), int(used.sum()))
        kept = pairs[representative[used]]
        return alphabet, kept[:, 0], kept[:, 1]

    @classmethod
    def common(cls, alphabets: "Sequence[Alphabet]", within: CharSet) -> "tuple[Alphabet, IntArray]":
        """The common refinement of some alphabets, for complete automata over the characters of a set.

        Returns:
            The alphabet, with a class for every character of the set and -1 for the others; and a (C, len(alphabets))
            matrix: the class in each of the alphabets (-1 for none).
        """
        edges = [point for low, high in within.ranges for point in (low, high + 1) if point <= MAX_CODE_POINT]
        starts = np.unique(np.concatenate([[0], edges, *(each.starts for each in alphabets)])).astype(np.int32)
        inside = np.searchsorted(np.array(edges, dtype=np.int64), starts, side="right") % 2 == 1
        columns = np.stack([inside.astype(np.int32), *(each.class_of(starts) for each in alphabets)], axis=1)
        columns[~inside] = 0
        classes, representative = _group_rows(columns)
        used = inside[representative]
        renumber = np.where(used, np.cumsum(used) - 1, -1)
        alphabet = cls(starts, renumber[classes].astype(np.int32), int(used.sum()))
        return alphabet, columns[representative[used], 1:]

    def class_of(self, code_points: IntArray) -> IntArray:
        """The class of each code point, -1 for none."""
        return self.classes[np.searchsorted(self.starts, code_points, side="right") - 1]

    def merged(self, renumber: IntArray, num_classes: int) -> "Alphabet":
        """The alphabet after classes were renumbered, some together, some to -1."""
        padded = np.append(renumber, np.int32(-1)).astype(np.int32)
        return Alphabet(self.starts, padded[self.classes], num_classes)

    def char_sets(self) -> list[CharSet]:
        """The characters of each class."""
        ranges: list[list[tuple[int, int]]] = [[] for _ in range(self.num_classes)]
        ends = np.append(self.starts[1:] - 1, MAX_CODE_POINT)
        for low, high, number in zip(self.starts.tolist(), ends.tolist(), self.classes.tolist(), strict=True):
            if number >= 0:
                ranges[number].append((low, high))
        return [CharSet.from_ranges(each) for each in ranges]


def _group_rows(rows: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number equal rows: the group of each row, in order of first appearance, and the first row of each group."""
    keys = np.ascontiguousarray(rows)
    width = keys.dtype.itemsize * keys.shape[1]
    if width == 0:
        return np.zeros(len(keys), dtype=np.int64), np.zeros(1, dtype=np.int64)
    _, first, inverse = np.unique(keys.view(np.dtype((np.void, width))).ravel(), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]

"""What AutomatonBuilder writes into the table of an automaton, all of a kind at once.

There are hundreds of copies, merges and special edges, and the numpy calls for one of them would take longer than the
work that they do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import DEAD, FIRST_SPECIAL
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.graph import Flags, Table

_NUM_BYTES = 256
# Marks below this are numbers of 64 bits.
_MAX_MARKS = 2**62

SpecialRun = tuple[int, NDArray[np.int32], NDArray[np.int32]]
"""Special edges made together: the first number, targets, arguments."""

MergeRun = tuple[int, NDArray[np.int64], int]
"""States that get the edges of another one: the state from which offsets count, the offsets, and that other one."""


@dataclass(frozen=True, eq=False, slots=True)
class CountingRun:
    """What `AutomatonBuilder.add_counting` was given.

    Attributes:
        first, count, fragment, callees: See there.
        number: The first of its special edges.
    """

    first: int
    count: int
    fragment: ByteFragment
    callees: NDArray[np.int32]
    number: int


def byte_classes(
    fragments: Iterable[ByteFragment], alone: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The class of each byte, and a byte of each class: no fragment and no edge tells bytes of a class apart.

    Args:
        fragments: Those of which there are copies; the same ones may come again.
        alone: Bytes that have edges of their own.
    """
    is_alone = np.zeros(_NUM_BYTES, dtype=bool)
    is_alone[alone] = True
    # What tells a byte from others: itself where it is alone, and its class in each fragment where it is not.
    marks = np.where(is_alone, np.arange(1, _NUM_BYTES + 1), 0)
    num_marks = _NUM_BYTES + 1
    for fragment in dict.fromkeys(fragments):
        num_classes = fragment.class_table.shape[1]
        if num_marks * num_classes > _MAX_MARKS:
            marks = np.unique(marks, return_inverse=True)[1]
            num_marks = _NUM_BYTES
        marks = marks * num_classes + fragment.byte_classes
        num_marks *= num_classes
    _, kept, classes = np.unique(marks, return_index=True, return_inverse=True)
    return classes, kept


def write_copies(table: Table, kept_bytes: NDArray[np.int64], copies: Iterable[tuple[int, ByteFragment]]) -> None:
    """Write copies of fragments.

    Args:
        table: (S, K) int32, gets them.
        kept_bytes: (K,) a byte of each class.
        copies: The first state of each, and the fragment.
    """
    firsts_of: dict[ByteFragment, list[int]] = {}
    for first, fragment in copies:
        firsts_of.setdefault(fragment, []).append(first)
    for fragment, firsts in firsts_of.items():
        begins = np.array(firsts, dtype=np.int32).reshape(-1, 1, 1)
        rows = np.where(fragment.class_table >= 0, fragment.class_table + begins, np.int32(DEAD))
        states = begins[:, :, 0] + np.arange(fragment.num_states)
        table[states] = rows.take(fragment.byte_classes[kept_bytes], axis=2)


def write_counting(table: Table, kept_bytes: NDArray[np.int64], runs: Iterable[CountingRun]) -> None:
    """Write the edges with which states count characters; `table` and `kept_bytes` as for `write_copies`."""
    for run in runs:
        own = run.callees[kept_bytes]
        kinds, kind = np.unique(own[own >= 0], return_inverse=True)
        # Entries of the first state, and by how much they differ from one state to the next.
        start, step = np.full(len(own), DEAD, dtype=np.int32), np.zeros(len(own), dtype=np.int32)
        is_whole = run.fragment.class_table[0, run.fragment.byte_classes[kept_bytes]] == 0
        start[is_whole], step[is_whole] = run.first + 1, 1
        start[own >= 0], step[own >= 0] = FIRST_SPECIAL - run.number - kind, -len(kinds)
        rows = table[run.first : run.first + run.count]
        np.multiply(step, np.arange(run.count, dtype=np.int32)[:, None], out=rows)
        rows += start


def write_merges(table: Table, accepting: Flags, merges: Sequence[int], runs: Sequence[MergeRun]) -> None:
    """Give states the edges of others, level by level, see `AutomatonBuilder.merge`.

    Args:
        table: (S, K) int32, has all other edges.
        accepting: (S,) bool, likewise.
        merges: Level, state and source of each.
        runs: More of level 0.
    """
    levels, states, sources = np.array(merges, dtype=np.int64).reshape(-1, 3).T
    for level in range(levels.max(initial=0) + 1):
        (found,) = np.nonzero(levels == level)
        into, of = states[found], sources[found]
        if level == 0 and runs:
            firsts, offsets, targets = zip(*runs, strict=True)
            counts = [len(each) for each in offsets]
            into = np.concatenate([into, np.repeat(firsts, counts) + np.concatenate(offsets)])
            of = np.concatenate([of, np.repeat(targets, counts)])
        if not len(into):
            continue
        rows = table[into]
        np.copyto(rows, table[of], where=rows == DEAD)
        table[into] = rows
        accepting[into[accepting[of]]] = True


def all_specials(
    num_specials: int, single: Mapping[tuple[int, int], int], runs: Iterable[SpecialRun]
) -> NDArray[np.int32]:
    """(E, 2) the targets and arguments of the special edges.

    Args:
        num_specials: How many there are, E.
        single: The number of each that was made by itself, by target and argument.
        runs: Those made together.
    """
    specials = np.empty((num_specials, 2), dtype=np.int32)
    pairs = np.fromiter(chain.from_iterable(single), dtype=np.int32, count=2 * len(single))
    specials[list(single.values())] = pairs.reshape(-1, 2)
    for number, targets, arguments in runs:
        specials[number : number + len(targets)] = np.stack([targets, arguments], axis=1)
    return specials

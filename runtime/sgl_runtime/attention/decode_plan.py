"""How the rows of a decode pass are put together: prefixes that rows share, and what each has of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgl_runtime.batch import IntArray

MAX_PADDING = 0.25
"""Share of padding that a group of rows may hold before it is split."""
MIN_SAVED = 512
"""Slots that need not be copied from which on a prefix is attended apart from the rest of its rows."""


@dataclass(frozen=True)
class SharedPrefix:
    """A prefix whose keys are read once for all its rows.

    Attributes:
        members: Rows of the pass.
        slots: (n,) slots of the prefix.
    """

    members: list[int]
    slots: IntArray


@dataclass(frozen=True)
class TailGroup:
    """Rows whose remaining contexts are of similar length.

    Attributes:
        members: Rows of the pass.
        slots: (b, n) slots behind the prefix, padded with the row's own first one: what another request left in a slot
            must not be read, since a weight of zero times a NaN is a NaN.
        lengths: (b,) how many of them count.
    """

    members: list[int]
    slots: IntArray
    lengths: IntArray


@dataclass(frozen=True)
class DecodePlan:
    """All rows are in one tail group each; those with a prefix are in one `SharedPrefix` besides."""

    prefixes: list[SharedPrefix]
    tails: list[TailGroup]


def plan_decode(slots: IntArray, lengths: Sequence[int]) -> DecodePlan:
    """Find what can be read once, and what can be read in place.

    A prefix pays where several rows share it, or where one row's slots lie in a run (no copy is made of those).

    Args:
        slots: (B, n) slots of the rows' contexts, entries behind a row's length are not looked at.
        lengths: Context length of each row.
    """
    prefix_lens = [0] * len(lengths)
    prefixes = []
    for members in _families(slots):
        length = _prefix_length(slots, members, lengths)
        if length * len(members) >= MIN_SAVED:
            prefixes.append(SharedPrefix(members, slots[members[0], :length].copy()))
            for member in members:
                prefix_lens[member] = length
    own = [length - prefix for length, prefix in zip(lengths, prefix_lens, strict=True)]
    tails = [_tail(slots, group, prefix_lens, own) for group in similar_lengths(own)]
    return DecodePlan(prefixes, tails)


def is_run(slots: IntArray) -> bool:
    """Whether slots follow one another."""
    return int(slots[-1]) - int(slots[0]) == len(slots) - 1 and bool((slots[1:] - slots[:-1] == 1).all())


def similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Split rows into groups, longest first, so that padding stays under `MAX_PADDING` of each."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    groups: list[list[int]] = []
    used = 0
    for index in order:
        if groups:
            group = groups[-1]
            area = (len(group) + 1) * lengths[group[0]]
            if area - used - lengths[index] <= MAX_PADDING * area:
                group.append(index)
                used += lengths[index]
                continue
        groups.append([index])
        used = lengths[index]
    return [sorted(group) for group in groups]


def _families(slots: IntArray) -> list[list[int]]:
    families: dict[int, list[int]] = {}
    for row, first in enumerate(slots[:, 0].tolist()):
        families.setdefault(first, []).append(row)
    return list(families.values())


def _prefix_length(slots: IntArray, members: list[int], lengths: Sequence[int]) -> int:
    shortest = min(lengths[member] for member in members) - 1
    first = slots[members[0], :shortest]
    if len(members) > 1:
        differs = (slots[members[1:], :shortest] != first).any(axis=0)
    elif is_run(slots[members[0], : shortest + 1]):
        # The whole context is read in place as it stands.
        return 0
    else:
        differs = first != slots[members[0], 0] + np.arange(shortest, dtype=np.int32)
    return int(differs.argmax()) if differs.any() else shortest


def _tail(slots: IntArray, members: list[int], prefix_lens: list[int], own: list[int]) -> TailGroup:
    width = max(own[member] for member in members)
    padded = np.empty((len(members), width), dtype=np.int32)
    for row, member in zip(padded, members, strict=True):
        start, count = prefix_lens[member], own[member]
        row[:count] = slots[member, start : start + count]
        row[count:] = row[0]
    return TailGroup(members, padded, np.array([own[member] for member in members], dtype=np.int32))

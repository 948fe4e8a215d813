"""The order of an object's properties: for each name, as bits, those that may not come after it."""

from collections.abc import Iterable, Sequence


def names_before(lists: Sequence[Sequence[int]], num_names: int) -> list[int]:
    """The order of several lists of names: before a name in one of them, and behind it in none.

    Args:
        lists: Indices of names.
        num_names: How many there are.
    """
    if len(lists) == 1 and list(lists[0]) == list(range(num_names)):
        return one_order(num_names)
    before = [0] * num_names
    behind = [0] * num_names
    for names in lists:
        earlier, later = 0, sum(1 << index for index in names)
        for index in names:
            later &= ~(1 << index)
            before[index] |= earlier
            behind[index] |= later
            earlier |= 1 << index
    return [early & ~late for early, late in zip(before, behind, strict=True)]


def one_order(num_names: int) -> list[int]:
    """The order in which the names are numbered."""
    return [(1 << index) - 1 for index in range(num_names)]


def with_first(earlier: Sequence[int], first: Iterable[int]) -> list[int]:
    """An order in which some names come before all others.

    Args:
        earlier: The order so far.
        first: The indices of these names.
    """
    bits = sum(1 << index for index in first)
    return [early & bits if bits >> index & 1 else early | bits for index, early in enumerate(earlier)]

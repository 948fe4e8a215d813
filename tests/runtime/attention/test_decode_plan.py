"""Which prefixes are attended apart, and that every slot is looked at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgl_runtime.attention.decode_plan import MIN_SAVED, plan_decode, similar_lengths


def table(rows: list[list[int]]) -> np.ndarray:
    out = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return out


def looked_at(rows: list[list[int]]) -> list[list[int]]:
    plan = plan_decode(table(rows), [len(row) for row in rows])
    seen: list[list[int]] = [[] for _ in rows]
    for prefix in plan.prefixes:
        for member in prefix.members:
            seen[member] += prefix.slots.tolist()
    for tail in plan.tails:
        for member, slots, length in zip(tail.members, tail.slots, tail.lengths, strict=True):
            seen[member] += slots[:length].tolist()
    return seen


def test_a_shared_prefix_is_read_once():
    common = list(range(MIN_SAVED // 4, MIN_SAVED // 2))
    rows = [[*common, 900 + i] for i in range(4)]
    plan = plan_decode(table(rows), [len(row) for row in rows])
    (prefix,) = plan.prefixes
    assert prefix.members == [0, 1, 2, 3]
    assert prefix.slots.tolist() == common
    assert looked_at(rows) == rows


def test_a_long_run_is_read_in_place_and_a_short_one_is_not():
    for length, count in ((MIN_SAVED, 1), (MIN_SAVED - 1, 0)):
        plan = plan_decode(table([[*range(length), 5000]]), [length + 1])
        assert len(plan.prefixes) == count


def test_an_unbroken_context_is_one_tail():
    plan = plan_decode(table([list(range(2000))]), [2000])
    assert plan.prefixes == []
    assert plan.tails[0].slots.tolist() == [list(range(2000))]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_slot_is_looked_at_once(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    families = [rng.permutation(4000)[: int(rng.integers(1, 900))].tolist() for _ in range(3)]
    families[1] = sorted(families[1])
    rows = []
    for index in range(data.draw(st.integers(1, 7))):
        base = families[int(rng.integers(3))]
        kept = base[: int(rng.integers(0, len(base) + 1))]
        rows.append([*kept, *rng.integers(5000, 6000, size=int(rng.integers(0, 40))).tolist(), 7000 + index])
    assert looked_at(rows) == rows


@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [100, 3, 90, 2, 1], list(range(1, 60))])
def test_groups_hold_every_row_once_and_little_padding(lengths):
    groups = similar_lengths(lengths)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[row] for row in group)
        assert sum(longest - lengths[row] for row in group) <= 0.25 * longest * len(group)

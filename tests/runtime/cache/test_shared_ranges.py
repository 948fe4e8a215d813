"""Which ranges of their contexts rows share, against a search that looks at every position."""

import numpy as np
import pytest

from sgl_runtime.cache.shared_ranges import find_shared


def plain_search(contexts, rows, begin, at, *, min_length, min_saved):
    found = []
    longer = [row for row in rows if len(contexts[row]) > at]
    for slot in {contexts[row][at] for row in longer}:
        family = [row for row in longer if contexts[row][at] == slot]
        if len(family) < 2:
            continue
        end = at
        while all(len(contexts[row]) > end for row in family) and len({contexts[row][end] for row in family}) == 1:
            end += 1
        saved = (end - begin) * (len(family) - 1)
        is_worth = end - begin >= min_length and saved >= min_saved
        if is_worth:
            found.append((family, begin, end))
        rest = end if is_worth else begin
        found += plain_search(contexts, family, rest, end, min_length=min_length, min_saved=min_saved)
    return found


@pytest.mark.parametrize(("min_length", "min_saved"), [(1, 1), (1, 30), (12, 1), (8, 40)])
def test_ranges_are_those_of_a_plain_search(min_length, min_saved):
    rng = np.random.default_rng(min_saved)
    limits = {"min_length": min_length, "min_saved": min_saved}
    num_found = 0
    for _ in range(150):
        size, width = int(rng.integers(1, 12)), 64
        slots = rng.permutation(size * width).reshape(size, width).astype(np.int32)
        for row in range(1, size):
            shared = int(rng.integers(0, width)) if rng.random() < 0.8 else 0
            slots[row, :shared] = slots[rng.integers(0, row), :shared]
        row_ids = rng.permutation(size).astype(np.int32)
        lengths = rng.integers(0, width + 1, size).astype(np.int32)
        contexts = [slots[row_ids[i], : lengths[i]].tolist() for i in range(size)]
        ranges = find_shared(slots, row_ids, lengths, **limits)
        found = sorted((sorted(part.rows.tolist()), part.begin, part.end) for part in ranges)
        assert found == sorted(plain_search(contexts, range(size), 0, 0, **limits))
        num_found += len(found)
    assert num_found > 20

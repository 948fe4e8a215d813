"""What a pass is told of prompts besides ids: embeddings that are given, texts of a pair, what becomes a vector."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import GivenRows, IntArray, PoolSpans
from sgl_runtime.scheduler.req import Req


def given_rows(reqs: Sequence[Req], starts: IntArray, totals: Sequence[int]) -> GivenRows | None:
    """The embeddings among the new tokens of a pass; None where there are none.

    Args:
        reqs: The requests of its rows.
        starts: (B,) where the new tokens of each begin in the pass.
        totals: How many tokens of each are computed once it is over.
    """
    places: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.float32]] = []
    for req, start, total in zip(reqs, starts.tolist(), totals, strict=True):
        if req.given_rows is not None and req.num_computed < req.prompt_len:
            part = req.given_rows[req.num_computed : total]
            places.append(np.arange(start, start + len(part), dtype=np.int64))
            rows.append(part)
    return GivenRows(places=np.concatenate(places), rows=np.concatenate(rows)) if rows else None


def segments(reqs: Sequence[Req], totals: Sequence[int]) -> NDArray[np.int64] | None:
    """(T,) of which text of a pair each new token is; None where no prompt is a pair."""
    if all(req.message.segment_start < 0 for req in reqs):
        return None
    parts = []
    for req, total in zip(reqs, totals, strict=True):
        positions = np.arange(req.num_computed, total)
        start = req.message.segment_start
        parts.append((positions >= start).astype(np.int64) if start >= 0 else np.zeros_like(positions))
    return np.concatenate(parts)


def pool_spans(reqs: Sequence[Req], totals: Sequence[int]) -> PoolSpans | None:
    """Which new tokens of a pass the vectors are made of; None where no vector is wanted."""
    if all(req.message.pooling is None for req in reqs):
        return None
    starts = np.full(len(reqs), -1, dtype=np.int32)
    ends = np.full(len(reqs), -1, dtype=np.int32)
    for index, (req, total) in enumerate(zip(reqs, totals, strict=True)):
        count = total - req.num_computed
        match req.message.pooling:
            case "mean":
                starts[index], ends[index] = 0, count
            case "cls" if req.num_computed == 0:
                starts[index], ends[index] = 0, 1
            case "last" if total == req.prompt_len:
                starts[index], ends[index] = count - 1, count
    return PoolSpans(starts=starts, ends=ends)

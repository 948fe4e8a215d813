"""SharedRun: rows of a pass over prompts that begin with the same slots, and which of them are attended at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sgl_runtime.batch import Batch

MIN_SHARED_POSITIONS = 1024
"""Positions that rows share below which each attends them about as fast on its own."""

MIN_SHARING_TOKENS = 1024
"""New tokens of those rows below which a plan and a launch more take longer than what they save."""


@dataclass(frozen=True)
class SharedRun:
    """Rows that follow one another in a pass and have the same slots at their first positions.

    Attributes:
        rows: Of the pass.
        tokens: Their new tokens.
        length: Positions that they share.
    """

    rows: slice
    tokens: slice
    length: int

    @property
    def num_tokens(self) -> int:
        """New tokens of its rows."""
        return int(self.tokens.stop - self.tokens.start)


def shared_runs(batch: Batch) -> Iterator[SharedRun]:
    """All of a pass, of any size: where rows of a range do not follow one another, each part of them that does."""
    ends = np.cumsum(batch.extend_lens)
    for shared in batch.shared_ranges:
        rows = np.sort(shared.rows)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            first, last = int(run[0]), int(run[-1])
            tokens = slice(int(ends[first] - batch.extend_lens[first]), int(ends[last]))
            # Who shares positions shares all that stand before them.
            yield SharedRun(slice(first, last + 1), tokens, shared.end)


def best_run(batch: Batch) -> SharedRun | None:
    """The run that saves most of a pass, or None where none saves enough."""
    worth = [
        run for run in shared_runs(batch) if run.length >= MIN_SHARED_POSITIONS and run.num_tokens >= MIN_SHARING_TOKENS
    ]
    return max(worth, key=lambda run: run.num_tokens * run.length, default=None)

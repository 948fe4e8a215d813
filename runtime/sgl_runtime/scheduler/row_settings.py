"""RowSettings: the sampling settings of running requests, by row, so that a pass gathers them at once."""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray, SamplingBatch
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.uniforms import uniforms

LEAST_TEMPERATURE = 1e-30
"""Below it logits divided by the temperature may be no numbers any more; the likeliest token is all that can come."""


class RowSettings:
    """What stays the same for a request while it holds its row.

    Args:
        num_rows: Rows of the ReqToTokenPool.
    """

    def __init__(self, num_rows: int) -> None:
        self._temperatures = np.zeros(num_rows, dtype=np.float32)
        self._top_ps = np.ones(num_rows, dtype=np.float32)
        self._top_ks = np.full(num_rows, -1, dtype=np.int32)
        self._min_ps = np.zeros(num_rows, dtype=np.float32)
        self._seeds = np.zeros(num_rows, dtype=np.uint64)
        self._wants_logprob = np.zeros(num_rows, dtype=np.bool_)
        self._top_nums = np.zeros(num_rows, dtype=np.int32)
        self._prompt_lens = np.zeros(num_rows, dtype=np.int64)

    def fill(self, req: Req) -> None:
        """Take over the settings of a request that has got its row."""
        row, sampling = req.row, req.sampling
        is_greedy = sampling.is_greedy or sampling.temperature < LEAST_TEMPERATURE
        self._temperatures[row] = 0.0 if is_greedy else sampling.temperature
        self._top_ps[row] = sampling.top_p
        self._top_ks[row] = sampling.top_k
        self._min_ps[row] = sampling.min_p
        self._seeds[row] = req.seed
        self._wants_logprob[row] = req.message.return_logprob
        self._top_nums[row] = req.message.top_logprobs_num
        self._prompt_lens[row] = req.prompt_len

    def sampling(self, rows: IntArray, totals: IntArray) -> SamplingBatch:
        """The settings of a pass.

        Args:
            rows: (B,) rows.
            totals: (B,) tokens of prompt and output that stand before the one that is drawn.
        """
        # In the middle of a prompt nothing is drawn.
        draws = np.maximum(totals - self._prompt_lens[rows], 0).astype(np.uint64)
        return SamplingBatch(
            temperatures=self._temperatures[rows],
            top_ps=self._top_ps[rows],
            top_ks=self._top_ks[rows],
            min_ps=self._min_ps[rows],
            uniforms=uniforms(self._seeds[rows], draws),
        )

    def wants_logprob(self, rows: IntArray) -> NDArray[np.bool_]:
        """(B,) whether the log probability of the drawn token is wanted."""
        return self._wants_logprob[rows]

    def top_nums(self, rows: IntArray) -> IntArray | None:
        """(B,) how many of the likeliest tokens are wanted; None where none are."""
        numbers = self._top_nums[rows]
        return numbers if numbers.any() else None

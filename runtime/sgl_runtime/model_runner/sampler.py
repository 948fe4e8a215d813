"""Sampler: logits to token ids.  Greedy, temperature, top-k, top-p, min-p, each row with its own settings."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import LogitEdits, SamplingBatch
from sgl_runtime.device.base import Device
from sgl_runtime.device.ops import invert

FIRST_CANDIDATES = 1024
"""Likeliest tokens that a filter looks at first; all are sorted only where these do not settle it."""


def apply_logit_edits(logits: Tensor, edits: LogitEdits, rows: NDArray[np.int64], device: Device) -> None:
    """Apply penalties and biases, without waiting for the logits.

    Args:
        logits: (R, V) float32, changed in place.
        edits: By row of the batch.
        rows: (B,) row of `logits` for each row of the batch.
        device: Where the logits are.
    """
    index, token_ids, repetition, added = (
        device.to_device(values) for values in (rows[edits.rows], edits.token_ids, edits.repetition, edits.added)
    )
    chosen = logits[index, token_ids]
    logits[index, token_ids] = torch.where(chosen > 0, chosen / repetition, chosen * repetition) + added


def has_filter(sampling: SamplingBatch) -> NDArray[np.bool_]:
    """(R,) whether top-k, top-p or min-p takes tokens away."""
    return (sampling.top_ks > 0) | (sampling.top_ps < 1.0) | (sampling.min_ps > 0.0)


class TokenSampler(Protocol):
    """Draws one token a row; keeps nothing between calls.

    Attributes:
        filters_by_kernels: Whether its draws are those of kernels that may be captured (`find_filters` and `draw`), so
            that a graph may do them in its place.  Without filters any sampler of a GPU draws what such a graph does.
    """

    filters_by_kernels: bool

    def sample(self, logits: Tensor, sampling: SamplingBatch, masks: Tensor | None = None) -> Tensor:
        """Draw a token for every row.

        Temperature first, then top-k, top-p on what is left, then min-p against the likeliest.  A row's draw depends on
        its own number and on no other row.

        Args:
            logits: (R, V) float, masked tokens at minus infinity.
            sampling: Settings of the R rows.
            masks: (R, ceil(V / 32)) int32 bits of the tokens that may come, on the device; None: all may.

        Returns:
            (R,) int64.
        """


class Sampler:
    """See `TokenSampler`; filters sort.

    The draw inverts the cumulative distribution, in id order or where a filter is set in order of falling probability,
    at the row's own uniform number.

    Args:
        device: Where the logits are.
    """

    def __init__(self, device: Device) -> None:
        self.filters_by_kernels = False
        self._device = device

    def sample(self, logits: Tensor, sampling: SamplingBatch, masks: Tensor | None = None) -> Tensor:
        """See `TokenSampler`."""
        drawn = sampling.temperatures > 0.0
        filtered = drawn & has_filter(sampling)
        temperatures = np.where(filtered, np.float32(0.0), sampling.temperatures)
        to_device = self._device.to_device
        out = self._device.ops.draw(logits, to_device(temperatures), to_device(sampling.uniforms), masks)
        if filtered.any():
            index = to_device(np.flatnonzero(filtered))
            chosen = logits[index].float()
            if masks is not None:
                self._device.ops.mask_logits(chosen, masks[index])
            probs = (chosen / self._column(sampling.temperatures[filtered])).softmax(dim=-1)
            out[index] = self._draw_filtered(probs, sampling.select(filtered))
        return out

    def _draw_filtered(self, probs: Tensor, sampling: SamplingBatch) -> Tensor:
        vocab_size = probs.shape[-1]
        top_ks = self._column(np.where(sampling.top_ks > 0, sampling.top_ks, vocab_size).astype(np.int64))
        top_ps, min_ps = self._column(sampling.top_ps), self._column(sampling.min_ps)
        uniforms = self._column(sampling.uniforms)
        count = min(FIRST_CANDIDATES, vocab_size)
        values, ids = probs.topk(count, dim=-1)
        enough = (values.sum(dim=-1, keepdim=True) >= top_ps) & (top_ps < 1.0)
        enough |= values[:, -1:] < min_ps * values[:, :1]
        settled = (top_ks <= count) | ((top_ks >= vocab_size) & enough)
        filters = {"top_ks": top_ks, "top_ps": top_ps, "min_ps": min_ps, "uniforms": uniforms}
        drawn = _draw_sorted(values, ids, vocab_size=vocab_size, **filters)
        # Row by row, not all if one needs it: among equal probabilities the two ways may differ in their order.
        rows = (~settled).squeeze(1).nonzero().squeeze(1)
        if len(rows):
            values, ids = probs[rows].sort(dim=-1, descending=True)
            of_rows = {name: column[rows] for name, column in filters.items()}
            drawn[rows] = _draw_sorted(values, ids, vocab_size=vocab_size, **of_rows)
        return drawn

    def _column(self, values: NDArray[np.generic]) -> Tensor:
        return self._device.to_device(values).unsqueeze(1)


def filter_sorted(values: Tensor, totals: Tensor, *, top_ks: Tensor, top_ps: Tensor, min_ps: Tensor) -> Tensor:
    """Zero the probabilities that the filters remove.

    Args:
        values: (R, K) probabilities, falling.
        totals: (R, 1) probability of all tokens that top-k leaves.
        top_ks: (R, 1) how many stay at most.
        top_ps: (R, 1); the fewest tokens stay whose share of what top-k left reaches it.
        min_ps: (R, 1); tokens under this share of the likeliest go.
    """
    ranks = torch.arange(values.shape[-1], device=values.device)
    kept = values.masked_fill(ranks >= top_ks, 0.0)
    before = kept.cumsum(dim=-1) - kept
    kept = kept.masked_fill((before >= top_ps * totals) & (top_ps < 1.0), 0.0)
    return kept.masked_fill(kept < min_ps * kept[:, :1], 0.0)


def _draw_sorted(
    values: Tensor, ids: Tensor, *, vocab_size: int, top_ks: Tensor, top_ps: Tensor, min_ps: Tensor, uniforms: Tensor
) -> Tensor:
    """(R,) draws of tokens after the filters.

    Args:
        values: (R, K) probabilities of the likeliest tokens, falling.
        ids: (R, K) the tokens.
        vocab_size: V; a top-k of it is off.
        top_ks, top_ps, min_ps, uniforms: (R, 1) each.
    """
    upto = values.cumsum(dim=-1).gather(1, top_ks.clamp(max=values.shape[-1]) - 1)
    totals = torch.where(top_ks >= vocab_size, 1.0, upto)
    kept = filter_sorted(values, totals, top_ks=top_ks, top_ps=top_ps, min_ps=min_ps)
    return ids.gather(1, invert(kept, uniforms).unsqueeze(1)).squeeze(1)

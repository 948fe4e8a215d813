"""Log probabilities of a pass: of the prompt's own tokens, of the likeliest ones and of ids that were asked for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import Alternatives, Batch
from sgl_runtime.device.base import Device

LOGPROB_CHUNK = 256
"""Prompt positions whose logits exist at one time when their log probabilities are asked for."""


@dataclass(frozen=True)
class InputLogprobs:
    """See the fields of these names in `StepOutput`."""

    values: tuple[NDArray[np.float32] | None, ...]
    alternatives: tuple[Alternatives | None, ...] | None


def input_logprobs(batch: Batch, hidden: Tensor, logits: Callable[[Tensor], Tensor], device: Device) -> InputLogprobs:
    """Log probabilities of new tokens given what precedes them.

    Args:
        batch: The pass.
        hidden: (T, C) last hidden states.
        logits: Hidden states to (n, V) float32.
        device: Where they live.
    """
    size = batch.size
    values: list[NDArray[np.float32] | None] = [None] * size
    found: list[Alternatives | None] = [None] * size
    spans = _spans(batch)
    for span in spans:
        values[span.row] = np.full(span.num_entries, np.nan, dtype=np.float32)
        if batch.wants_alternatives(span.row):
            found[span.row] = _nothing_known(batch, span.row, span.num_entries)
    for chunk in _chunks(spans):
        places = np.concatenate([np.arange(piece.begin, piece.begin + len(piece.ids)) for piece in chunk])
        logprobs = logits(hidden[device.to_device(places)]).float().log_softmax(dim=-1)
        ids = device.to_device(np.concatenate([piece.ids for piece in chunk]))
        chosen = device.to_host(logprobs.gather(1, ids.unsqueeze(1)).squeeze(1))
        taken = 0
        for piece in chunk:
            count = len(piece.ids)
            entries = slice(piece.entry, piece.entry + count)
            row_values, row_found = values[piece.row], found[piece.row]
            assert row_values is not None, "every span has its array"
            row_values[entries] = chosen[taken : taken + count]
            if row_found is not None:
                part = alternatives(batch, piece.row, logprobs[taken : taken + count], device)
                row_found.top_ids[entries] = part.top_ids
                row_found.top_logprobs[entries] = part.top_logprobs
                row_found.probe_logprobs[entries] = part.probe_logprobs
            taken += count
    return InputLogprobs(tuple(values), tuple(found) if any(each is not None for each in found) else None)


def alternatives(batch: Batch, row: int, logprobs: Tensor, device: Device) -> Alternatives:
    """What a row wants to know of n positions.

    Args:
        batch: The pass.
        row: A row that wants alternatives.
        logprobs: (n, V) float32.
        device: Where they live.
    """
    top = logprobs.topk(_num_top(batch, row), dim=-1)
    probes = device.to_device(_probes(batch, row))
    return Alternatives(
        top_ids=device.to_host(top.indices),
        top_logprobs=device.to_host(top.values),
        probe_logprobs=device.to_host(logprobs[:, probes]),
    )


@dataclass(frozen=True)
class _Span:
    """Tokens of one row whose log probabilities are wanted.

    Attributes:
        row: The row.
        begin: Which hidden state of the pass predicts the first of them; the others follow.
        ids: The tokens.
        entry: Where the first of these stands in the row's result.
    """

    row: int
    begin: int
    ids: NDArray[np.int64]
    entry: int

    @property
    def num_entries(self) -> int:
        """How long the row's result is."""
        return self.entry + len(self.ids)


def _spans(batch: Batch) -> list[_Span]:
    ends = np.cumsum(batch.extend_lens)
    spans = []
    for row in np.flatnonzero(batch.logprob_starts >= 0).tolist():
        end, start = int(ends[row]), int(batch.logprob_starts[row])
        # Nothing precedes the first new token but in the row's prefix, whose hidden states are gone.
        has_no_context = int(start == 0)
        first = end - int(batch.extend_lens[row]) + start + has_no_context
        ids = batch.input_ids[first:end]
        if batch.next_ids is not None and batch.next_ids[row] >= 0:
            ids = np.append(ids, batch.next_ids[row])
        # The token at i is predicted by the hidden state at i - 1.
        spans.append(_Span(row, first - 1, ids, has_no_context))
    return spans


def _chunks(spans: list[_Span]) -> list[list[_Span]]:
    """The spans, cut into pieces, so that those of a chunk hold `LOGPROB_CHUNK` positions together."""
    chunks: list[list[_Span]] = []
    room = 0
    for span in spans:
        done = 0
        while done < len(span.ids):
            if room == 0:
                chunks.append([])
                room = LOGPROB_CHUNK
            ids = span.ids[done : done + room]
            chunks[-1].append(_Span(span.row, span.begin + done, ids, span.entry + done))
            room -= len(ids)
            done += len(ids)
    return chunks


def _nothing_known(batch: Batch, row: int, count: int) -> Alternatives:
    num_top, num_probes = _num_top(batch, row), len(_probes(batch, row))
    return Alternatives(
        top_ids=np.zeros((count, num_top), dtype=np.int64),
        top_logprobs=np.full((count, num_top), np.nan, dtype=np.float32),
        probe_logprobs=np.full((count, num_probes), np.nan, dtype=np.float32),
    )


def _num_top(batch: Batch, row: int) -> int:
    return 0 if batch.top_nums is None else int(batch.top_nums[row])


def _probes(batch: Batch, row: int) -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64) if batch.probe_ids is None else batch.probe_ids[row]

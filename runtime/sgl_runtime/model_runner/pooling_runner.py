"""PoolingRunner: a Batch in, what vectors are made of out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.batch import Batch, PoolSpans
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.host_kv_pool import HostKVPool
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.logprobs import InputLogprobs
from sgl_runtime.model_runner.pass_output import (
    NO_CHOICE,
    ForwardOutput,
    PendingOutput,
    PendingVectors,
    TokenChoice,
)
from sgl_runtime.models.base import PoolingModel


class PoolingRunner:
    """See `PassRunner`; nothing is ever drawn.

    Args:
        model: The model.
        attention: Its attention.
        device: Where all of it lives.
        slot_table: Mirror of the host's table; None for a model that keeps no keys and values.
        host_pool: Prefixes in host memory, if they are kept.
    """

    def __init__(
        self,
        model: PoolingModel,
        *,
        attention: AttentionBackend,
        device: Device,
        slot_table: SlotTable | None = None,
        host_pool: HostKVPool | None = None,
    ) -> None:
        self.runs_beside_host = device.runs_beside_host
        self._model = model
        self._attention = attention
        self._device = device
        self._slot_table = slot_table
        self._host_pool = host_pool

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """See `PassRunner`."""
        timer = self._device.start_timer()
        if self._host_pool is not None:
            self._host_pool.copy(batch)
        if self._slot_table is not None:
            self._slot_table.update(batch)
        forward_batch = ForwardBatch.from_batch(batch, self._device)
        attend = self._attention.prepare(forward_batch)
        hidden = self._model.forward(forward_batch.input_ids, forward_batch.positions, attend, forward_batch.segments)
        inputs = InputLogprobs((None,) * batch.size, None)
        return ForwardOutput(None, inputs, None, timer.stop(), self._vectors(batch, hidden))

    def sample(self, batch: Batch, output: ForwardOutput, choice: TokenChoice = NO_CHOICE) -> PendingOutput:
        """See `PassRunner`."""
        assert not batch.samples.any(), "a model that makes vectors draws nothing"
        return PendingOutput(batch, output)

    def open_grammars(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, max_depth: int
    ) -> None:
        """See `Executor`; there is nothing to constrain."""

    def _vectors(self, batch: Batch, hidden: Tensor) -> PendingVectors | None:
        spans = batch.pool_spans
        if spans is None or not (spans.starts >= 0).any():
            return None
        rows = np.flatnonzero(spans.starts >= 0)
        sums = self._sums(hidden, spans, rows, np.cumsum(batch.extend_lens) - batch.extend_lens)
        return PendingVectors(rows, self._device.start_copy(self._model.vectors(sums).float()))

    def _sums(self, hidden: Tensor, spans: PoolSpans, rows: NDArray[np.int64], begins: NDArray[np.int32]) -> Tensor:
        """(R, C) sums of the hidden states of spans; in float32 where they are of several tokens."""
        starts = (begins + spans.starts)[rows].astype(np.int64)
        lengths = (spans.ends - spans.starts)[rows].astype(np.int64)
        if (lengths == 1).all():
            return hidden[self._device.to_device(starts)]
        total = int(lengths.sum())
        places = np.arange(total) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        owners = np.repeat(np.arange(len(rows)), lengths)
        sums = torch.zeros(len(rows), hidden.shape[1], dtype=torch.float32, device=hidden.device)
        chosen = hidden[self._device.to_device(places)].float()
        return sums.index_add_(0, self._device.to_device(owners), chosen)

"""ModelRunner: one rank's model, pool and attention; a Batch in, logits and tokens out."""

import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.batch import Batch, StepOutput
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.sampler import Sampler, apply_logit_edits, apply_token_masks
from sgl_runtime.models.base import CausalModel

logger = logging.getLogger(__name__)

LOGPROB_CHUNK = 256
"""Prompt positions whose logits exist at one time when their log probabilities are asked for."""


@dataclass(frozen=True)
class ForwardOutput:
    """What a pass left on the device.

    Attributes:
        logits: (S, V) float32 of the rows that sample, in row order.
        input_logprobs: As in `StepOutput`.
        seconds: Time of the forward pass.
    """

    logits: Tensor
    input_logprobs: tuple[NDArray[np.float32] | None, ...]
    seconds: float


class ModelRunner:
    """Runs passes.

    Args:
        model: The model.
        attention: Backend over the model's pool.
        slot_table: Mirror of the host's table.
        device: Where all of it lives.
    """

    def __init__(
        self, model: CausalModel, *, attention: AttentionBackend, slot_table: SlotTable, device: Device
    ) -> None:
        self._model = model
        self._attention = attention
        self._slot_table = slot_table
        self._device = device
        self._sampler = Sampler(device)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Compute keys, values and the logits that are wanted."""
        begin = time.monotonic()
        self._slot_table.update(batch)
        forward_batch = ForwardBatch.from_batch(batch, self._device)
        attend = self._attention.prepare(forward_batch)
        hidden = self._model.forward(forward_batch.input_ids, forward_batch.positions, attend)
        ends = np.cumsum(batch.extend_lens)
        last = self._device.to_device((ends[batch.samples] - 1).astype(np.int64))
        logits = self._model.logits(hidden if len(last) == len(hidden) else hidden[last])
        input_logprobs = tuple(
            None if start < 0 else self._input_logprobs(hidden, batch, int(end - length), int(end), int(start))
            for start, end, length in zip(batch.logprob_starts, ends, batch.extend_lens, strict=True)
        )
        return ForwardOutput(logits, input_logprobs, time.monotonic() - begin)

    @torch.inference_mode()
    def sample(self, batch: Batch, output: ForwardOutput, masks: NDArray[np.int32] | None) -> StepOutput:
        """Draw the next tokens.

        Args:
            batch: The pass.
            output: What its forward gave.
            masks: (B, ceil(V / 32)) int32 token masks, or None where no row is constrained.
        """
        rows = batch.samples
        token_ids = np.full(batch.size, -1, dtype=np.int64)
        logprobs = np.full(batch.size, np.nan, dtype=np.float32)
        if rows.any():
            wanted = batch.wants_logprob[rows]
            is_edited = masks is not None or batch.logit_edits is not None
            plain = output.logits.clone() if wanted.any() and is_edited else output.logits
            if batch.logit_edits is not None:
                apply_logit_edits(output.logits, batch.logit_edits, np.cumsum(rows) - 1)
            if masks is not None:
                apply_token_masks(output.logits, masks[rows])
            drawn = self._sampler.sample(output.logits, batch.sampling.select(rows))
            token_ids[rows] = self._device.to_host(drawn)
            if wanted.any():
                chosen = plain.log_softmax(dim=-1).gather(1, drawn.unsqueeze(1)).squeeze(1)
                logprobs[rows] = np.where(wanted, self._device.to_host(chosen), np.nan)
        return StepOutput(token_ids=token_ids, logprobs=logprobs, input_logprobs=output.input_logprobs)

    def _input_logprobs(self, hidden: Tensor, batch: Batch, begin: int, end: int, start: int) -> NDArray[np.float32]:
        # The token at i is predicted by the hidden state at i - 1.
        out = np.full(end - begin - start, np.nan, dtype=np.float32)
        first = max(begin + start, begin + 1)
        for chunk in range(first, end, LOGPROB_CHUNK):
            stop = min(chunk + LOGPROB_CHUNK, end)
            targets = self._device.to_device(batch.input_ids[chunk:stop])
            logprobs = self._model.logits(hidden[chunk - 1 : stop - 1]).log_softmax(dim=-1)
            values = logprobs.gather(1, targets.unsqueeze(1)).squeeze(1)
            offset = chunk - begin - start
            out[offset : offset + stop - chunk] = self._device.to_host(values)
        return out

"""ModelRunner: one rank's model, pool and attention; a Batch in, logits and tokens out."""

import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.batch import Alternatives, Batch, StepOutput
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.logprobs import InputLogprobs, alternatives, input_logprobs
from sgl_runtime.model_runner.sampler import Sampler, apply_logit_edits, apply_token_masks
from sgl_runtime.models.base import CausalModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForwardOutput:
    """What a pass left on the device.

    Attributes:
        logits: (S, V) float32 of the rows that sample, in row order.
        inputs: Log probabilities of the prompt's tokens.
        seconds: Time of the forward pass.
    """

    logits: Tensor
    inputs: InputLogprobs
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
        inputs = input_logprobs(batch, hidden, self._model.logits, self._device)
        return ForwardOutput(logits, inputs, time.monotonic() - begin)

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
        others: tuple[Alternatives | None, ...] | None = None
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
                plain_logprobs = plain.log_softmax(dim=-1)
                chosen = plain_logprobs.gather(1, drawn.unsqueeze(1)).squeeze(1)
                logprobs[rows] = np.where(wanted, self._device.to_host(chosen), np.nan)
                others = self._alternatives(batch, plain_logprobs)
        return StepOutput(
            token_ids=token_ids,
            logprobs=logprobs,
            input_logprobs=output.inputs.values,
            alternatives=others,
            input_alternatives=output.inputs.alternatives,
        )

    def _alternatives(self, batch: Batch, logprobs: Tensor) -> tuple[Alternatives | None, ...] | None:
        """Of the rows that sample, which are the rows of `logprobs`."""
        if batch.top_nums is None and batch.probe_ids is None:
            return None
        found: list[Alternatives | None] = [None] * batch.size
        for place, row in enumerate(np.flatnonzero(batch.samples).tolist()):
            if batch.wants_logprob[row] and batch.wants_alternatives(row):
                found[row] = alternatives(batch, row, logprobs[place : place + 1], self._device)
        return tuple(found)

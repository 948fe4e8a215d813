"""ModelRunner: one rank's model, pool and attention; a Batch in, logits and tokens out."""

import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.batch import Alternatives, Batch, LogitEdits, StepOutput
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.host_kv_pool import HostKVPool
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.logit_processors import LogitProcessors
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
        hidden_states: See `StepOutput`.
        seconds: Time of the forward pass.
    """

    logits: Tensor
    inputs: InputLogprobs
    hidden_states: tuple[NDArray[np.float32] | None, ...] | None
    seconds: float


class ModelRunner:
    """Runs passes.

    Args:
        model: The model.
        attention: Backend over the model's pool.
        slot_table: Mirror of the host's table.
        device: Where all of it lives.
        processors: The custom processors of logits.
        host_pool: Prefixes in host memory, if they are kept.
    """

    def __init__(
        self,
        model: CausalModel,
        *,
        attention: AttentionBackend,
        slot_table: SlotTable,
        device: Device,
        processors: LogitProcessors,
        host_pool: HostKVPool | None = None,
    ) -> None:
        self._model = model
        self._attention = attention
        self._slot_table = slot_table
        self._device = device
        self._sampler = Sampler(device)
        self._processors = processors
        self._host_pool = host_pool
        # By row of the slot table: the token that the newest pass drew for it.
        self._drawn_ids = torch.zeros(slot_table.num_rows, dtype=torch.int64, device=device.torch_device)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Compute keys, values and the logits that are wanted."""
        begin = time.monotonic()
        if self._host_pool is not None:
            self._host_pool.copy(batch)
        self._slot_table.update(batch)
        forward_batch = ForwardBatch.from_batch(batch, self._device, drawn_ids=self._drawn_ids)
        attend = self._attention.prepare(forward_batch)
        hidden = self._model.forward(forward_batch.input_ids, forward_batch.positions, attend)
        ends = np.cumsum(batch.extend_lens)
        last = self._device.to_device((ends[batch.samples] - 1).astype(np.int64))
        logits = self._model.logits(hidden if len(last) == len(hidden) else hidden[last])
        inputs = input_logprobs(batch, hidden, self._model.logits, self._device)
        return ForwardOutput(logits, inputs, self._hidden_states(batch, hidden), time.monotonic() - begin)

    @torch.inference_mode()
    def sample(
        self,
        batch: Batch,
        output: ForwardOutput,
        masks: NDArray[np.int32] | None,
        logit_edits: LogitEdits | None,
    ) -> StepOutput:
        """Draw the next tokens.

        Args:
            batch: The pass.
            output: What its forward gave.
            masks: (B, ceil(V / 32)) int32 token masks, or None where no row is constrained.
            logit_edits: By row of the batch, or None where no row has any.
        """
        rows = batch.samples
        token_ids = np.full(batch.size, -1, dtype=np.int64)
        logprobs = np.full(batch.size, np.nan, dtype=np.float32)
        others: tuple[Alternatives | None, ...] | None = None
        failures: dict[int, str] = {}
        if rows.any():
            places = np.cumsum(rows) - 1
            wanted = batch.wants_logprob[rows]
            is_edited = masks is not None or logit_edits is not None
            plain = output.logits.clone() if wanted.any() and is_edited else output.logits
            if logit_edits is not None:
                apply_logit_edits(output.logits, logit_edits, places)
                failures = self._processors.apply(output.logits, logit_edits.calls, places)
            if masks is not None:
                apply_token_masks(output.logits, masks[rows])
            if logit_edits is not None:
                failures = self._processors.check(output.logits, logit_edits.calls, places, failures)
            drawn = self._sampler.sample(output.logits, batch.sampling.select(rows))
            self._drawn_ids[self._device.to_device(batch.row_ids[rows].astype(np.int64))] = drawn
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
            hidden_states=output.hidden_states,
            failures=tuple(failures.get(row) for row in range(batch.size)) if failures else None,
        )

    def _hidden_states(self, batch: Batch, hidden: Tensor) -> tuple[NDArray[np.float32] | None, ...] | None:
        if batch.hidden_starts is None:
            return None
        ends = np.cumsum(batch.extend_lens)
        begins = ends - batch.extend_lens + batch.hidden_starts
        return tuple(
            self._device.to_host(hidden[begin:end].float()) if start >= 0 else None
            for begin, end, start in zip(begins.tolist(), ends.tolist(), batch.hidden_starts.tolist(), strict=True)
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

"""ModelRunner: one rank's model, pool and attention; a Batch in, logits and tokens out."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.batch import Alternatives, Batch, LogitEdits
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.host_kv_pool import HostKVPool
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.logprobs import InputLogprobs, alternatives, input_logprobs
from sgl_runtime.model_runner.pass_output import NO_CHOICE, ForwardOutput, PendingOutput, TokenChoice
from sgl_runtime.model_runner.sampler import TokenSampler, apply_logit_edits
from sgl_runtime.models.base import CausalModel

# Loaded where they are used: their kernels need Triton, which a CPU does without.
if TYPE_CHECKING:
    from sgl_runtime.model_runner.decode_graphs import DecodeGraphs
    from sgl_runtime.model_runner.row_grammars import RowGrammars

logger = logging.getLogger(__name__)


class ModelRunner:
    """Runs passes.

    Args:
        model: The model.
        attention: Backend over the model's pool.
        slot_table: Mirror of the host's table.
        device: Where all of it lives.
        processors: The custom processors of logits.
        sampler: Draws the tokens that no graph draws.
        host_pool: Prefixes in host memory, if they are kept.

    Attributes:
        runs_beside_host: Whether a pass goes on while the host does something else.
    """

    def __init__(
        self,
        model: CausalModel,
        *,
        attention: AttentionBackend,
        slot_table: SlotTable,
        device: Device,
        processors: LogitProcessors,
        sampler: TokenSampler,
        host_pool: HostKVPool | None = None,
    ) -> None:
        self.runs_beside_host = device.runs_beside_host
        self._model = model
        self._attention = attention
        self._slot_table = slot_table
        self._device = device
        self._sampler = sampler
        self._processors = processors
        self._host_pool = host_pool
        # By row of the slot table: the token that the newest pass drew for it.
        self._drawn_ids = torch.zeros(slot_table.num_rows + 1, dtype=torch.int64, device=device.torch_device)
        self._graphs: DecodeGraphs | None = None
        self._grammars: RowGrammars | None = None

    def capture_graphs(self, max_rows: int, *, spare_slot: int) -> None:
        """Capture decode passes of up to `max_rows` rows, where the attention can be captured.

        Args:
            max_rows: Rows of the largest graph.
            spare_slot: A slot of the pool that nobody owns.
        """
        if self._attention.captured is not None and max_rows > 0:
            from sgl_runtime.model_runner.decode_graphs import DecodeGraphs, DecodeParts

            parts = DecodeParts(
                self._model,
                attention=self._attention.captured,
                slot_table=self._slot_table,
                spare_slot=spare_slot,
                drawn_ids=self._drawn_ids,
                device=self._device,
                has_filters=self._sampler.filters_by_kernels,
            )
            self._graphs = DecodeGraphs(parts, max_rows=max_rows)

    def open_grammars(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, max_depth: int
    ) -> "RowGrammars | None":
        """See `Executor`; masks are made by the kernels that also draw."""
        if not self._device.makes_masks:
            return None
        from sgl_runtime.device.mask_vocabulary import DeviceVocabulary
        from sgl_runtime.model_runner.row_grammars import RowGrammars

        where = self._device.torch_device
        vocabulary = DeviceVocabulary(token_bytes, end_ids=end_ids, size=size, device=where)
        num_rows = self._slot_table.num_rows
        self._grammars = RowGrammars(vocabulary, num_rows=num_rows, max_depth=max_depth, device=self._device)
        return self._grammars

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Compute keys, values and the logits that are wanted."""
        timer = self._device.start_timer()
        if self._host_pool is not None:
            self._host_pool.copy(batch)
        if batch.grammar_moves is not None and self._grammars is not None:
            self._grammars.set_rows(batch.grammar_moves)
        if self._graphs is not None and self._graphs.takes(batch):
            self._slot_table.update_prefixes(batch)
            output = self._graphs.run(batch)
            inputs = InputLogprobs((None,) * batch.size, None)
            return ForwardOutput(output.logits, inputs, None, timer.stop(), drawn=output.drawn)
        self._slot_table.update(batch)
        forward_batch = ForwardBatch.from_batch(batch, self._device, drawn_ids=self._drawn_ids)
        attend = self._attention.prepare(forward_batch)
        ends = np.cumsum(batch.extend_lens).astype(np.int64)
        last, wants_all, wanted = ends[batch.samples] - 1, wants_all_hidden(batch), None
        if not wants_all and len(last) < len(batch.input_ids):
            # Where no row samples, one place stands for none.
            wanted = self._device.to_device(last if len(last) else ends[-1:] - 1)
        hidden = self._model.forward(
            forward_batch.input_ids, forward_batch.positions, attend, self._embedded(forward_batch), wanted
        )
        logits = None
        if len(last):
            logits = self._model.logits(hidden[self._device.to_device(last)] if wants_all else hidden)
        inputs = input_logprobs(batch, hidden, self._model.logits, self._device)
        return ForwardOutput(logits, inputs, self._hidden_states(batch, hidden), timer.stop())

    def _embedded(self, forward_batch: ForwardBatch) -> Tensor | None:
        """The embeddings of a pass where requests bring some of them."""
        if forward_batch.given_rows is None:
            return None
        places, rows = forward_batch.given_rows
        embedded = self._model.embed(forward_batch.input_ids)
        embedded[places] = rows.to(embedded.dtype)
        return embedded

    @torch.inference_mode()
    def sample(self, batch: Batch, output: ForwardOutput, choice: TokenChoice = NO_CHOICE) -> PendingOutput:
        """Draw the next tokens.

        Args:
            batch: The pass.
            output: What its forward gave.
            choice: What the host has to say of the tokens.
        """
        rows = batch.samples
        pending = PendingOutput(batch, output)
        if not rows.any():
            return pending
        assert output.logits is not None, "a model that generates gives logits"
        wants_logprob = bool(batch.wants_logprob[rows].any())
        if output.drawn is not None:
            assert choice == NO_CHOICE, "the batch said that the host has nothing to say of the tokens"
            drawn, logits = output.drawn, output.logits
        else:
            logits = output.logits if choice.logit_edits is None else output.logits.float()
            # Log probabilities are of what the model says, before anything is done to it.
            is_edited = choice.masks is not None or choice.logit_edits is not None
            plain = logits.clone() if wants_logprob and is_edited else logits
            pending.failures = self._edit(batch, logits, choice.masks, choice.logit_edits)
            drawn = self._draw(batch, logits, choice.forced_ids)
            logits = plain
        pending.tokens = self._device.start_copy(drawn)
        if wants_logprob and batch.top_nums is None and batch.probe_ids is None:
            pending.logprobs = self._device.start_copy(self._device.ops.logprobs(logits, drawn))
        elif wants_logprob:
            logprobs = logits.float().log_softmax(dim=-1)
            pending.logprobs = self._device.start_copy(logprobs.gather(1, drawn.unsqueeze(1)).squeeze(1))
            pending.alternatives = self._alternatives(batch, logprobs)
        return pending

    def _draw(self, batch: Batch, logits: Tensor, forced_ids: NDArray[np.int64] | None) -> Tensor:
        """Draw under the masks that the device makes; (S,) tokens, kept for the next pass as well."""
        samples, grammars = batch.samples, self._grammars if batch.is_constrained else None
        row_ids = self._device.to_device(batch.row_ids[samples])
        masks = None if grammars is None else grammars.masks(row_ids)
        drawn = self._sampler.sample(logits, batch.sampling.select(samples), masks)
        if forced_ids is not None:
            forced = self._device.to_device(forced_ids[samples])
            drawn = torch.where(forced >= 0, forced, drawn)
        if grammars is not None:
            grammars.advance(row_ids, drawn)
        self._drawn_ids[row_ids.long()] = drawn
        return drawn

    def _edit(
        self, batch: Batch, logits: Tensor, masks: NDArray[np.int32] | None, logit_edits: LogitEdits | None
    ) -> dict[int, str]:
        """Change the logits of the rows that sample; what went wrong in custom processors, by row of the batch."""
        rows = batch.samples
        places = np.cumsum(rows) - 1
        failures: dict[int, str] = {}
        if logit_edits is not None:
            apply_logit_edits(logits, logit_edits, places, self._device)
            failures = self._processors.apply(logits, logit_edits.calls, places)
        if masks is not None:
            self._device.ops.mask_logits(logits, self._device.to_device(masks[rows]))
        if logit_edits is not None:
            failures = self._processors.check(logits, logit_edits.calls, places, failures)
        return failures

    def _hidden_states(self, batch: Batch, hidden: Tensor) -> tuple[NDArray[np.float32] | None, ...] | None:
        if batch.hidden_starts is None:
            return None
        ends = np.cumsum(batch.extend_lens)
        begins = ends - batch.extend_lens + batch.hidden_starts
        return tuple(
            self._device.to_host(hidden[begin:end].float()) if start >= 0 else None
            for begin, end, start in zip(begins.tolist(), ends.tolist(), batch.hidden_starts.tolist(), strict=True)
        )

    def _alternatives(self, batch: Batch, logprobs: Tensor) -> tuple[Alternatives | None, ...]:
        """Of the rows that sample, which are the rows of `logprobs`."""
        found: list[Alternatives | None] = [None] * batch.size
        for place, row in enumerate(np.flatnonzero(batch.samples).tolist()):
            if batch.wants_logprob[row] and batch.wants_alternatives(row):
                found[row] = alternatives(batch, row, logprobs[place : place + 1], self._device)
        return tuple(found)


def wants_all_hidden(batch: Batch) -> bool:
    """Whether hidden states are wanted of more tokens than those that are followed by a drawn one."""
    return batch.hidden_starts is not None or bool((batch.logprob_starts >= 0).any())

"""DecodeGraphs: decode passes captured once for a few sizes, and replayed with one launch.

A graph holds everything from the plan to the drawn tokens: which tokens go in, the model, the logits, the draw.  A pass
of B rows runs in the smallest graph that holds it; rows that fill it up write to a spare row and slot.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.triton_attention import DecodePlanBuffer, TritonAttention, split_plan
from sgl_runtime.batch import Batch
from sgl_runtime.device.base import Device
from sgl_runtime.device.kernels.begin_pass import begin_decode
from sgl_runtime.device.kernels.sampling import draw
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.model_runner.sampler import has_filter
from sgl_runtime.models.base import CausalModel

logger = logging.getLogger(__name__)

NUM_BUFFERS = 3
"""Host buffers that take turns: the copy of one pass may still wait for the device while the next is filled."""


def graph_sizes(max_rows: int) -> list[int]:
    """Numbers of rows for which graphs are made: close together where a row more costs most."""
    sizes = [1, 2, 4, 8, *range(16, 64, 8), *range(64, 256, 32), *range(256, 513, 64)]
    return [size for size in sizes if size < max_rows] + [max_rows] if max_rows <= 512 else sizes


@dataclass(frozen=True)
class GraphOutput:
    """What a replay leaves; valid until the next one.

    Attributes:
        logits: (B, V).
        drawn: (B,) int64 tokens, drawn without masks, edits and filters.
    """

    logits: Tensor
    drawn: Tensor


class DecodeGraphs:
    """All graphs of one model.

    Args:
        model: The model.
        attention: Its attention.
        slot_table: The mirror of the host's table.
        spare_slot: A slot that nobody owns.
        drawn_ids: (rows of the table,) int64, the tokens drawn last.
        device: Where all of it lives.
        max_rows: Rows of the largest graph; a pass of more is run without.
    """

    def __init__(
        self,
        model: CausalModel,
        *,
        attention: TritonAttention,
        slot_table: SlotTable,
        spare_slot: int,
        drawn_ids: Tensor,
        device: Device,
        max_rows: int,
    ) -> None:
        begin = time.monotonic()
        self._sizes = graph_sizes(max_rows)
        # The largest first: the others find its memory.
        self._graphs = {
            size: _Graph(
                model,
                attention=attention,
                slot_table=slot_table,
                spare_slot=spare_slot,
                drawn_ids=drawn_ids,
                device=device,
                size=size,
            )
            for size in reversed(self._sizes)
        }
        logger.info("decode graphs captured sizes=%d seconds=%.2f", len(self._sizes), time.monotonic() - begin)

    def takes(self, batch: Batch) -> bool:
        """Whether there is a graph for a pass."""
        return batch.kind == "decode" and batch.size <= self._sizes[-1] and batch.hidden_starts is None

    def run(self, batch: Batch) -> GraphOutput:
        """Run a pass that `takes` has said yes to."""
        size = next(size for size in self._sizes if size >= batch.size)
        return self._graphs[size].run(batch)


def draws_in_graph(batch: Batch) -> bool:
    """Whether what a graph draws is what the pass asks for, as long as nothing else touches the logits."""
    sampling = batch.sampling
    return not bool((has_filter(sampling) & (sampling.temperatures > 0)).any())


class _Graph:
    def __init__(
        self,
        model: CausalModel,
        *,
        attention: TritonAttention,
        slot_table: SlotTable,
        spare_slot: int,
        drawn_ids: Tensor,
        device: Device,
        size: int,
    ) -> None:
        self._size, self._spare_slot, self._spare_row = size, spare_slot, slot_table.num_rows
        num_words = 6 * size + DecodePlanBuffer.num_words(size)
        self._buffers = [device.host_buffer((num_words,), torch.int32) for _ in range(NUM_BUFFERS)]
        self._turn = 0
        self._plan = DecodePlanBuffer(size)
        self._words = torch.zeros(num_words, dtype=torch.int32, device=device.torch_device)
        self._fill_up(0)
        self._words.copy_(self._buffers[0])
        self._replay = self._capture(model, attention, slot_table, drawn_ids, device)

    def run(self, batch: Batch) -> GraphOutput:
        self._turn = (self._turn + 1) % NUM_BUFFERS
        self._fill_up(batch.size)
        words = self._host_words()
        count, size = batch.size, self._size
        words[: 2 * size].view(np.int64)[:count] = (batch.sampling.uniforms * 2.0**53).astype(np.int64)
        words[2 * size : 2 * size + count] = batch.input_ids
        words[3 * size : 3 * size + count] = batch.prefix_lens
        words[4 * size : 4 * size + count] = batch.slot_ids
        words[5 * size : 6 * size].view(np.float32)[:count] = batch.sampling.temperatures
        self._plan.fill(batch)
        words[6 * size :] = self._plan.words
        self._words.copy_(self._buffers[self._turn], non_blocking=True)
        logits, drawn = self._replay()
        return GraphOutput(logits[:count], drawn[:count])

    def _host_words(self) -> NDArray[np.int32]:
        words: NDArray[np.int32] = self._buffers[self._turn].numpy()
        return words

    def _fill_up(self, count: int) -> None:
        """Give the rows behind the first `count` the spare row and slot."""
        words, size = self._host_words(), self._size
        for section, value in ((2, 0), (3, 0), (4, self._spare_slot), (5, 0)):
            words[section * size + count : (section + 1) * size] = value
        *_, row_ids = split_plan(self._plan.words, size)
        row_ids[count:] = self._spare_row
        words[6 * size :] = self._plan.words

    def _capture(
        self,
        model: CausalModel,
        attention: TritonAttention,
        slot_table: SlotTable,
        drawn_ids: Tensor,
        device: Device,
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        size, words = self._size, self._words
        seeds = words[: 2 * size].view(torch.int64)
        ids, positions, slots, temperatures = (words[(2 + i) * size : (3 + i) * size] for i in range(4))
        plan = words[6 * size :]
        rows = plan[len(plan) - size :]
        out_ids, out_positions = (torch.zeros(size, dtype=torch.int64, device=words.device) for _ in range(2))

        def run() -> tuple[Tensor, Tensor]:
            begin_decode(
                ids,
                positions,
                slots,
                rows,
                drawn_ids=drawn_ids,
                table=slot_table.table,
                out_ids=out_ids,
                out_positions=out_positions,
            )
            hidden = model.forward(out_ids, out_positions, attention.decode(slots, plan, size))
            logits = model.logits(hidden)
            drawn = draw(
                logits, temperatures=temperatures.view(torch.float32), seeds=seeds, rows=rows, drawn_ids=drawn_ids
            )
            return logits, drawn

        return device.capture(run)

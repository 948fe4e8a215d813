"""DecodeGraphs: decode passes captured once for a few sizes, and replayed with one launch.

A graph holds everything from the plan to the drawn tokens: which tokens go in, the model, the logits, the draw.  A pass
of B rows runs in the smallest graph that holds it; rows that fill it up write to a spare row and slot.
"""

import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.attention.decode_pieces import SHARED_TILES, DecodePieces, cut
from sgl_runtime.attention.triton_attention import EXTRA_PIECES, PlanLayout, TritonAttention
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
        drawn: (B,) int64 tokens; None where the graph does not draw.
    """

    logits: Tensor
    drawn: Tensor | None


@dataclass(frozen=True)
class DecodeParts:
    """What decode passes are made of.

    Attributes:
        model: The model.
        attention: Its attention.
        slot_table: The mirror of the host's table.
        spare_slot: A slot that nobody owns.
        drawn_ids: (rows of the table,) int64, the tokens drawn last.
        device: Where all of it lives.
    """

    model: CausalModel
    attention: TritonAttention
    slot_table: SlotTable
    spare_slot: int
    drawn_ids: Tensor
    device: Device


class DecodeGraphs:
    """All graphs of one model.

    Args:
        parts: What they are made of.
        max_rows: Rows of the largest graph; a pass of more is run without.
    """

    def __init__(self, parts: DecodeParts, *, max_rows: int) -> None:
        begin = time.monotonic()
        self._sizes = graph_sizes(max_rows)
        self._members = parts.attention.members
        self._parts = parts
        self._graphs: dict[tuple[int, bool, bool], _Graph] = {}
        # The largest first: the others find its memory.
        for size in reversed(self._sizes):
            self._graph(size, draws=True, has_shared=False)
        logger.info("decode graphs captured sizes=%d seconds=%.2f", len(self._sizes), time.monotonic() - begin)

    def takes(self, batch: Batch) -> bool:
        """Whether there is a graph for a pass."""
        return batch.kind == "decode" and batch.size <= self._sizes[-1] and batch.hidden_starts is None

    def run(self, batch: Batch) -> GraphOutput:
        """Run a pass that `takes` has said yes to."""
        size = next(size for size in self._sizes if size >= batch.size)
        shared = batch.shared_ranges
        plan = cut(batch.context_lens, extra=EXTRA_PIECES, shared=shared, members=self._members)
        if shared and not _layout(size, self._members, has_shared=True).fits(plan):
            shared = ()
            plan = cut(batch.context_lens, extra=EXTRA_PIECES)
        return self._graph(size, draws=draws_in_graph(batch), has_shared=bool(shared)).run(batch, plan)

    def _graph(self, size: int, *, draws: bool, has_shared: bool) -> "_Graph":
        """A graph; those without a draw or with shared ranges are captured when the first pass of their kind comes."""
        key = (size, draws, has_shared)
        if key not in self._graphs:
            layout = _layout(size, self._members, has_shared=has_shared)
            self._graphs[key] = _Graph(self._parts, layout, draws=draws)
        return self._graphs[key]


def draws_in_graph(batch: Batch) -> bool:
    """Whether a graph can draw what the pass asks for: nothing but the settings of the batch is to be heeded."""
    sampling = batch.sampling
    if batch.is_edited or batch.is_constrained:
        return False
    return not bool((has_filter(sampling) & (sampling.temperatures > 0)).any())


def _layout(size: int, members: int, *, has_shared: bool) -> PlanLayout:
    num_tiles = max(SHARED_TILES, size) if has_shared else 0
    places = size + EXTRA_PIECES + (num_tiles * members if has_shared else 0)
    return PlanLayout(size, num_tiles=num_tiles, members=members, places=places)


class _Graph:
    """One graph.

    Args:
        parts: What it is made of.
        layout: What the attention must know, of the rows of the graph.
        draws: Whether tokens are drawn in it.
    """

    def __init__(self, parts: DecodeParts, layout: PlanLayout, *, draws: bool) -> None:
        size, device = layout.size, parts.device
        self._layout, self._spare_slot, self._spare_row = layout, parts.spare_slot, parts.slot_table.num_rows
        num_words = 6 * size + layout.num_words
        self._buffers = [device.host_buffer((num_words,), torch.int32).zero_() for _ in range(NUM_BUFFERS)]
        self._turn = 0
        # What is captured is also run, to warm up: it must touch nothing that is in use.
        self._fill_up(0)
        self._words = torch.zeros(num_words, dtype=torch.int32, device=device.torch_device)
        self._words.copy_(self._buffers[0])
        seeds = self._words[: 2 * size].view(torch.int64)
        ids, positions, slots, temperatures = (self._words[(2 + i) * size : (3 + i) * size] for i in range(4))
        plan = self._words[6 * size :]
        rows = layout.parts(plan)[4]
        out_ids, out_positions = (torch.zeros(size, dtype=torch.int64, device=plan.device) for _ in range(2))

        def run() -> tuple[Tensor, Tensor | None]:
            begin_decode(
                ids,
                positions,
                slots,
                rows,
                drawn_ids=parts.drawn_ids,
                table=parts.slot_table.table,
                out_ids=out_ids,
                out_positions=out_positions,
            )
            hidden = parts.model.forward(out_ids, out_positions, parts.attention.decode(slots, plan, layout))
            logits = parts.model.logits(hidden)
            if not draws:
                return logits, None
            drawn = draw(
                logits, temperatures=temperatures.view(torch.float32), seeds=seeds, rows=rows, drawn_ids=parts.drawn_ids
            )
            return logits, drawn

        self._replay = device.capture(run)

    def run(self, batch: Batch, plan: DecodePieces) -> GraphOutput:
        """Run a pass."""
        self._turn = (self._turn + 1) % NUM_BUFFERS
        self._fill_up(batch.size)
        words = self._host_words()
        count, size = batch.size, self._layout.size
        words[: 2 * size].view(np.int64)[:count] = (batch.sampling.uniforms * 2.0**53).astype(np.int64)
        words[2 * size : 2 * size + count] = batch.input_ids
        words[3 * size : 3 * size + count] = batch.prefix_lens
        words[4 * size : 4 * size + count] = batch.slot_ids
        words[5 * size : 6 * size].view(np.float32)[:count] = batch.sampling.temperatures
        self._layout.fill(words[6 * size :], batch.row_ids, plan)
        self._words.copy_(self._buffers[self._turn], non_blocking=True)
        logits, drawn = self._replay()
        return GraphOutput(logits[:count], None if drawn is None else drawn[:count])

    def _host_words(self) -> NDArray[np.int32]:
        words: NDArray[np.int32] = self._buffers[self._turn].numpy()
        return words

    def _fill_up(self, count: int) -> None:
        """Give the rows behind the first `count` the spare row and slot."""
        words, size = self._host_words(), self._layout.size
        for section, value in ((2, 0), (3, 0), (4, self._spare_slot), (5, 0)):
            words[section * size + count : (section + 1) * size] = value
        self._layout.parts(words[6 * size :])[4][count:] = self._spare_row

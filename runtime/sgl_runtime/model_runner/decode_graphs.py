"""DecodeGraphs: decode passes captured once for a few sizes, and replayed with one launch.

A graph holds everything from the plan to the drawn tokens: which tokens go in, the model, the logits, the draw.  A pass
of B rows runs in the smallest graph that holds it; rows that fill it up write to a spare row and slot.
"""

import logging
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.attention.decode_pieces import SHARED_TILES, DecodePieces, extra_pieces
from sgl_runtime.attention.triton_attention import PlanLayout, TritonAttention
from sgl_runtime.batch import Batch
from sgl_runtime.device.base import Device
from sgl_runtime.device.kernels.begin_pass import begin_decode
from sgl_runtime.device.kernels.sampling import draw
from sgl_runtime.device.kernels.token_filters import find_filters
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


class Draw(Enum):
    """What a graph does behind the logits.

    A draw under filters is a kind of its own: without them the logits need not be looked at once more.
    """

    NONE = auto()
    PLAIN = auto()
    FILTERED = auto()


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
        has_filters: Whether graphs may heed filters, as `TokenSampler.filters_by_kernels` says.
    """

    model: CausalModel
    attention: TritonAttention
    slot_table: SlotTable
    spare_slot: int
    drawn_ids: Tensor
    device: Device
    has_filters: bool


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
        self._graphs: dict[tuple[int, Draw, bool], _Graph] = {}
        # The largest first: the others find its memory.
        for size in reversed(self._sizes):
            self._graph(size, Draw.PLAIN, has_shared=False)
        logger.info("decode graphs captured sizes=%d seconds=%.2f", len(self._sizes), time.monotonic() - begin)

    def takes(self, batch: Batch) -> bool:
        """Whether there is a graph for a pass."""
        return batch.kind == "decode" and batch.size <= self._sizes[-1] and batch.hidden_starts is None

    def run(self, batch: Batch) -> GraphOutput:
        """Run a pass that `takes` has said yes to."""
        size = next(size for size in self._sizes if size >= batch.size)
        shared = batch.shared_ranges
        plan = self._parts.attention.cut(batch, shared)
        if shared and not _layout(size, self._members, has_shared=True).fits(plan):
            shared = ()
            plan = self._parts.attention.cut(batch, shared)
        how = draw_of(batch, has_filters=self._parts.has_filters)
        return self._graph(size, how, has_shared=bool(shared)).run(batch, plan)

    def _graph(self, size: int, how: Draw, *, has_shared: bool) -> "_Graph":
        """A graph; all but plain draws over contexts of their own are captured when the first such pass comes."""
        key = (size, how, has_shared)
        if key not in self._graphs:
            layout = _layout(size, self._members, has_shared=has_shared)
            self._graphs[key] = _Graph(self._parts, layout, how)
        return self._graphs[key]


def draw_of(batch: Batch, *, has_filters: bool) -> Draw:
    """How much of the draw a graph can do: whatever only depends on the settings of the batch.

    Args:
        batch: The pass.
        has_filters: Whether graphs may heed filters.
    """
    sampling = batch.sampling
    if batch.is_edited or batch.is_constrained:
        return Draw.NONE
    if not (has_filter(sampling) & (sampling.temperatures > 0)).any():
        return Draw.PLAIN
    return Draw.FILTERED if has_filters else Draw.NONE


def _layout(size: int, members: int, *, has_shared: bool) -> PlanLayout:
    num_tiles = max(SHARED_TILES, size) if has_shared else 0
    places = size + extra_pieces(size) + (num_tiles * members if has_shared else 0)
    return PlanLayout(size, num_tiles=num_tiles, members=members, places=places)


class _PassWords:
    """What a pass is told, by row, in one array that is copied at once.

    Args:
        words: (`count`,) int32, an array or a tensor.
        layout: Of what the attention must know; that comes last.
        long, real: The types int64 and float32 of such an array.
    """

    def __init__(self, words: Any, layout: PlanLayout, *, long: Any, real: Any) -> None:
        size = layout.size
        self.seeds = words[: 2 * size].view(long)
        self.ids, self.positions, self.slots, self.top_ks, *reals = (
            words[start : start + size] for start in range(2 * size, 9 * size, size)
        )
        self.temperatures, self.top_ps, self.min_ps = (part.view(real) for part in reals)
        self.plan = words[9 * size :]
        self.rows = layout.parts(self.plan)[2]

    @staticmethod
    def count(layout: PlanLayout) -> int:
        """How many words there are."""
        return 9 * layout.size + layout.num_words


class _Graph:
    """One graph.

    Args:
        parts: What it is made of.
        layout: What the attention must know, of the rows of the graph.
        how: Whether tokens are drawn in it.
    """

    def __init__(self, parts: DecodeParts, layout: PlanLayout, how: Draw) -> None:
        device = parts.device
        self._layout, self._how = layout, how
        self._spare_slot, self._spare_row = parts.spare_slot, parts.slot_table.num_rows
        shape = (_PassWords.count(layout),)
        self._buffers = [device.host_buffer(shape, torch.int32).zero_() for _ in range(NUM_BUFFERS)]
        self._host_words = [
            _PassWords(buffer.numpy(), layout, long=np.int64, real=np.float32) for buffer in self._buffers
        ]
        self._turn = 0
        # What is captured is also run, to warm up: it must touch nothing that is in use.
        self._fill_up(self._host_words[0], 0)
        self._words = torch.zeros(shape, dtype=torch.int32, device=device.torch_device)
        self._words.copy_(self._buffers[0])
        words = _PassWords(self._words, layout, long=torch.int64, real=torch.float32)
        out_ids, out_positions = (
            torch.zeros(layout.size, dtype=torch.int64, device=device.torch_device) for _ in range(2)
        )

        def run() -> tuple[Tensor, Tensor | None]:
            begin_decode(
                words.ids,
                words.positions,
                words.slots,
                words.rows,
                drawn_ids=parts.drawn_ids,
                table=parts.slot_table.table,
                out_ids=out_ids,
                out_positions=out_positions,
            )
            attend = parts.attention.decode(words.slots, words.plan, layout)
            logits = parts.model.logits(parts.model.forward(out_ids, out_positions, attend))
            return logits, _drawn(logits, words, parts.drawn_ids, how)

        self._replay = device.capture(run)

    def run(self, batch: Batch, plan: DecodePieces) -> GraphOutput:
        """Run a pass."""
        self._turn = (self._turn + 1) % NUM_BUFFERS
        words, count, sampling = self._host_words[self._turn], batch.size, batch.sampling
        self._fill_up(words, count)
        words.seeds[:count] = (sampling.uniforms * 2.0**53).astype(np.int64)
        words.ids[:count] = batch.input_ids
        words.positions[:count] = batch.prefix_lens
        words.slots[:count] = batch.slot_ids
        words.temperatures[:count] = sampling.temperatures
        if self._how is Draw.FILTERED:
            words.top_ks[:count] = sampling.top_ks
            words.top_ps[:count] = sampling.top_ps
            words.min_ps[:count] = sampling.min_ps
        self._layout.fill(words.plan, batch.row_ids, plan)
        self._words.copy_(self._buffers[self._turn], non_blocking=True)
        logits, drawn = self._replay()
        return GraphOutput(logits[:count], None if drawn is None else drawn[:count])

    def _fill_up(self, words: _PassWords, count: int) -> None:
        """Give the rows behind the first `count` the spare row and slot; at temperature 0 no filter is heeded."""
        for section in (words.ids, words.positions, words.temperatures):
            section[count:] = 0
        words.slots[count:] = self._spare_slot
        words.rows[count:] = self._spare_row


def _drawn(logits: Tensor, words: _PassWords, drawn_ids: Tensor, how: Draw) -> Tensor | None:
    """The draw at the end of a graph, kept for the next pass as well."""
    if how is Draw.NONE:
        return None
    filters = None
    if how is Draw.FILTERED:
        filters = find_filters(
            logits,
            temperatures=words.temperatures,
            top_ks=words.top_ks,
            top_ps=words.top_ps,
            min_ps=words.min_ps,
        )
    return draw(
        logits,
        temperatures=words.temperatures,
        seeds=words.seeds,
        rows=words.rows,
        drawn_ids=drawn_ids,
        filters=filters,
    )

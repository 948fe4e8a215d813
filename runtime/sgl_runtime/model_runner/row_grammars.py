"""RowGrammars: automata in device memory, and where each row of the slot table stands in its own.

A pass gathers the states of its rows, makes their masks, draws, moves the rows past what was drawn, and puts them back:
launches only, so that it all fits into a captured graph.  The host sets a row when a request joins, and when it has
appended forced text.
"""

import logging

import numpy as np
import torch
import triton
from torch import Tensor

from sgl_runtime.batch import AutomatonTables, GrammarMoves
from sgl_runtime.device.base import Device
from sgl_runtime.device.kernels.row_states import gather_rows_kernel, scatter_rows_kernel, set_rows_kernel
from sgl_runtime.device.mask_tables import ArenaSizes, AutomatonArrays, BatchMasks, DeviceAutomaton, MaskTables
from sgl_runtime.device.mask_vocabulary import DeviceVocabulary

logger = logging.getLogger(__name__)

MAX_PRECOMPUTED = 8192
"""States of an automaton whose masks are made when it is brought to the device: those nearest to its start.

An H200 makes them in about 40 ms, during which nothing else is launched.
"""

SIZES = ArenaSizes(slots=2 * MAX_PRECOMPUTED)

HEADER = 5


class RowGrammars:
    """See `DeviceGrammars`.

    Args:
        vocabulary: The tokens.
        num_rows: Rows of the slot table; there is one more, for rows that only fill up a pass.
        max_depth: Most levels of a request's stack.
        device: Where all of it lives.
    """

    def __init__(self, vocabulary: DeviceVocabulary, *, num_rows: int, max_depth: int, device: Device) -> None:
        self._device = device
        self._max_depth = max_depth
        self._block = triton.next_power_of_2(max_depth)
        where = device.torch_device
        self._tables = MaskTables(vocabulary, where, SIZES)
        rows = num_rows + 1
        self._batch = BatchMasks(self._tables, max_rows=rows, max_depth=max_depth, device=where)
        self._states = torch.full((rows,), -1, dtype=torch.int32, device=where)
        self._depths, self._class_places, self._reaches = (
            torch.zeros(rows, dtype=torch.int32, device=where) for _ in range(3)
        )
        self._stacks = torch.zeros((rows, max_depth), dtype=torch.int32, device=where)
        self._held: dict[int, DeviceAutomaton] = {}
        self._known: dict[int, tuple[AutomatonTables, DeviceAutomaton]] = {}
        self._next_handle = 0

    def hold(self, automaton: AutomatonTables) -> int | None:
        """See `DeviceGrammars`."""
        known = self._known.get(id(automaton))
        if known is not None and self._tables.is_resident(known[1]):
            resident = known[1]
            self._tables.hold(resident)
        else:
            try:
                resident = self._add(automaton)
            except MemoryError as error:
                logger.warning("masks on the host: %s", error)
                return None
            self._known = {
                key: (tables, place) for key, (tables, place) in self._known.items() if self._tables.is_resident(place)
            }
            # The automaton is kept with its place: another one must not come to lie where it lay.
            self._known[id(automaton)] = automaton, resident
        self._next_handle += 1
        self._held[self._next_handle] = resident
        return self._next_handle

    def let_go(self, handle: int) -> None:
        """See `DeviceGrammars`."""
        self._tables.let_go(self._held.pop(handle))

    def set_rows(self, moves: GrammarMoves) -> None:
        """Put rows where the host says they stand."""
        words = np.zeros((len(moves.rows), HEADER + self._max_depth), dtype=np.int32)
        for word, row, handle, state, stack in zip(
            words, moves.rows.tolist(), moves.handles, moves.states, moves.stacks, strict=True
        ):
            word[0], word[1] = row, -1
            if handle is not None:
                place = self._held[handle]
                word[1:HEADER] = place.state_rows[state], place.class_place, place.reach, len(stack)
                word[HEADER : HEADER + len(stack)] = np.array(stack, dtype=np.int64) + place.return_place
        set_rows_kernel[(len(words),)](
            self._device.to_device(words), self._states, self._depths, self._stacks, self._class_places,
            self._reaches, self._max_depth, BLOCK=self._block,
        )  # fmt: skip

    def masks(self, rows: Tensor) -> Tensor:
        """Make the masks of a pass.

        Args:
            rows: (B,) int32 rows of the slot table.

        Returns:
            (B, ceil(V / 32)) int32, all bits set where a row is free; valid until the next call.
        """
        batch = self._batch
        gather_rows_kernel[(len(rows),)](
            rows, self._states, self._depths, self._stacks, self._class_places, self._reaches, batch.states,
            batch.depths, batch.stacks, batch.class_places, batch.reaches, self._max_depth, BLOCK=self._block,
        )  # fmt: skip
        return batch.make(len(rows))

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Move the rows of the pass for which masks were made last.

        Args:
            rows: (B,) as given to `masks`.
            token_ids: (B,) int64 tokens that were drawn.
        """
        batch = self._batch
        batch.advance(token_ids)
        scatter_rows_kernel[(len(rows),)](
            rows, self._states, self._depths, self._stacks, batch.states, batch.depths, batch.stacks,
            self._max_depth, BLOCK=self._block,
        )  # fmt: skip

    def make_masks_ahead(self) -> None:
        """Launch what `hold` launches for an automaton; of value where launches compile."""
        self._tables.make_masks(np.ones(1, dtype=np.int64), 0, 0)

    def _add(self, automaton: AutomatonTables) -> DeviceAutomaton:
        arrays = AutomatonArrays(
            byte_classes=automaton.byte_classes,
            table=automaton.table,
            accepting=automaton.accepting,
            edge_target=automaton.edge_target,
            edge_argument=automaton.edge_argument,
            returns=automaton.returns,
            needed_depth=automaton.needed_depth,
            needed_behind=automaton.needed_behind,
        )
        # States are numbered by their distance from the start.
        nearest = np.arange(min(len(automaton.accepting), MAX_PRECOMPUTED))
        try:
            return self._tables.add(arrays, precompute=nearest)
        except MemoryError:
            return self._tables.add(arrays)

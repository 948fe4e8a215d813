"""Automata and vocabularies in device memory, and the masks of a batch made there.

Nothing here knows how automata are made: they come as plain arrays.  The kernels are in `mask_kernels`.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.device import mask_kernels
from sgl_runtime.device.mask_vocabulary import DeviceVocabulary
from sgl_runtime.device.segments import Segments

# Small blocks of one warp: neighbours die together, and no barrier is needed to see that a block is dead.
_BLOCK, _WARPS = 64, 1
_PROGRAMS = 128
_LIST_BLOCK = 64
_LIST_CHUNKS = 16
_ORDER_BLOCK = 1024
# Bounds the memory that lists take while they are made: a word for each state and token.
_STATES_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class AutomatonArrays:
    """An automaton as `grammar.automaton.ByteAutomaton` defines it.

    Attributes:
        byte_classes: (256,) uint8.
        table: (S, K) int32.
        accepting: (S,) bool.
        edge_target, edge_argument: (E,) int32.
        returns: (R,) int32.
        needed_depth: (S,) int32.
        needed_behind: (E,) int32.
    """

    byte_classes: NDArray[np.uint8]
    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    edge_target: NDArray[np.int32]
    edge_argument: NDArray[np.int32]
    returns: NDArray[np.int32]
    needed_depth: NDArray[np.int32]
    needed_behind: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class DeviceAutomaton:
    """An automaton that lies in device memory.

    Attributes:
        start: The row of its start in the table.
        class_place: Where its byte classes lie.
        return_place: Where its returns lie.
        reach: How many levels a token, and the shortest way from there to an end, can open at most.
        state_rows: (S,) the row of each state, on the host.
        runs: Where its parts lie: for each array of the arena the first entry and the number of entries.
    """

    start: int
    class_place: int
    return_place: int
    reach: int
    state_rows: NDArray[np.int64]
    runs: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class ArenaSizes:
    """Room for automata.

    Attributes:
        entries: Table entries.
        edges: Special edges.
        returns: States to return to.
        automata: Byte classes, one set for each automaton.
        slots: Masks that are made before.
        list_entries: Tokens that wait for the stack in these.
    """

    entries: int = 1 << 24
    edges: int = 1 << 20
    returns: int = 1 << 20
    automata: int = 1024
    slots: int = 4096
    list_entries: int = 1 << 23


class MaskTables:
    """Automata in one arena of device memory, and the masks that are made before; the least recently used leave first.

    The arrays never move, so that captured graphs can read them.

    Args:
        vocabulary: The tokens.
        device: Where everything lies.
        sizes: How much room there is.
    """

    def __init__(self, vocabulary: DeviceVocabulary, device: torch.device, sizes: ArenaSizes | None = None) -> None:
        sizes = sizes or ArenaSizes()
        self.vocabulary = vocabulary
        self._device = device

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.table = zeros(sizes.entries)
        self.classes = zeros(sizes.automata * 256, dtype=torch.uint8)
        self.edge_target = zeros(sizes.edges)
        self.edge_argument = zeros(sizes.edges)
        self.edge_need = zeros(sizes.edges)
        self.returns = zeros(sizes.returns)
        self.slot_masks = zeros(sizes.slots, vocabulary.num_words)
        self.list_begins = zeros(sizes.slots)
        self.list_ends = zeros(sizes.slots)
        self.lists = zeros(sizes.list_entries)
        self._room = {
            "entries": Segments(sizes.entries),
            "classes": Segments(sizes.automata * 256),
            "edges": Segments(sizes.edges),
            "returns": Segments(sizes.returns),
            "slots": Segments(sizes.slots),
            "lists": Segments(sizes.list_entries),
        }
        # Automata with the number of their users, the least recently used first.
        self._resident: OrderedDict[DeviceAutomaton, int] = OrderedDict()

    @property
    def num_resident(self) -> int:
        """Automata in the arena."""
        return len(self._resident)

    def add(self, automaton: AutomatonArrays, *, precompute: NDArray[np.int64] | None = None) -> DeviceAutomaton:
        """Copy an automaton to the device and hold it; automata that nobody holds make room.

        Args:
            automaton: What to copy.
            precompute: States whose masks are made at once and kept; none by default.

        Raises:
            MemoryError: there is not room enough even without those that nobody holds.
        """
        num_states, width = automaton.table.shape
        kept = np.zeros(0, dtype=np.int64) if precompute is None else precompute
        runs = self._take(
            {
                "entries": num_states * (width + 2),
                "classes": 256,
                "edges": len(automaton.edge_target),
                "returns": len(automaton.returns),
                "slots": len(kept),
            }
        )
        first = {name: start for name, (start, _) in runs.items()}
        rows = first["entries"] + np.arange(num_states, dtype=np.int64) * (width + 2) + 2
        place = np.append(rows, -1)
        entries = automaton.table.astype(np.int64)
        table = np.empty((num_states, width + 2), dtype=np.int32)
        table[:, 2:] = np.where(entries >= 0, place[entries], np.where(entries < -1, entries - first["edges"], -1))
        slots = np.full(num_states, -1, dtype=np.int64)
        slots[kept] = first["slots"] + np.arange(len(kept))
        table[:, 0] = automaton.needed_depth
        table[:, 1] = slots * 2 + automaton.accepting
        is_push = automaton.edge_target >= 0
        arguments = np.where(is_push, automaton.edge_argument + first["returns"], automaton.edge_argument)
        self._put(self.table, first["entries"], table.ravel())
        self._put(self.classes, first["classes"], automaton.byte_classes)
        self._put(self.edge_target, first["edges"], np.where(is_push, place[automaton.edge_target], -1))
        self._put(self.edge_argument, first["edges"], arguments)
        self._put(self.edge_need, first["edges"], automaton.needed_behind)
        self._put(self.returns, first["returns"], place[automaton.returns])
        needed = max(automaton.needed_depth.max(initial=0), automaton.needed_behind.max(initial=0))
        reach = mask_kernels.OWN_DEPTH.value + int(needed)
        resident = DeviceAutomaton(int(rows[0]), first["classes"], first["returns"], reach, rows, runs)
        self._resident[resident] = 1
        if len(kept):
            try:
                self._precompute(resident, rows[kept])
            except MemoryError:
                del self._resident[resident]
                self._give_back(runs)
                raise
        return resident

    def hold(self, automaton: DeviceAutomaton) -> None:
        """Keep an automaton in the arena for one more user."""
        self._resident[automaton] += 1
        self._resident.move_to_end(automaton)

    def let_go(self, automaton: DeviceAutomaton) -> None:
        """One user needs it no more; it stays until its room is needed."""
        self._resident[automaton] -= 1

    def is_resident(self, automaton: DeviceAutomaton) -> bool:
        """Whether an automaton that was let go is still there."""
        return automaton in self._resident

    def _take(self, counts: dict[str, int]) -> dict[str, tuple[int, int]]:
        while True:
            runs: dict[str, tuple[int, int]] = {}
            for name, count in counts.items():
                start = self._room[name].take(count)
                if start is None:
                    break
                runs[name] = (start, count)
            else:
                return runs
            self._give_back(runs)
            self._evict(name, counts[name])

    def _evict(self, name: str, count: int) -> None:
        """Drop the automaton that was not used for longest, of those that nobody holds."""
        for automaton, num_users in self._resident.items():
            if num_users == 0:
                del self._resident[automaton]
                self._give_back(automaton.runs)
                return
        room = self._room[name]
        raise MemoryError(
            f"the device has no room for {count} {name} of an automaton: {room.num_free} of {room.size} are free"
        )

    def _give_back(self, runs: dict[str, tuple[int, int]]) -> None:
        for name, (start, count) in runs.items():
            self._room[name].give_back(start, count)

    def _put(self, tensor: Tensor, place: int, values: NDArray[np.generic]) -> None:
        source = torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype)
        tensor[place : place + len(values)] = source.to(self._device)

    def _precompute(self, automaton: DeviceAutomaton, rows: NDArray[np.int64]) -> None:
        """Make the masks of states, and the lists of tokens that wait for the stack."""
        slot, _ = automaton.runs["slots"]
        masks: list[Tensor] = []
        counts: list[Tensor] = []
        for begin in range(0, len(rows), _STATES_AT_ONCE):
            some = rows[begin : begin + _STATES_AT_ONCE]
            waiting = self.make_masks(some, automaton.class_place, slot + begin)
            if not bool(waiting.any()):
                counts.append(torch.zeros(len(some), dtype=torch.int64, device=self._device))
                continue
            bits = (waiting[:, :, None] >> torch.arange(32, device=self._device, dtype=torch.int32)) & 1
            places = bits.reshape(len(some), -1).nonzero()
            masks.append(places[:, 1].to(torch.int32))
            counts.append(torch.bincount(places[:, 0], minlength=len(some)))
        nothing = torch.empty(0, dtype=torch.int32, device=self._device)
        tokens, lengths = torch.cat([nothing, *masks]), torch.cat(counts)
        run = self._take({"lists": len(tokens)})
        automaton.runs.update(run)
        start = run["lists"][0]
        self.lists[start : start + len(tokens)] = tokens
        ends = start + torch.cumsum(lengths, 0)
        self.list_ends[slot : slot + len(rows)] = ends.to(torch.int32)
        self.list_begins[slot : slot + len(rows)] = (ends - lengths).to(torch.int32)

    def make_masks(self, rows: NDArray[np.int64], class_place: int, slot: int) -> Tensor:
        """Make the masks of states and keep them; launches only.

        Args:
            rows: (n,) rows of the table.
            class_place: Where the byte classes of their automaton lie.
            slot: The first of n slots of the masks.

        Returns:
            (n, words) int32 bits, in sorted order, of the tokens that wait for the stack.
        """
        vocabulary = self.vocabulary
        count, num_words = len(rows), vocabulary.num_sorted // 32
        states = torch.from_numpy(rows.astype(np.int32)).to(self._device)
        allowed = torch.empty((count, num_words), dtype=torch.int32, device=self._device)
        waiting = torch.empty_like(allowed)
        mask_kernels.first_masks_kernel[(vocabulary.num_sorted // _BLOCK, count)](
            states, self.classes[class_place:], self.table, self.edge_target, self.edge_argument, self.edge_need,
            self.returns, vocabulary.columns, vocabulary.lengths, allowed, waiting, vocabulary.num_sorted, num_words,
            BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
        # States inside a callee do not accept: an accepting state has no stack.
        accepting = (self.table[states.long() - 1] & 1).to(torch.int32)
        mask_kernels.order_slots_kernel[(triton.cdiv(vocabulary.num_words * 32, _ORDER_BLOCK), count)](
            allowed, accepting, vocabulary.places, self.slot_masks[slot:], num_words, vocabulary.num_words,
            BLOCK=_ORDER_BLOCK,
        )  # fmt: skip
        return waiting


class BatchMasks:
    """The states of a batch on the device, their masks, and their moves; no value comes back to the host.

    Args:
        tables: The automata.
        max_rows: Most rows.
        max_depth: Most levels of a request's stack; tokens from which the output could not be completed within are left
            out, as on the host.

    Attributes:
        states: (max_rows,) int32, a row of the table, or -1 where a row is free.
        depths: (max_rows,) int32, levels of each stack.
        stacks: (max_rows, max_depth) int32.
        class_places: (max_rows,) int32.
        reaches: (max_rows,) int32, see `DeviceAutomaton`.
        masks: (max_rows, ceil(V / 32)) int32, bit i % 32 of word i // 32 stands for token i.
    """

    def __init__(self, tables: MaskTables, *, max_rows: int, max_depth: int, device: torch.device) -> None:
        self._tables = tables
        self._max_depth = max_depth
        self.states = torch.full((max_rows,), -1, dtype=torch.int32, device=device)
        self.depths = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self.stacks = torch.zeros((max_rows, max_depth), dtype=torch.int32, device=device)
        self.class_places = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self.reaches = torch.zeros(max_rows, dtype=torch.int32, device=device)
        vocabulary = tables.vocabulary
        self._sorted_masks = torch.zeros((max_rows, vocabulary.num_sorted // 32), dtype=torch.int32, device=device)
        self.masks = torch.zeros((max_rows, vocabulary.num_words), dtype=torch.int32, device=device)

    def start(self, row: int, automaton: DeviceAutomaton) -> None:
        """A row begins an output."""
        self.states[row] = automaton.start
        self.depths[row] = 0
        self.class_places[row] = automaton.class_place
        self.reaches[row] = automaton.reach

    def make(self, num_rows: int) -> Tensor:
        """The masks of the first rows, (num_rows, ceil(V / 32)) int32; launches only, fit for a captured graph."""
        tables, vocabulary = self._tables, self._tables.vocabulary
        num_words = vocabulary.num_sorted // 32
        shared = (
            self.states, self.depths, self.stacks, self.class_places, self.reaches, tables.classes, tables.table,
            tables.edge_target, tables.edge_argument, tables.edge_need, tables.returns, vocabulary.columns,
            vocabulary.lengths,
        )  # fmt: skip
        mask_kernels.walk_masks_kernel[(_PROGRAMS, num_rows)](
            *shared, self._sorted_masks, vocabulary.num_sorted, num_words, self._max_depth,
            PROGRAMS=_PROGRAMS, BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
        mask_kernels.order_masks_kernel[(triton.cdiv(vocabulary.num_words * 32, _ORDER_BLOCK), num_rows)](
            self.states, self.depths, self.reaches, tables.table, self._sorted_masks, tables.slot_masks,
            vocabulary.places, self.masks, num_words, vocabulary.num_words, self._max_depth, BLOCK=_ORDER_BLOCK,
        )  # fmt: skip
        mask_kernels.waiting_tokens_kernel[(_LIST_CHUNKS, num_rows)](
            *shared, tables.list_begins, tables.list_ends, tables.lists, vocabulary.sorted_ids, self.masks,
            vocabulary.num_sorted, vocabulary.num_words, self._max_depth,
            CHUNKS=_LIST_CHUNKS, BLOCK=_LIST_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
        return self.masks[:num_rows]

    def advance(self, token_ids: Tensor) -> None:
        """Move rows past their new tokens.

        Args:
            token_ids: (B,) int32 or int64, -1 for rows that have none.
        """
        tables, vocabulary = self._tables, self._tables.vocabulary
        mask_kernels.advance_kernel[(len(token_ids),)](
            self.states, self.depths, self.stacks, self.class_places, tables.classes, tables.table,
            tables.edge_target, tables.edge_argument, tables.returns, vocabulary.id_bytes, vocabulary.id_starts,
            token_ids, self._max_depth,
        )  # fmt: skip

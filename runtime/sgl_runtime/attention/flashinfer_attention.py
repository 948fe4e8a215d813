"""FlashInfer attention: passes over prompts by its kernels, all others by those of `TritonAttention`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.attention.base import Attend, Rotary
from sgl_runtime.attention.shared_run import SharedRun, best_run
from sgl_runtime.attention.triton_attention import TritonAttention, TritonExtend
from sgl_runtime.batch import Batch, IntArray
from sgl_runtime.device.flashinfer_build import FlashInferModule
from sgl_runtime.device.flashinfer_library import load_library, prefill_request
from sgl_runtime.device.kernels.extend_attention import BegunRows
from sgl_runtime.device.kernels.gather_slots import gather_slots
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.ops import HeadNorms, Ops
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

MIN_PASS_TOKENS = 1024
"""New tokens of a pass below which its plan takes longer than what better kernels save."""

MIN_ROW_TOKENS = 64
"""New tokens of a row, in the mean, below which tiles of 128 queries of one head stay mostly empty."""

MIN_ROW_TOKENS_BEHIND_PREFIX = 256
"""The same where keys come from the pool, which takes more time than where they lie one behind another."""

WORKSPACE_BYTES = 128 << 20
"""What FlashInfer recommends."""

NUM_TURNS = 3
"""Wrappers that take turns: a plan is copied from memory of its wrapper, which may still wait for the device while the
next passes are planned."""


class FlashInferAttention:
    """See `AttentionBackend`.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        ops: The device's operations.
    """

    def __init__(self, *, pool: TokenToKVPool, slot_table: SlotTable, ops: Ops) -> None:
        self._triton = TritonAttention(pool=pool, slot_table=slot_table, ops=ops)
        self._pool, self._table = pool, slot_table
        self._planner: PrefillPlanner | None = None
        keys, _ = pool.layer(0)
        request = prefill_request(dtype=keys.dtype, head_dim=keys.shape[-1], device=keys.device)
        self._module = FlashInferModule(request, instead="triton")
        # Memory and modules are taken at start where they can be, not when the first prompt comes.
        self._planner_if_ready()

    @property
    def captured(self) -> TritonAttention:
        """See `AttentionBackend`."""
        return self._triton

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """See `AttentionBackend`."""
        batch = forward_batch.batch
        planner = self._planner_if_ready() if batch.kind == "extend" else None
        if planner is not None:
            if is_worth(batch):
                return planner.plan(forward_batch)
            run = best_run(batch)
            if run is not None:
                return planner.plan_behind(run, forward_batch)
        return self._triton.prepare(forward_batch)

    def _planner_if_ready(self) -> "PrefillPlanner | None":
        if self._planner is None and self._module.is_ready():
            ragged, paged = make_wrappers(self._table.table.device, self._module.request.algorithm)
            self._planner = PrefillPlanner(self._pool, self._table, ragged=ragged, paged=paged)
        return self._planner


def is_worth(batch: Batch) -> bool:
    """Whether a pass is large enough for kernels that must be planned."""
    tokens = len(batch.input_ids)
    of_row = MIN_ROW_TOKENS_BEHIND_PREFIX if batch.prefix_lens.any() else MIN_ROW_TOKENS
    return batch.kind == "extend" and tokens >= MIN_PASS_TOKENS and tokens >= of_row * batch.size


def make_wrappers(device: torch.device, algorithm: str) -> tuple[list[Any], list[Any]]:
    """FlashInfer's wrappers for keys that lie one behind another, and for keys that lie in slots."""
    library = load_library()
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    kinds = library.BatchPrefillWithRaggedKVCacheWrapper, library.BatchPrefillWithPagedKVCacheWrapper
    ragged, paged = ([kind(workspace, "NHD", backend=algorithm) for _ in range(NUM_TURNS)] for kind in kinds)
    return ragged, paged


class PrefillPlanner:
    """Plans passes over prompts, each once for all layers, without waiting for the device.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        ragged, paged: Wrappers of FlashInfer that take turns.
    """

    def __init__(
        self, pool: TokenToKVPool, slot_table: SlotTable, *, ragged: Sequence[Any], paged: Sequence[Any]
    ) -> None:
        self._pool, self._slot_table = pool, slot_table
        self._ragged, self._paged = ragged, paged
        self._turn = 0

    def plan(self, forward_batch: ForwardBatch) -> Attend:
        """The attend of a pass; the slot table already holds the new slots."""
        self._turn = (self._turn + 1) % len(self._ragged)
        if forward_batch.batch.prefix_lens.any():
            return self._plan_paged(forward_batch)
        return self._plan_ragged(forward_batch)

    def plan_behind(self, run: SharedRun, forward_batch: ForwardBatch) -> Attend:
        """The attend of a pass of which some rows share what is worth to be attended at once."""
        self._turn = (self._turn + 1) % len(self._paged)
        batch, table = forward_batch.batch, self._slot_table.table
        wrapper = self._paged[self._turn]
        # All tokens of the run are queries of one sequence, each of which sees all that is shared.
        self._plan_slots(
            wrapper,
            np.array([0, run.num_tokens], dtype=np.int32),
            np.array([0, run.length], dtype=np.int32),
            table[int(batch.row_ids[run.rows.start]), : run.length],
            longest=run.num_tokens,
            causal=False,
        )
        begins = np.zeros(batch.size, dtype=np.int32)
        begins[run.rows] = run.length
        return CascadeAttend(
            self._pool,
            forward_batch.slot_ids,
            wrapper,
            tokens=run.tokens,
            begins=torch.from_numpy(begins).to(table.device, non_blocking=True),
            behind=TritonExtend(self._pool, self._slot_table, forward_batch),
        )

    def _plan_ragged(self, forward_batch: ForwardBatch) -> "RaggedAttend":
        """No row has a prefix: keys and values are read where the model's projection put them."""
        begins = torch.from_numpy(running_total(forward_batch.batch.extend_lens))
        wrapper = self._ragged[self._turn]
        wrapper.plan(begins, begins, *self._shapes(), **self._settings(causal=True))
        return RaggedAttend(self._pool, forward_batch.slot_ids, wrapper)

    def _plan_paged(self, forward_batch: ForwardBatch) -> "PagedAttend":
        """Keys and values are read from the pool, in which every slot is a page: slots may lie in any order."""
        batch, table = forward_batch.batch, self._slot_table.table
        begins = running_total(batch.context_lens)
        words = torch.from_numpy(np.concatenate([batch.row_ids, begins])).to(table.device, non_blocking=True)
        slots = gather_slots(
            table,
            words[: batch.size],
            words[batch.size :],
            total=int(begins[-1]),
            longest=int(batch.context_lens.max()),
        )
        wrapper = self._paged[self._turn]
        self._plan_slots(
            wrapper,
            running_total(batch.extend_lens),
            begins,
            slots,
            longest=int(batch.extend_lens.max()),
            causal=True,
        )
        return PagedAttend(self._pool, forward_batch.slot_ids, wrapper)

    def _plan_slots(
        self, wrapper: Any, queries: IntArray, keys: IntArray, slots: Tensor, *, longest: int, causal: bool
    ) -> None:
        """Plan some sequences whose keys lie in slots.

        Args:
            wrapper: Which plans.
            queries, keys: Where those of each sequence begin, and where the last one's end.
            slots: Of the keys of all sequences.
            longest: Most queries of a sequence.
            causal: Whether the queries are the last of the keys, and see none behind themselves; else they see all.
        """
        heads, groups, dim = self._shapes()
        wrapper.plan(
            torch.from_numpy(queries),
            torch.from_numpy(keys),
            slots,
            torch.ones(len(keys) - 1, dtype=torch.int32),
            heads,
            groups,
            dim,
            1,
            max_token_per_sequence=longest,
            **self._settings(causal=causal),
        )

    def _shapes(self) -> tuple[int, int, int]:
        keys, _ = self._pool.layer(0)
        return self._pool.num_heads, self._pool.num_groups, keys.shape[-1]

    def _settings(self, *, causal: bool) -> dict[str, Any]:
        keys, _ = self._pool.layer(0)
        scale = float(keys.shape[-1] ** -0.5)
        return {"causal": causal, "sm_scale": scale, "q_data_type": keys.dtype, "kv_data_type": keys.dtype}


def running_total(lengths: IntArray) -> IntArray:
    """(B + 1,) int32: where each of B parts begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


class PlannedAttend:
    """What an `Attend` by a wrapper of FlashInfer needs.

    Args:
        pool: Keys and values.
        slot_ids: (T,) slots of the new tokens.
        wrapper: Planned.
    """

    def __init__(self, pool: TokenToKVPool, slot_ids: Tensor, wrapper: Any) -> None:
        self._pool, self._slot_ids, self._wrapper = pool, slot_ids, wrapper


class RaggedAttend(PlannedAttend):
    """See `Attend`; the new tokens are the whole contexts."""

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values, head_norms=head_norms, keeps_keys=True)
        heads, groups = self._pool.num_heads, self._pool.num_groups
        out = torch.empty((qkv.shape[0], heads, qkv.shape[2]), dtype=qkv.dtype, device=qkv.device)
        self._wrapper.run(qkv[:, :heads], qkv[:, heads : heads + groups], qkv[:, heads + groups :], out=out)
        return out


class PagedAttend(PlannedAttend):
    """See `Attend`; contexts lie in the pool."""

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values, head_norms=head_norms)
        heads = self._pool.num_heads
        out = torch.empty((qkv.shape[0], heads, qkv.shape[2]), dtype=qkv.dtype, device=qkv.device)
        self._wrapper.run(qkv[:, :heads], (keys.unsqueeze(1), values.unsqueeze(1)), out=out)
        return out


class CascadeAttend(PlannedAttend):
    """See `Attend`; some rows begin with the same slots, which are attended at once for all their new tokens.

    Args:
        pool, slot_ids, wrapper: See `PlannedAttend`.
        tokens: The new tokens of those rows.
        begins: See `BegunRows`.
        behind: Attends the rest.
    """

    def __init__(
        self,
        pool: TokenToKVPool,
        slot_ids: Tensor,
        wrapper: Any,
        *,
        tokens: slice,
        begins: Tensor,
        behind: TritonExtend,
    ) -> None:
        super().__init__(pool, slot_ids, wrapper)
        self._tokens, self._begins, self._behind = tokens, begins, behind

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values, head_norms=head_norms)
        queries = qkv[self._tokens, : self._pool.num_heads]
        out = torch.empty(queries.shape, dtype=qkv.dtype, device=qkv.device)
        # The library gives logarithms in powers of 2, with the scale in them, as our kernels do.
        lse = torch.empty(queries.shape[:2], dtype=torch.float32, device=qkv.device)
        caches = keys.unsqueeze(1), values.unsqueeze(1)
        self._wrapper.run(queries, caches, out=out, lse=lse, return_lse=True)
        begun = BegunRows(self._begins, self._tokens.start, out, lse)
        return self._behind.attend(qkv, keys, values, begun=begun)

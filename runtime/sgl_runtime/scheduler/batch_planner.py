"""BatchPlanner: which requests the next pass holds, within token, slot and row budgets."""

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sgl_runtime.batch import Batch, IntArray, SamplingBatch
from sgl_runtime.cache.prefix_cache import TokenArray
from sgl_runtime.config import SchedulerConfig
from sgl_runtime.scheduler.logit_edits import collect_edits
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.slot_ledger import SlotLedger
from sgl_runtime.scheduler.uniforms import uniforms
from sgl_runtime.scheduler.waiting_queue import WaitingQueue

logger = logging.getLogger(__name__)

DECODE_RESERVE = 256
"""Slots set aside for the output of each admitted request, if it may grow that long; retraction covers the rest."""

_NOTHING = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class PlannedPass:
    """A Batch and the requests of its rows, in order."""

    batch: Batch
    reqs: list[Req]


class BatchPlanner:
    """Continuous batching: a pass over newly admitted prompts if any fit, else one token for every running request.

    Tokens that grammars forced are computed like prompts, before the others go on.

    Args:
        ledger: Slots and rows.
        config: Limits.
    """

    def __init__(self, ledger: SlotLedger, config: SchedulerConfig) -> None:
        self._ledger = ledger
        self._config = config
        self.num_retracted = 0

    def next_pass(self, waiting: WaitingQueue, running: list[Req]) -> PlannedPass | None:
        """Plan the next pass; admitted requests move from `waiting` to `running`, retracted ones back."""
        admitted = self._admit(waiting, running)
        if admitted:
            running.extend(admitted)
            return PlannedPass(self._extend_batch(admitted), admitted)
        if not running:
            return None
        self._retract_until_fit(waiting, running)
        jumped = [req for req in running if req.num_uncomputed > 1]
        if jumped:
            # Forced tokens were appended: they are computed together, as a prompt is.
            self._ledger.extend(jumped)
            return PlannedPass(self._extend_batch(jumped), jumped)
        self._ledger.extend(running)
        return PlannedPass(self._decode_batch(running), list(running))

    def _admit(self, waiting: WaitingQueue, running: list[Req]) -> list[Req]:
        admitted: list[Req] = []
        pools = self._ledger.pools
        num_tokens = 0
        reserved = sum(min(req.num_remaining, DECODE_RESERVE) for req in running)
        while waiting and pools.rows.num_free and len(running) + len(admitted) < self._config.max_running_requests:
            req = waiting.first
            match = self._ledger.match(req)
            new = len(req.tokens) - match.length
            if admitted and num_tokens + new > self._config.max_prefill_tokens:
                break
            # Locked first: what this request matched is not to be evicted for it.
            pools.cache.lock(match.node)
            reserve = min(req.num_remaining, DECODE_RESERVE)
            if new + reserve + reserved > pools.num_available or not self._ledger.admit(req, match):
                pools.cache.unlock(match.node)
                break
            admitted.append(waiting.take_first())
            num_tokens += new
            reserved += reserve
        return admitted

    def _retract_until_fit(self, waiting: WaitingQueue, running: list[Req]) -> None:
        while self._ledger.pools.num_available < sum(req.num_uncomputed for req in running):
            assert len(running) > 1, "a single request always fits: its context is limited to the pool"
            # The one that would wait longest: least urgent, and newest of these.
            req = max(running, key=Req.turn)
            running.remove(req)
            self._ledger.release(req)
            req.retract()
            waiting.add(req)
            self.num_retracted += 1
            logger.info("retracted rid=%s running=%d", req.rid, len(running))

    def _extend_batch(self, reqs: list[Req]) -> Batch:
        prefix_lens = np.array([req.num_computed for req in reqs], dtype=np.int32)
        totals = [len(req.tokens) for req in reqs]
        rows = self._ledger.pools.rows
        pieces = [(req, int(start), end) for req, start, end in zip(reqs, prefix_lens, totals, strict=True)]
        return self._batch(
            "extend",
            reqs,
            input_ids=np.concatenate([req.tokens.view(start, end) for req, start, end in pieces]),
            slot_ids=np.concatenate([rows.read(req.row, start, end) for req, start, end in pieces]),
            logprob_starts=np.array([_logprob_start(req) for req in reqs], dtype=np.int32),
        )

    def _decode_batch(self, reqs: list[Req]) -> Batch:
        rows = [req.row for req in reqs]
        columns = [req.num_computed for req in reqs]
        return self._batch(
            "decode",
            reqs,
            input_ids=np.array([req.tokens.last for req in reqs], dtype=np.int64),
            slot_ids=self._ledger.pools.rows.slots[rows, columns],
            logprob_starts=np.full(len(reqs), -1, dtype=np.int32),
        )

    def _batch(
        self,
        kind: Literal["extend", "decode"],
        reqs: list[Req],
        *,
        input_ids: TokenArray,
        slot_ids: IntArray,
        logprob_starts: IntArray,
    ) -> Batch:
        prefix_lens = np.array([req.num_computed for req in reqs], dtype=np.int32)
        totals = np.array([len(req.tokens) for req in reqs], dtype=np.int32)
        return Batch(
            kind=kind,
            row_ids=np.array([req.row for req in reqs], dtype=np.int32),
            prefix_lens=prefix_lens,
            extend_lens=totals - prefix_lens,
            input_ids=input_ids,
            slot_ids=slot_ids,
            prefix_slots=tuple(self._changed_slots(req) for req in reqs),
            samples=np.array([req.max_new_tokens > 0 for req in reqs], dtype=np.bool_),
            sampling=_sampling(reqs),
            wants_logprob=np.array([req.message.return_logprob for req in reqs], dtype=np.bool_),
            logprob_starts=logprob_starts,
            logit_edits=collect_edits(reqs),
            top_nums=_top_nums(reqs),
            probe_ids=_probe_ids(reqs),
        )

    def _changed_slots(self, req: Req) -> IntArray:
        if not req.slots_changed:
            return _NOTHING
        req.slots_changed = False
        return self._ledger.pools.rows.read(req.row, 0, req.num_computed)


def _logprob_start(req: Req) -> int:
    if not req.wants_input_logprobs:
        return -1
    return req.message.logprob_start_len - req.num_computed


def _top_nums(reqs: list[Req]) -> IntArray | None:
    numbers = np.array([req.message.top_logprobs_num for req in reqs], dtype=np.int32)
    return numbers if numbers.any() else None


def _probe_ids(reqs: list[Req]) -> tuple[TokenArray, ...] | None:
    if not any(req.message.token_ids_logprob for req in reqs):
        return None
    return tuple(np.array(req.message.token_ids_logprob, dtype=np.int64) for req in reqs)


def _sampling(reqs: list[Req]) -> SamplingBatch:
    settings = [req.sampling for req in reqs]
    seeds = np.array([req.seed for req in reqs], dtype=np.uint64)
    indices = np.array([req.num_output for req in reqs], dtype=np.uint64)
    return SamplingBatch(
        temperatures=np.array([0.0 if s.is_greedy else s.temperature for s in settings], dtype=np.float32),
        top_ps=np.array([s.top_p for s in settings], dtype=np.float32),
        top_ks=np.array([s.top_k for s in settings], dtype=np.int32),
        min_ps=np.array([s.min_p for s in settings], dtype=np.float32),
        uniforms=uniforms(seeds, indices),
    )

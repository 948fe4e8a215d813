"""BatchPlanner: what the next pass computes, within token, slot and row budgets."""

import logging

from sgl_runtime.config import SchedulerConfig
from sgl_runtime.scheduler.admission import Admission, OutputEstimate
from sgl_runtime.scheduler.batch_builder import BatchBuilder, PlannedPass
from sgl_runtime.scheduler.req import TURN, Req
from sgl_runtime.scheduler.slot_ledger import SlotLedger
from sgl_runtime.scheduler.waiting_queue import WaitingQueue

logger = logging.getLogger(__name__)

MIN_PROMPT_SHARE = 4
"""Prompts get one in so many tokens of a mixed pass at least, however many requests decode along."""


class BatchPlanner:
    """Continuous batching: a pass over prompts while there are any, else one token for every running request.

    A prompt longer than a pass is computed in pieces.  Between passes over prompts those that decode get their turn:
    after `max_prefill_tokens` at the latest, or, where mixed passes are on, in each of them.  Tokens that grammars
    forced are computed like prompts.

    Args:
        ledger: Slots and rows.
        config: Limits, resolved.
        on_accelerator: Whether passes run on one, where a pass costs about the same for one row as for many: requests
            decode along in passes over forced text, and ranges that rows share are looked for.
    """

    def __init__(self, ledger: SlotLedger, config: SchedulerConfig, *, on_accelerator: bool = False) -> None:
        assert config.chunked_prefill_size is not None, "resolved before the planner is built"
        assert config.max_prefill_tokens is not None, "resolved before the planner is built"
        self.estimate = OutputEstimate(config.schedule_conservativeness)
        self.num_retracted = 0
        self.pools = ledger.pools
        self._ledger = ledger
        self._builder = BatchBuilder(ledger, finds_shared=on_accelerator)
        self._chunked = config.chunked_prefill_size > 0
        self._admission = Admission(ledger, config, self.estimate, chunked=self._chunked)
        self._max_prefill = config.max_prefill_tokens
        self._max_pass = min(config.chunked_prefill_size, self._max_prefill) if self._chunked else self._max_prefill
        self._mixed = config.enable_mixed_chunk
        self._joins_forced = on_accelerator
        self._preemption_threshold = config.priority_scheduling_preemption_threshold
        self._since_decode = 0
        self._is_blocked = False

    def next_pass(self, waiting: WaitingQueue, running: list[Req]) -> PlannedPass | None:
        """Plan the next pass; admitted requests move from `waiting` to `running`, retracted ones back."""
        num_retracted = self.num_retracted
        if self._is_blocked and waiting:
            self._preempt(waiting, running)
        decoding, partial = _split(running)
        if decoding and self._since_decode + self._max_pass > self._max_prefill:
            return self._decode(decoding, waiting, running)
        has_forced = self._joins_forced and any(req.num_computed >= req.prompt_len for req in partial)
        along = decoding if self._mixed or has_forced else []
        room = max(self._max_pass - len(along), self._max_pass // MIN_PROMPT_SHARE, 1)
        pieces = self._pieces(partial, room)
        pieces += [(req, 1) for req in along]
        pieces = self._take_slots(pieces, waiting, running)
        num_along = sum(req.is_decoding for req, _ in pieces)
        admitted: list[tuple[Req, int]] = []
        # Who was retracted just now may have a token on its way, and waits for it.
        if num_retracted == self.num_retracted:
            room -= sum(count for _, count in pieces) - num_along
            admitted = self._admit(waiting, running, budget=room, alone=num_along == len(pieces))
        if len(pieces) - num_along + len(admitted) == 0:
            if along:
                return self._builder.decode([req for req, _ in pieces]) if pieces else None
            return self._decode(decoding, waiting, running) if decoding else None
        return self._extend(pieces, admitted, num_along=num_along, someone_waits=bool(decoding))

    def retract_all(self, waiting: WaitingQueue, running: list[Req]) -> None:
        """Send everyone back to waiting; no pass may be under way."""
        for req in list(running):
            self._retract(req, waiting, running)

    def _pieces(self, partial: list[Req], budget: int) -> list[tuple[Req, int]]:
        """What the pass takes of prompts and forced text of requests that run already, the most urgent first."""
        pieces: list[tuple[Req, int]] = []
        for req in sorted(partial, key=TURN):
            if budget <= 0:
                break
            count = min(req.num_uncomputed, budget) if self._chunked else req.num_uncomputed
            pieces.append((req, count))
            budget -= count
        return pieces

    def _admit(self, waiting: WaitingQueue, running: list[Req], *, budget: int, alone: bool) -> list[tuple[Req, int]]:
        admitted = self._admission.take(waiting, running, budget=budget, alone=alone)
        for req, _ in admitted:
            self._builder.admit(req)
            running.append(req)
        self._is_blocked = not admitted and budget > 0 and len(waiting) > 0
        return admitted

    def _extend(
        self, pieces: list[tuple[Req, int]], admitted: list[tuple[Req, int]], *, num_along: int, someone_waits: bool
    ) -> PlannedPass:
        num_pieces = len(pieces) - num_along
        rows = [*pieces[:num_pieces], *admitted, *pieces[num_pieces:]]
        if someone_waits and not num_along:
            self._since_decode += sum(count for _, count in rows)
        else:
            self._since_decode = 0
        reqs, counts = [req for req, _ in rows], [count for _, count in rows]
        return self._builder.extend(
            reqs, counts, num_prefill=len(rows) - num_along, admitted=[req for req, _ in admitted]
        )

    def _decode(self, decoding: list[Req], waiting: WaitingQueue, running: list[Req]) -> PlannedPass | None:
        self._since_decode = 0
        pieces = self._take_slots([(req, 1) for req in decoding], waiting, running)
        return self._builder.decode([req for req, _ in pieces]) if pieces else None

    def _take_slots(
        self, pieces: list[tuple[Req, int]], waiting: WaitingQueue, running: list[Req]
    ) -> list[tuple[Req, int]]:
        """Give a pass its slots, and retract requests until there are enough for the others; what is left of it."""
        while pieces:
            reqs, counts = [req for req, _ in pieces], [count for _, count in pieces]
            need = self._ledger.need(reqs, counts)
            if int(need.missing.sum()) <= self._ledger.pools.num_available:
                self._ledger.extend(reqs, counts, need)
                break
            assert len(running) > 1, "a single request always fits: its context is limited to the pool"
            # The one that would wait longest: least urgent, and newest of these.
            self._retract(max(running, key=TURN), waiting, running)
            self.estimate.note_retraction()
            pieces = [(req, count) for req, count in pieces if req.row >= 0]
        return pieces

    def _preempt(self, waiting: WaitingQueue, running: list[Req]) -> None:
        """Retract requests that are less urgent, by the threshold, than the first that waits, if that lets it in."""
        first = waiting.most_urgent
        limit = first.message.priority - self._preemption_threshold
        victims = sorted((req for req in running if req.message.priority <= limit), key=TURN)
        pools = self._ledger.pools
        needed = len(first.tokens) - self._ledger.match(first).length + 1
        if not victims or pools.num_available + sum(req.num_computed for req in victims) < needed:
            return
        while victims and (pools.num_available < needed or not pools.rows.num_free):
            self._retract(victims.pop(), waiting, running)

    def _retract(self, req: Req, waiting: WaitingQueue, running: list[Req]) -> None:
        running.remove(req)
        self._ledger.release(req)
        req.retract()
        waiting.add(req)
        self.num_retracted += 1
        logger.info("retracted rid=%r running=%d", req.rid, len(running))


def _split(running: list[Req]) -> tuple[list[Req], list[Req]]:
    """Who decodes, and who has more to compute; those that only wait for their end are neither."""
    decoding: list[Req] = []
    partial: list[Req] = []
    for req in running:
        count = req.num_to_compute
        if count:
            (decoding if count == 1 and req.is_past_prompt else partial).append(req)
    return decoding, partial

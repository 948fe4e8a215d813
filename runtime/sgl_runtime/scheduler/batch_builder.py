"""BatchBuilder: the plan of a pass as a Batch of plain arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import Batch, GivenRows, GrammarMoves, IntArray, PoolSpans, SharedRange
from sgl_runtime.cache.prefix_cache import TokenArray
from sgl_runtime.cache.shared_ranges import find_shared
from sgl_runtime.grammar.automaton import Stack
from sgl_runtime.grammar.fsm_backend import FsmState
from sgl_runtime.scheduler.prompt_parts import given_rows, pool_spans, segments
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.row_settings import RowSettings
from sgl_runtime.scheduler.slot_ledger import SlotLedger


@dataclass(frozen=True)
class PlannedPass:
    """A Batch and the requests of its rows, in order.

    Attributes:
        batch: The plan.
        reqs: The request of each row.
        totals: How many tokens each request has computed once the pass is over; a row that draws draws the next one.
        samples: Whether each row draws.
        num_prefill: The first rows compute (pieces of) prompts and forced text, the others one token each.
        admitted: Requests that run for the first time, or again after a retraction.
    """

    batch: Batch
    reqs: list[Req]
    totals: list[int]
    samples: list[bool]
    num_prefill: int
    admitted: list[Req]

    def drawing(self) -> list[Req | None]:
        """For each row the request whose draw counts, None where nothing is drawn or nothing will come of it.

        A request may have ended, or have gone on with forced text, since the pass was planned.
        """
        return [
            req if samples and not req.is_done and len(req.tokens) == total else None
            for req, samples, total in zip(self.reqs, self.samples, self.totals, strict=True)
        ]


class BatchBuilder:
    """Makes Batches, and moves the requests on as if the pass had run.

    Args:
        ledger: Slots and rows.
        finds_shared: Whether the executor attends ranges that rows share at once.
    """

    def __init__(self, ledger: SlotLedger, *, finds_shared: bool = False) -> None:
        self._rows = ledger.pools.rows
        self._take_copies = ledger.take_copies
        self._settings = RowSettings(ledger.pools.rows.num_rows)
        self._finds_shared = finds_shared
        self._shared: tuple[bytes, tuple[SharedRange, ...]] = (b"", ())
        # Rows for which the device has an automaton.
        self._constrained_rows: set[int] = set()

    def admit(self, req: Req) -> None:
        """Take note of a request that has got its row."""
        self._settings.fill(req)
        req.grammar_moved = req.device_grammar is not None or req.row in self._constrained_rows

    def decode(self, reqs: list[Req]) -> PlannedPass:
        """One token for each request; their slots are in the rows."""
        rows = np.array([req.row for req in reqs], dtype=np.int32)
        computed = [req.num_computed for req in reqs]
        prefix_lens = np.array(computed, dtype=np.int32)
        ids = [-1 - req.row if req.num_drawing else req.tokens.last for req in reqs]
        batch = self._batch(
            "decode",
            reqs,
            rows,
            prefix_lens=prefix_lens,
            extend_lens=np.ones(len(reqs), dtype=np.int32),
            input_ids=np.array(ids, dtype=np.int64),
            slot_ids=self._rows.slots[rows, prefix_lens],
            samples=np.ones(len(reqs), dtype=np.bool_),
            shared_ranges=self._lasting_ranges(reqs, rows, prefix_lens) if self._finds_shared else (),
        )
        totals = [count + 1 for count in computed]
        for req in reqs:
            req.num_computed += 1
            req.num_drawing += 1
        return PlannedPass(batch, reqs, totals, [True] * len(reqs), 0, [])

    def extend(self, reqs: list[Req], counts: Sequence[int], *, num_prefill: int, admitted: list[Req]) -> PlannedPass:
        """Several tokens for each request; their slots are in the rows.

        Args:
            reqs: The requests, those that decode along last.
            counts: How many tokens of each.
            num_prefill: How many do not just decode along.
            admitted: Those of them that were waiting.
        """
        totals = [req.num_computed + count for req, count in zip(reqs, counts, strict=True)]
        samples = [req.max_new_tokens > 0 and req.num_planned == total for req, total in zip(reqs, totals, strict=True)]
        rows = np.array([req.row for req in reqs], dtype=np.int32)
        prefix_lens = np.array([req.num_computed for req in reqs], dtype=np.int32)
        extend_lens = np.array(counts, dtype=np.int32)
        starts = np.cumsum(extend_lens) - extend_lens
        columns = np.arange(int(extend_lens.sum())) + np.repeat(prefix_lens - starts, extend_lens)
        logprob_starts, next_ids = _prompt_logprobs(reqs, totals)
        if any(req.slots_changed for req in reqs):
            # What the rows of an earlier pass shared may no longer be so.
            self._shared = b"", ()
        batch = self._batch(
            "extend",
            reqs,
            rows,
            prefix_lens=prefix_lens,
            extend_lens=extend_lens,
            input_ids=np.concatenate([_ids(req, total) for req, total in zip(reqs, totals, strict=True)]),
            slot_ids=self._rows.slots[np.repeat(rows, extend_lens), columns],
            samples=np.array(samples, dtype=np.bool_),
            shared_ranges=self._find_shared(rows, prefix_lens) if self._finds_shared else (),
            logprob_starts=logprob_starts,
            next_ids=next_ids,
            given_rows=given_rows(reqs, starts, totals),
            segments=segments(reqs, totals),
            pool_spans=pool_spans(reqs, totals),
        )
        for req, total, draws in zip(reqs, totals, samples, strict=True):
            req.num_computed = total
            req.num_drawing += draws
        return PlannedPass(batch, reqs, totals, samples, num_prefill, admitted)

    def _batch(
        self,
        kind: Literal["extend", "decode"],
        reqs: list[Req],
        rows: IntArray,
        *,
        prefix_lens: IntArray,
        extend_lens: IntArray,
        input_ids: TokenArray,
        slot_ids: IntArray,
        samples: NDArray[np.bool_],
        shared_ranges: tuple[SharedRange, ...] = (),
        logprob_starts: IntArray | None = None,
        next_ids: TokenArray | None = None,
        given_rows: GivenRows | None = None,
        segments: TokenArray | None = None,
        pool_spans: PoolSpans | None = None,
    ) -> Batch:
        stores, loads = self._take_copies()
        return Batch(
            kind=kind,
            row_ids=rows,
            prefix_lens=prefix_lens,
            extend_lens=extend_lens,
            input_ids=input_ids,
            slot_ids=slot_ids,
            changed_slots=tuple(self._changed_slots(req) for req in reqs if req.slots_changed),
            samples=samples,
            sampling=self._settings.sampling(rows, prefix_lens + extend_lens),
            wants_logprob=self._settings.wants_logprob(rows),
            hidden_starts=_hidden_starts(reqs, prefix_lens + extend_lens),
            logprob_starts=np.full(len(reqs), -1, dtype=np.int32) if logprob_starts is None else logprob_starts,
            next_ids=next_ids,
            top_nums=self._settings.top_nums(rows),
            probe_ids=_probe_ids(reqs),
            shared_ranges=shared_ranges,
            grammar_moves=self._grammar_moves(reqs),
            is_constrained=any(req.device_grammar is not None for req in reqs),
            is_edited=any(_is_edited(req) for req in reqs),
            given_rows=given_rows,
            segments=segments,
            pool_spans=pool_spans,
            stores=stores,
            loads=loads,
        )

    def _find_shared(self, rows: IntArray, prefix_lens: IntArray) -> tuple[SharedRange, ...]:
        return tuple(find_shared(self._rows.slots, rows, prefix_lens))

    def _lasting_ranges(self, reqs: list[Req], rows: IntArray, prefix_lens: IntArray) -> tuple[SharedRange, ...]:
        """What the rows of a decode pass share; it stays the same while the rows do."""
        key = rows.tobytes()
        if key != self._shared[0] or any(req.slots_changed for req in reqs):
            self._shared = key, self._find_shared(rows, prefix_lens)
        return self._shared[1]

    def _grammar_moves(self, reqs: list[Req]) -> GrammarMoves | None:
        moved = [req for req in reqs if req.grammar_moved]
        if not moved:
            return None
        places: list[tuple[int, Stack]] = []
        for req in moved:
            req.grammar_moved = False
            if req.device_grammar is None:
                self._constrained_rows.discard(req.row)
                places.append((0, ()))
            else:
                assert isinstance(req.grammar, FsmState), "only automata lie on the device"
                self._constrained_rows.add(req.row)
                places.append(req.grammar.place)
        return GrammarMoves(
            rows=np.array([req.row for req in moved], dtype=np.int32),
            handles=tuple(req.device_grammar for req in moved),
            states=tuple(state for state, _ in places),
            stacks=tuple(stack for _, stack in places),
        )

    def _changed_slots(self, req: Req) -> tuple[int, IntArray]:
        req.slots_changed = False
        return req.row, self._rows.read(req.row, 0, req.num_computed)


def _is_edited(req: Req) -> bool:
    on_host = req.grammar is not None and req.device_grammar is None
    return on_host or req.logit_rules is not None or req.message.logit_processor is not None


def _ids(req: Req, total: int) -> TokenArray:
    """The tokens that a pass computes of a request."""
    if req.num_drawing and req.num_computed == len(req.tokens):
        return np.array([-1 - req.row], dtype=np.int64)
    assert total <= len(req.tokens), f"{req.rid}: several tokens to compute, and not all of them known"
    return req.tokens.view(req.num_computed, total)


def _prompt_logprobs(reqs: list[Req], totals: list[int]) -> tuple[IntArray, TokenArray | None]:
    """`logprob_starts` and `next_ids` of a pass; the requests take note of what it will give."""
    starts = np.full(len(reqs), -1, dtype=np.int32)
    next_ids = np.full(len(reqs), -1, dtype=np.int64)
    for index, (req, total) in enumerate(zip(reqs, totals, strict=True)):
        if req.next_logprob > min(total, req.prompt_len - 1):
            continue
        starts[index] = req.next_logprob - req.num_computed
        if total < req.prompt_len:
            next_ids[index] = req.tokens.view(total, total + 1)[0]
        req.next_logprob = total + 1
    return starts, next_ids if (next_ids >= 0).any() else None


def _hidden_starts(reqs: list[Req], totals: IntArray) -> IntArray | None:
    """`hidden_starts` of a pass; the requests take note of what it will give."""
    if not any(req.message.return_hidden_states for req in reqs):
        return None
    starts = np.full(len(reqs), -1, dtype=np.int32)
    for index, req in enumerate(reqs):
        if req.message.return_hidden_states and req.next_hidden < totals[index]:
            assert req.next_hidden >= req.num_computed, f"{req.rid}: hidden states were passed over"
            starts[index] = req.next_hidden - req.num_computed
            req.next_hidden = int(totals[index])
    return starts


def _probe_ids(reqs: list[Req]) -> tuple[TokenArray, ...] | None:
    if not any(req.message.token_ids_logprob for req in reqs):
        return None
    return tuple(np.array(req.message.token_ids_logprob, dtype=np.int64) for req in reqs)

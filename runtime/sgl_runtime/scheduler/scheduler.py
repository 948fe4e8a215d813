"""Scheduler: accepts requests, plans passes, applies what they gave."""

import itertools
from typing import Any

import numpy as np

from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.executor.base import Executor
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    DetokenizeStart,
    FinishReason,
    FlushCacheReply,
    FlushCacheRequest,
    SchedulerInput,
    SchedulerOutput,
    StatsReply,
    StatsRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.sampling_params import MAX_SEED
from sgl_runtime.scheduler.batch_planner import BatchPlanner
from sgl_runtime.scheduler.grammar_queue import GrammarQueue, grammar_spec
from sgl_runtime.scheduler.logit_rules import logit_rules
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.result_applier import ResultApplier
from sgl_runtime.scheduler.stats import SchedulerStats
from sgl_runtime.scheduler.waiting_queue import WaitingQueue

GRAMMAR_WAIT_S = 0.005
"""How long an otherwise idle step waits for a grammar."""


class Scheduler:
    """The loop body of the scheduler process.

    Args:
        executor: Runs passes.
        pools: Slots, rows and prefix cache.
        planner: Chooses the requests of a pass.
        applier: Applies results.
        grammars: Compiles and masks.
        num_mask_words: Words of a token mask row.
        eos_ids: Ids that end an output.
        random_seed: Seeds the requests that bring no seed; None for fresh ones.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        pools: CachePools,
        planner: BatchPlanner,
        applier: ResultApplier,
        grammars: GrammarQueue,
        num_mask_words: int,
        eos_ids: frozenset[int],
        random_seed: int | None,
    ) -> None:
        self._executor = executor
        self._pools = pools
        self._planner = planner
        self._applier = applier
        self._grammars = grammars
        self._num_mask_words = num_mask_words
        self._eos_ids = eos_ids
        self._seeds = np.random.default_rng(random_seed)
        self._arrivals = itertools.count()
        self._waiting = WaitingQueue()
        self._running: list[Req] = []
        self._stats = SchedulerStats()

    def has_work(self) -> bool:
        """Whether any request is on its way."""
        return bool(self._running or self._waiting or len(self._grammars))

    def accept(self, message: SchedulerInput) -> list[SchedulerOutput]:
        """Take one message; what comes back at once goes to the detokenizer."""
        match message:
            case TokenizedRequest():
                return self._accept_request(message)
            case AbortRequest():
                return self._abort(message)
            case FlushCacheRequest():
                return [self._flush(message)]
            case StatsRequest():
                return [StatsReply(request_id=message.request_id, stats=self.stats())]

    def step(self) -> list[SchedulerOutput]:
        """Run one pass, if there is one to run."""
        outputs: list[SchedulerOutput] = list(self._take_grammars())
        planned = self._planner.next_pass(self._waiting, self._running)
        if planned is None:
            return outputs
        pending = self._executor.launch(planned.batch)
        masks = self._grammars.masks(planned.reqs, self._num_mask_words)
        output = pending.sample(masks).wait()
        if planned.batch.kind == "extend":
            self._stats.before_extend(planned)
        deltas = self._applier.apply(planned, output)
        self._running = [req for req in self._running if not req.is_done]
        num_new = sum(len(delta.new_ids) for delta in deltas)
        self._stats.after_pass(
            planned, num_new=num_new, num_waiting=len(self._waiting), num_free=self._pools.num_available
        )
        return [*outputs, *deltas]

    def check(self) -> None:
        """Account for every slot and row.

        Raises:
            AssertionError: something is lost or held twice.
        """
        self._pools.check(sum(req.num_private for req in self._running))
        rows = self._pools.rows
        assert rows.num_free + len(self._running) == rows.num_rows, "a row of the request table is lost"

    def close(self) -> None:
        """Stop what works in the background; no message may come and no step be taken any more."""
        self._grammars.close()

    def stats(self) -> dict[str, Any]:
        """Counters, by the names of docs/protocol.md."""
        pools, stats = self._pools, self._stats
        return {
            "num_running": len(self._running),
            "num_waiting": len(self._waiting) + len(self._grammars),
            "total_slots": pools.allocator.num_slots,
            "free_slots": pools.allocator.num_free,
            "cached_slots": pools.cache.num_cached,
            "prompt_tokens_total": stats.prompt_tokens,
            "cached_tokens_total": stats.cached_tokens,
            "generation_tokens_total": stats.generation_tokens,
            "num_retracted_total": self._planner.num_retracted,
            "grammar_mask_seconds_total": self._grammars.mask_seconds,
            "forward_seconds_total": self._executor.forward_seconds(),
            "uptime_seconds": stats.uptime_seconds,
        }

    def _accept_request(self, message: TokenizedRequest) -> list[SchedulerOutput]:
        sampling = message.sampling
        seed = sampling.sampling_seed
        req = Req(
            message,
            seed=int(self._seeds.integers(MAX_SEED)) if seed is None else seed,
            arrival=next(self._arrivals),
            logit_rules=logit_rules(sampling, message.input_ids, end_ids=self._eos_ids),
        )
        spec = grammar_spec(sampling)
        if spec is None:
            self._waiting.add(req)
        else:
            self._grammars.submit(req, spec)
        start = DetokenizeStart(
            rid=message.rid,
            stop=sampling.stop,
            stop_automata=message.stop_automata,
            no_stop_trim=sampling.no_stop_trim,
            skip_special_tokens=sampling.skip_special_tokens,
        )
        return [start]

    def _take_grammars(self) -> list[TokenDelta]:
        idle = not self._running and not self._waiting
        ready, failed = self._grammars.take_ready(wait_s=GRAMMAR_WAIT_S if idle else 0.0)
        for req in ready:
            self._waiting.add(req)
        return [self._applier.abort(req, _failure(req)) for req in failed]

    def _abort(self, message: AbortRequest) -> list[SchedulerOutput]:
        reason = FinishReason(type="abort", message="the request was aborted")
        everyone = [*self._running, *self._waiting, *self._grammars.reqs()]
        chosen = [req for req in everyone if message.abort_all or req.rid == message.rid]
        for req in set(self._grammars.reqs()).intersection(chosen):
            self._grammars.drop(req)
        for req in set(self._waiting).intersection(chosen):
            self._waiting.remove(req)
        deltas: list[SchedulerOutput] = [self._applier.abort(req, reason) for req in chosen]
        self._running = [req for req in self._running if not req.is_done]
        return [*deltas, AbortReply(request_id=message.request_id, rids=[req.rid for req in chosen])]

    def _flush(self, message: FlushCacheRequest) -> FlushCacheReply:
        if self.has_work():
            busy = f"{len(self._running)} running and {len(self._waiting) + len(self._grammars)} waiting requests"
            return FlushCacheReply(request_id=message.request_id, success=False, message=f"not while there are {busy}")
        count = self._pools.cache.num_cached
        self._pools.allocator.free(self._pools.cache.clear())
        return FlushCacheReply(request_id=message.request_id, success=True, message=f"{count} cached tokens dropped")


def _failure(req: Req) -> FinishReason:
    assert req.failure is not None
    return req.failure

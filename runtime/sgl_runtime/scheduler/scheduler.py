"""Scheduler: accepts requests, plans passes, applies what they gave."""

from typing import Any

from sgl_runtime.executor.base import Executor, PendingTokens
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    CacheEventsReply,
    CacheEventsRequest,
    CloseSessionRequest,
    ContinueRequest,
    ControlReply,
    FinishReason,
    FlushCacheReply,
    FlushCacheRequest,
    OpenSessionRequest,
    PauseRequest,
    ProfileRequest,
    SchedulerInput,
    SchedulerOutput,
    StatsReply,
    StatsRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.scheduler.batch_builder import PlannedPass
from sgl_runtime.scheduler.batch_planner import BatchPlanner
from sgl_runtime.scheduler.grammar_queue import GrammarQueue, grammar_spec
from sgl_runtime.scheduler.logit_edits import collect_edits
from sgl_runtime.scheduler.profiling import answer_profile
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.request_intake import RequestIntake
from sgl_runtime.scheduler.result_applier import ResultApplier
from sgl_runtime.scheduler.schedule_policy import SchedulePolicy
from sgl_runtime.scheduler.stats import Load, SchedulerStats
from sgl_runtime.scheduler.waiting_queue import WaitingQueue

GRAMMAR_WAIT_S = 0.005
"""How long an otherwise idle step waits for a grammar."""


class Scheduler:
    """The loop body of the scheduler process.

    Args:
        executor: Runs passes.
        planner: Chooses the requests of a pass; has the slots, rows and prefix cache.
        applier: Applies results.
        grammars: Compiles and masks.
        policy: Orders waiting requests.
        overlap: Whether a pass is planned while the one before it runs.
        intake: Makes requests of messages.
        stats: Counts.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        planner: BatchPlanner,
        applier: ResultApplier,
        grammars: GrammarQueue,
        policy: SchedulePolicy,
        overlap: bool,
        intake: RequestIntake,
        stats: SchedulerStats,
    ) -> None:
        self._executor = executor
        self._pools = planner.pools
        self._planner = planner
        self._applier = applier
        self._grammars = grammars
        self._intake = intake
        self._waiting = WaitingQueue(policy)
        self._running: list[Req] = []
        self._overlap = overlap
        self._under_way: tuple[PlannedPass, PendingTokens] | None = None
        self._num_idle_steps = 0
        self._is_paused = False
        self._stats = stats

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        if self._is_paused:
            return self._under_way is not None
        return bool(self._running or self._waiting or len(self._grammars) or self._under_way)

    def accept(self, message: SchedulerInput) -> list[SchedulerOutput]:
        """Take one message; what comes back at once goes to the detokenizer."""
        match message:
            case TokenizedRequest():
                return self._accept_request(message)
            case AbortRequest():
                return self._abort(message)
            case FlushCacheRequest():
                return [self._flush(message)]
            case OpenSessionRequest():
                return [self._intake.sessions.open(message)]
            case CloseSessionRequest():
                return [self._intake.sessions.close(message)]
            case PauseRequest():
                return self._pause(message)
            case ContinueRequest():
                return [self._continue(message)]
            case StatsRequest():
                return [StatsReply(request_id=message.request_id, stats=self.stats())]
            case ProfileRequest():
                return [answer_profile(self._executor, message)]
            case CacheEventsRequest():
                events = self._pools.events
                page = None if events is None else events.page(message.since, limit=message.limit)
                return [CacheEventsReply(request_id=message.request_id, page=page)]

    def step(self) -> list[SchedulerOutput]:
        """Launch one pass, if there is one to run, and apply what is done.

        With overlap that is the pass before: the host learns what it drew while the new one runs.  Masks and edits are
        made after that, so they know every token; only the plan does not.
        """
        if self._is_paused:
            return self._finish_pass()
        outputs: list[SchedulerOutput] = list(self._take_grammars())
        planned = self._planner.next_pass(self._waiting, self._running)
        pending = None if planned is None else self._executor.launch(planned.batch)
        outputs.extend(self._finish_pass())
        if planned is None or pending is None:
            return [*outputs, *self._end_what_never_fits()]
        self._num_idle_steps = 0
        self._stats.note_planned(planned, self._load())
        is_shaped = planned.batch.is_edited or planned.batch.is_constrained
        drawing = planned.drawing() if is_shaped else []
        masks = self._grammars.masks(drawing)
        tokens = pending.sample(masks, collect_edits(drawing), self._grammars.forced_ids(drawing))
        if self._overlap:
            self._under_way = planned, tokens
        else:
            outputs.extend(self._apply(planned, tokens))
        return outputs

    def _end_what_never_fits(self) -> list[TokenDelta]:
        """With nothing else that runs or ends, the first that waits is let in, or it never can be.

        After a retraction it waits for one step, so this is said at the second.
        """
        if self._running or not self._waiting:
            self._num_idle_steps = 0
            return []
        self._num_idle_steps += 1
        if self._num_idle_steps < 2:
            return []
        req = self._waiting.most_urgent
        self._waiting.remove(req)
        message = (
            f"the request has {len(req.tokens)} tokens, and its keys and values do not fit into the pool of"
            f" {self._pools.allocator.num_slots}"
        )
        return [self._applier.abort(req, FinishReason(type="abort", message=message, code="context_length_exceeded"))]

    def _finish_pass(self) -> list[SchedulerOutput]:
        """Apply the pass that is under way, if one is."""
        if self._under_way is None:
            return []
        planned, tokens = self._under_way
        self._under_way = None
        return [*self._apply(planned, tokens)]

    def _apply(self, planned: PlannedPass, tokens: PendingTokens) -> list[TokenDelta]:
        deltas = self._applier.apply(planned, tokens.wait())
        if any(delta.finish is not None for delta in deltas):
            self._running = [req for req in self._running if not req.is_done]
            self._waiting.remove_done(planned.reqs)
            for req in planned.reqs:
                self._planner.estimate.note_end(req)
        num_new = sum(len(delta.new_ids) for delta in deltas)
        self._stats.after_pass(planned, self._load(), num_new=num_new)
        return deltas

    def check(self) -> None:
        """Account for every slot and row.

        Raises:
            AssertionError: something is lost or held twice.
        """
        try:
            self._account()
        except AssertionError:
            self._stats.num_failed_checks += 1
            raise

    def close(self) -> None:
        """Stop what works in the background; no message may come and no step be taken any more."""
        self._grammars.close()

    def stats(self) -> dict[str, Any]:
        """Counters, by the names of docs/protocol.md."""
        pools, stats, load = self._pools, self._stats, self._load()
        return {
            "num_running": len(self._running),
            "num_waiting": load.num_waiting,
            "num_grammar_queue": len(self._grammars),
            "token_usage": load.token_usage,
            "total_slots": pools.allocator.num_slots,
            "free_slots": pools.allocator.num_free,
            "cached_slots": pools.cache.num_cached,
            "host_cached_slots": pools.cache.num_on_host,
            "prompt_tokens_total": stats.prompt_tokens,
            "cached_tokens_total": stats.cached_tokens,
            "generation_tokens_total": stats.generation_tokens,
            "last_gen_throughput": stats.tokens_per_second,
            "num_retracted_total": self._planner.num_retracted,
            "failed_idle_checks_total": stats.num_failed_checks,
            "num_sessions": self._intake.sessions.num_open,
            "is_paused": self._is_paused,
            "grammar_mask_seconds_total": self._grammars.mask_seconds,
            "forward_seconds_total": self._executor.forward_seconds(),
            "uptime_seconds": stats.uptime_seconds,
        }

    def _load(self) -> Load:
        num_waiting = len(self._waiting) + len(self._grammars)
        return Load(len(self._running), num_waiting, 1.0 - self._pools.num_available / self._pools.allocator.num_slots)

    def _account(self) -> None:
        self._pools.check()
        rows = self._pools.rows
        assert rows.num_free + len(self._running) == rows.num_rows, "a row of the request table is lost"

    def _accept_request(self, message: TokenizedRequest) -> list[SchedulerOutput]:
        taken = self._intake.take(message)
        reason = FinishReason(type="abort", message="another turn of the session took its place")
        ended = self._end(taken.superseded, reason)
        if taken.req is not None:
            spec = grammar_spec(taken.req.sampling)
            if spec is None:
                self._waiting.add(taken.req)
            else:
                self._grammars.submit(taken.req, spec)
        return [*taken.outputs, *ended]

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
        deltas = self._end(chosen, reason)
        return [*deltas, AbortReply(request_id=message.request_id, rids=[req.rid for req in chosen])]

    def _end(self, chosen: list[Req], reason: FinishReason) -> list[TokenDelta]:
        """End requests, wherever they stand."""
        if not chosen:
            return []
        for req in set(self._grammars.reqs()).intersection(chosen):
            self._grammars.drop(req)
        for req in set(self._waiting).intersection(chosen):
            self._waiting.remove(req)
        deltas = [self._applier.abort(req, reason) for req in chosen]
        self._running = [req for req in self._running if not req.is_done]
        return deltas

    def _pause(self, message: PauseRequest) -> list[SchedulerOutput]:
        outputs = self._finish_pass()
        self._is_paused = True
        if message.mode == "retract":
            self._planner.retract_all(self._waiting, self._running)
        elif message.mode == "abort":
            everyone = [*self._running, *self._waiting, *self._grammars.reqs()]
            reason = FinishReason(type="abort", message="the server was paused")
            outputs += self._end(everyone, reason)
        text = f"paused with {self._busy()}"
        return [*outputs, ControlReply(request_id=message.request_id, message=text)]

    def _continue(self, message: ContinueRequest) -> ControlReply:
        text = f"goes on with {self._busy()}" if self._is_paused else "was not paused"
        self._is_paused = False
        return ControlReply(request_id=message.request_id, message=text)

    def _busy(self) -> str:
        return f"{len(self._running)} running and {len(self._waiting) + len(self._grammars)} waiting requests"

    def _flush(self, message: FlushCacheRequest) -> FlushCacheReply:
        # Those that wait hold nothing, but soon will, unless all is paused; a pass under way is one of no live request.
        waits = self._waiting or len(self._grammars)
        if self._running or (waits and not self._is_paused):
            text = f"not while there are {self._busy()}"
            return FlushCacheReply(request_id=message.request_id, success=False, message=text)
        count = self._pools.cache.num_cached
        self._pools.allocator.free(self._pools.cache.clear())
        return FlushCacheReply(request_id=message.request_id, success=True, message=f"{count} cached tokens dropped")


def _failure(req: Req) -> FinishReason:
    assert req.failure is not None
    return req.failure

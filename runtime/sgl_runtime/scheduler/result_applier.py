"""ResultApplier: what a pass gave, applied to its requests."""

import math

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import StepOutput
from sgl_runtime.ipc.messages import FinishReason, TokenDelta
from sgl_runtime.scheduler.batch_planner import PlannedPass
from sgl_runtime.scheduler.grammar_queue import GrammarQueue
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.slot_ledger import SlotLedger
from sgl_runtime.scheduler.stop_checker import StopChecker, StopVerdict


class ResultApplier:
    """Appends, advances grammars, finishes, shares prefixes, gives slots back.

    Args:
        ledger: Slots and rows.
        stop_checker: When a request ends.
        grammars: Cursors of the constraints.
    """

    def __init__(self, ledger: SlotLedger, stop_checker: StopChecker, grammars: GrammarQueue) -> None:
        self._ledger = ledger
        self._stop_checker = stop_checker
        self._grammars = grammars

    def apply(self, planned: PlannedPass, output: StepOutput) -> list[TokenDelta]:
        """Apply a pass; the deltas are in row order."""
        token_ids = output.token_ids.tolist()
        deltas = []
        for index, req in enumerate(planned.reqs):
            input_logprobs = output.input_logprobs[index]
            logprob = float(output.logprobs[index])
            deltas.append(self._apply_row(req, token_ids[index], logprob, input_logprobs))
            if planned.batch.kind == "extend" and not req.is_done:
                self._ledger.share(req)
        return deltas

    def abort(self, req: Req, reason: FinishReason) -> TokenDelta:
        """End a request that runs or waits, without a new token."""
        if req.row >= 0:
            self._ledger.release(req)
        req.finish(reason)
        return self._delta(req, [], StopVerdict(reason, 0), None, None)

    def _apply_row(
        self, req: Req, token_id: int, logprob: float, input_logprobs: NDArray[np.float32] | None
    ) -> TokenDelta:
        req.num_computed = len(req.tokens)
        first_run, req.has_run = not req.has_run, True
        new_ids: list[int] = []
        if req.failure is not None:
            verdict: StopVerdict | None = StopVerdict(req.failure, 0)
        elif token_id < 0:
            verdict = StopVerdict(FinishReason(type="length"), 0)
        else:
            req.append(token_id)
            new_ids = [token_id]
            self._grammars.advance(req)
            verdict = self._stop_checker.check(req)
        if verdict is not None:
            self._ledger.release(req)
            req.finish(verdict.reason)
        output_logprobs = [logprob] if new_ids and req.message.return_logprob else None
        return self._delta(req, new_ids, verdict, output_logprobs, input_logprobs if first_run else None)

    def _delta(
        self,
        req: Req,
        new_ids: list[int],
        verdict: StopVerdict | None,
        output_logprobs: list[float] | None,
        input_logprobs: NDArray[np.float32] | None,
    ) -> TokenDelta:
        inputs = None
        if input_logprobs is not None:
            inputs = [None if math.isnan(value) else value for value in input_logprobs.tolist()]
        return TokenDelta(
            rid=req.rid,
            new_ids=new_ids,
            finish=None if verdict is None else verdict.reason,
            num_trimmed_ids=0 if verdict is None else verdict.num_trimmed_ids,
            prompt_tokens=req.prompt_len,
            cached_tokens=req.cached_len,
            grammar_compile_time=req.grammar_compile_time,
            output_logprobs=output_logprobs,
            input_logprobs=inputs,
        )

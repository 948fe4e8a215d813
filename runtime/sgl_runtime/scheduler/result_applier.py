"""ResultApplier: what a pass gave, applied to its requests."""

import math
from typing import Any

from sgl_runtime.batch import Alternatives, StepOutput
from sgl_runtime.ipc.messages import FinishReason, TokenAlternatives, TokenDelta
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
        deltas = []
        for index, req in enumerate(planned.reqs):
            deltas.append(self._apply_row(req, output, index))
            if planned.batch.kind == "extend" and not req.is_done:
                self._ledger.share(req)
        return deltas

    def abort(self, req: Req, reason: FinishReason) -> TokenDelta:
        """End a request that runs or waits, without a new token."""
        if req.row >= 0:
            self._ledger.release(req)
        req.finish(reason)
        return self._delta(req, [], StopVerdict(reason, 0), {})

    def _apply_row(self, req: Req, output: StepOutput, index: int) -> TokenDelta:
        token_id = int(output.token_ids[index])
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
            verdict = verdict or self._jump_forward(req, new_ids)
        if verdict is not None:
            self._ledger.release(req)
            req.finish(verdict.reason)
        logprobs = _input_logprobs(output, index) if first_run else {}
        if new_ids and req.message.return_logprob:
            logprobs.update(_output_logprobs(output, index))
        return self._delta(req, new_ids, verdict, logprobs)

    def _jump_forward(self, req: Req, new_ids: list[int]) -> StopVerdict | None:
        """Append the tokens that a grammar forces; the next pass computes them together."""
        while True:
            token_id = self._grammars.token_to_append(req)
            if token_id is None:
                return None
            req.append(token_id)
            req.num_forced += 1
            new_ids.append(token_id)
            self._grammars.advance(req)
            verdict = self._stop_checker.check(req)
            if verdict is not None:
                return verdict

    def _delta(self, req: Req, new_ids: list[int], verdict: StopVerdict | None, logprobs: dict[str, Any]) -> TokenDelta:
        return TokenDelta(
            rid=req.rid,
            new_ids=new_ids,
            finish=None if verdict is None else verdict.reason,
            num_trimmed_ids=0 if verdict is None else verdict.num_trimmed_ids,
            prompt_tokens=req.prompt_len,
            cached_tokens=req.cached_len,
            grammar=req.grammar_report,
            forced_tokens=req.num_forced,
            **logprobs,
        )


def _input_logprobs(output: StepOutput, index: int) -> dict[str, Any]:
    values = output.input_logprobs[index]
    if values is None:
        return {}
    fields: dict[str, Any] = {"input_logprobs": [None if math.isnan(value) else value for value in values.tolist()]}
    found = None if output.input_alternatives is None else output.input_alternatives[index]
    if found is not None:
        pairs = zip(fields["input_logprobs"], _alternatives(found), strict=True)
        fields["input_alternatives"] = [None if value is None else entry for value, entry in pairs]
    return fields


def _output_logprobs(output: StepOutput, index: int) -> dict[str, Any]:
    found = None if output.alternatives is None else output.alternatives[index]
    return {
        "output_logprobs": [float(output.logprobs[index])],
        "output_alternatives": None if found is None else _alternatives(found),
    }


def _alternatives(found: Alternatives) -> list[TokenAlternatives]:
    rows = zip(found.top_logprobs.tolist(), found.top_ids.tolist(), found.probe_logprobs.tolist(), strict=True)
    return [TokenAlternatives(list(zip(values, ids, strict=True)), probes) for values, ids, probes in rows]

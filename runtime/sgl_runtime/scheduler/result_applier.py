"""ResultApplier: what a pass gave, applied to its requests."""

import math
from typing import Any

import numpy as np

from sgl_runtime.batch import Alternatives, StepOutput
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.messages import FinishReason, TokenAlternatives, TokenDelta
from sgl_runtime.ipc.request_parts import FloatRows
from sgl_runtime.scheduler.batch_builder import PlannedPass
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
        """Apply a pass; the deltas are in row order, of rows that have news.

        Requests that ended since the pass was planned are passed over, and so are draws in whose place forced text
        has come.
        """
        deltas: list[TokenDelta] = []
        rows = zip(planned.reqs, planned.totals, planned.samples, output.token_ids.tolist(), strict=True)
        for index, (req, total, samples, token_id) in enumerate(rows):
            if req.is_done:
                continue
            if output.input_logprobs[index] is not None:
                _keep_input_logprobs(req, output, index)
            hidden = None if output.hidden_states is None else output.hidden_states[index]
            if hidden is not None:
                req.hidden_states.append(hidden)
            vector = None if output.vectors is None else output.vectors[index]
            if vector is not None:
                req.pooled = vector if req.pooled is None else req.pooled + vector
            if not samples:
                if req.max_new_tokens == 0 and total == req.prompt_len:
                    deltas.append(self._end_fill(req))
                continue
            if len(req.tokens) != total:
                continue
            deltas.append(self._apply_draw(req, token_id, output, index, num_running=len(planned.reqs)))
            if index < planned.num_prefill and req.row >= 0:
                self._ledger.share(req)
        return deltas

    def abort(self, req: Req, reason: FinishReason) -> TokenDelta:
        """End a request that runs or waits, without a new token."""
        return self._end(req, StopVerdict(reason, 0), [], {})

    def _end_fill(self, req: Req) -> TokenDelta:
        """A request that draws nothing ends when its prompt is computed."""
        logprobs = {} if req.has_run else _input_logprobs(req)
        req.has_run = True
        return self._end(req, StopVerdict(FinishReason(type="length"), 0), [], logprobs)

    def _apply_draw(self, req: Req, token_id: int, output: StepOutput, index: int, *, num_running: int) -> TokenDelta:
        req.num_drawing -= 1
        failure = None if output.failures is None else output.failures[index]
        if failure is not None:
            req.failure = _processor_failure(failure)
        if req.failure is not None:
            return self._end(req, StopVerdict(req.failure, 0), [], {})
        logprobs: dict[str, Any] = {}
        if not req.has_run:
            req.has_run = True
            logprobs = _input_logprobs(req)
        if req.message.return_logprob:
            logprobs.update(_output_logprobs(output, index))
        req.append(token_id)
        new_ids = [token_id]
        if req.grammar is None:
            verdict = self._stop_checker.check(req)
        else:
            self._grammars.advance(req)
            verdict = self._verdict(req) or self._jump_forward(req, new_ids, num_running)
        if verdict is not None:
            return self._end(req, verdict, new_ids, logprobs)
        return self._delta(req, new_ids, None, logprobs)

    def _verdict(self, req: Req) -> StopVerdict | None:
        if req.failure is not None:
            return StopVerdict(req.failure, 0)
        return self._stop_checker.check(req)

    def _end(self, req: Req, verdict: StopVerdict, new_ids: list[int], logprobs: dict[str, Any]) -> TokenDelta:
        if req.row >= 0:
            self._ledger.release(req)
        self._grammars.release(req)
        req.finish(verdict.reason)
        return self._delta(req, new_ids, verdict, logprobs)

    def _jump_forward(self, req: Req, new_ids: list[int], num_running: int) -> StopVerdict | None:
        """Append the tokens that a grammar forces; the next pass computes them together."""
        while True:
            token_id = self._grammars.token_to_append(req, num_running=num_running)
            if token_id is None:
                return None
            req.append(token_id)
            req.num_forced += 1
            new_ids.append(token_id)
            # A pass under way may be drawing in this place.
            req.num_drawing = 0
            req.grammar_moved = True
            self._grammars.advance(req)
            verdict = self._verdict(req)
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
            queue_time=req.queue_time,
            grammar=req.grammar_report,
            forced_tokens=req.num_forced,
            num_forced_ids=_num_forced(req, new_ids),
            hidden_states=_take_hidden_states(req),
            vector=_vector(req) if verdict is not None and verdict.reason.type != "abort" else None,
            **logprobs,
        )


def _num_forced(req: Req, new_ids: list[int]) -> int:
    """How many of the last of some new ids a grammar left no choice for: all but the first one were appended."""
    if req.grammar is None or not new_ids:
        return 0
    return len(new_ids) - (0 if req.is_forced else 1)


def _keep_input_logprobs(req: Req, output: StepOutput, index: int) -> None:
    """Take what a pass over a piece of the prompt gave."""
    values = output.input_logprobs[index]
    assert values is not None
    entries = [None if math.isnan(value) else value for value in values.tolist()]
    req.input_logprobs.setdefault("input_logprobs", []).extend(entries)
    found = None if output.input_alternatives is None else output.input_alternatives[index]
    if found is not None:
        pairs = zip(entries, _alternatives(found), strict=True)
        kept = req.input_logprobs.setdefault("input_alternatives", [])
        kept.extend(None if value is None else entry for value, entry in pairs)


def _input_logprobs(req: Req) -> dict[str, Any]:
    """All that was kept, to be sent with the first token."""
    if not req.message.return_logprob or req.message.logprob_start_len < 0:
        return {}
    fields: dict[str, Any] = {"input_logprobs": [], **req.input_logprobs}
    req.input_logprobs = {}
    return fields


def _take_hidden_states(req: Req) -> FloatRows | None:
    """What passes gave since the last delta."""
    if not req.hidden_states:
        return None
    rows = np.concatenate(req.hidden_states)
    req.hidden_states = []
    return FloatRows(rows.shape[1], rows.astype("<f4").tobytes())


def _vector(req: Req) -> FloatRows | None:
    """The vector of a request that has all of it."""
    if req.message.pooling is None:
        return None
    assert req.pooled is not None, f"{req.rid}: ended without its vector"
    vector = req.pooled / req.prompt_len if req.message.pooling == "mean" else req.pooled
    return FloatRows(len(vector), vector.astype("<f4").tobytes())


def _processor_failure(message: str) -> FinishReason:
    param = "custom_logit_processor"
    return FinishReason(type="abort", message=f"{param} {message}", code=InvalidRequestError.code, param=param)


def _output_logprobs(output: StepOutput, index: int) -> dict[str, Any]:
    found = None if output.alternatives is None else output.alternatives[index]
    return {
        "output_logprobs": [float(output.logprobs[index])],
        "output_alternatives": None if found is None else _alternatives(found),
    }


def _alternatives(found: Alternatives) -> list[TokenAlternatives]:
    rows = zip(found.top_logprobs.tolist(), found.top_ids.tolist(), found.probe_logprobs.tolist(), strict=True)
    return [TokenAlternatives(list(zip(values, ids, strict=True)), probes) for values, ids, probes in rows]

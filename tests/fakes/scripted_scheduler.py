"""A scheduler without a model: what the prompt says is what it answers, one id a step.

The answer is the prompt's text after "say:", then the end of sequence; without one it is the whole prompt.  Prompts
with a word in capitals do something else: HANG gives nothing until aborted, FOREVER never ends by itself, SEED says the
seed of the request, CRASH ends the scheduler, DIE ends its process, STUCK never comes back from its step and with it
nothing else, CLUTCH does neither, and holds Python's lock meanwhile.  Of the tokens that might come instead of one, the
likeliest is the token itself and each further one has the next byte and a log probability that is lower by 1.  Of an
output with a constraint, brackets, quotes, colons and commas count as forced.
"""

import ctypes
import os
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from fakes.byte_tokenizer import EOS_ID, VOCABULARY
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    CacheEventsReply,
    CacheEventsRequest,
    CloseSessionRequest,
    ContinueRequest,
    ControlReply,
    DetokenizeStart,
    FinishReason,
    FlushCacheReply,
    FlushCacheRequest,
    GrammarReport,
    OpenSessionRequest,
    PauseRequest,
    ProfileRequest,
    SchedulerInput,
    SchedulerOutput,
    StatsReply,
    StatsRequest,
    TokenAlternatives,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.stop_search import StopSearch

_FORCED = frozenset(b'{}[]":,')


@dataclass
class ScriptedReq:
    message: TokenizedRequest
    prompt: str
    script: list[int]
    stops: StopSearch
    output: list[int] = field(default_factory=list)


class ScriptedScheduler:
    def __init__(self) -> None:
        self.running: dict[str, ScriptedReq] = {}
        self.accepted: list[SchedulerInput] = []
        self.num_checks = 0
        self.is_closed = False
        # FOREVER gives this many ids and then waits to be aborted; None: no end.
        self.hold_after: int | None = None
        self._pause = Event()

    def has_work(self) -> bool:
        return bool(self.running)

    def check(self) -> None:
        self.num_checks += 1

    def close(self) -> None:
        self.is_closed = True

    def accept(self, message: SchedulerInput) -> list[SchedulerOutput]:
        self.accepted.append(message)
        match message:
            case TokenizedRequest():
                return self._begin(message)
            case AbortRequest():
                rids = [rid for rid in self.running if message.abort_all or rid == message.rid]
                finish = FinishReason(type="abort", message="the request was aborted")
                deltas = [self._delta(self.running.pop(rid), [], finish) for rid in rids]
                return [*deltas, AbortReply(request_id=message.request_id, rids=rids)]
            case FlushCacheRequest():
                busy = bool(self.running)
                text = f"{len(self.running)} requests run" if busy else "flushed"
                return [FlushCacheReply(request_id=message.request_id, success=not busy, message=text)]
            case OpenSessionRequest() | CloseSessionRequest() | PauseRequest() | ContinueRequest() | ProfileRequest():
                return [ControlReply(request_id=message.request_id, message="done")]
            case CacheEventsRequest():
                return [CacheEventsReply(request_id=message.request_id, page=None)]
            case StatsRequest():
                stats: dict[str, Any] = {"num_running": len(self.running), "num_waiting": 0, "total_slots": 100}
                return [StatsReply(request_id=message.request_id, stats=stats)]

    def step(self) -> list[SchedulerOutput]:
        outputs: list[SchedulerOutput] = []
        for req in list(self.running.values()):
            outputs.extend(self._advance(req))
        if not outputs:
            self._pause.wait(0.001)
        return outputs

    def _begin(self, message: TokenizedRequest) -> list[SchedulerOutput]:
        ids = [token_id for token_id in message.input_ids if token_id not in VOCABULARY.special_ids]
        prompt = b"".join(VOCABULARY.token_bytes[token_id] for token_id in ids).decode(errors="replace")
        answer = prompt.partition("say:")[2] or prompt
        # A chat template goes on after the user's words.
        answer = answer.removesuffix("assistant\n")
        sampling = message.sampling
        if "SEED" in prompt:
            answer = str(sampling.sampling_seed)
        start = DetokenizeStart(
            rid=message.rid,
            stop=sampling.stop,
            stop_automata=message.stop_automata,
            no_stop_trim=sampling.no_stop_trim,
            skip_special_tokens=sampling.skip_special_tokens,
        )
        stops = StopSearch(sampling.stop, message.stop_automata)
        req = ScriptedReq(message, prompt, [*answer.encode(), EOS_ID], stops)
        if sampling.regex == "(":
            finish = FinishReason(type="abort", message="regex: unclosed group at 0", code="bad_grammar")
            return [start, self._delta(req, [], finish)]
        self.running[message.rid] = req
        return [start]

    def _advance(self, req: ScriptedReq) -> list[TokenDelta]:
        if "STUCK" in req.prompt:
            Event().wait(600)
        if "CLUTCH" in req.prompt:
            ctypes.PyDLL(None).sleep(600)
        if "DIE" in req.prompt:
            os._exit(7)
        if "CRASH" in req.prompt:
            raise RuntimeError("the script says so")
        if "HANG" in req.prompt or ("FOREVER" in req.prompt and len(req.output) == self.hold_after):
            return []
        sampling = req.message.sampling
        limit = sampling.max_new_tokens
        assert limit is not None, "the API resolves the limit"
        if limit == 0:
            return [self._end(req, [], FinishReason(type="length"))]
        token_id = ord("x") if "FOREVER" in req.prompt else req.script[len(req.output)]
        req.output.append(token_id)
        if (token_id == EOS_ID and not sampling.ignore_eos) or token_id in sampling.stop_token_ids:
            return [self._end(req, [token_id], FinishReason(type="stop", matched=token_id), num_trimmed_ids=1)]
        match = req.stops.feed(VOCABULARY.token_bytes[token_id])
        if match is not None:
            return [self._end(req, [token_id], FinishReason(type="stop", matched=match.text, regex=match.regex))]
        if len(req.output) == limit:
            return [self._end(req, [token_id], FinishReason(type="length"))]
        return [self._delta(req, [token_id], None)]

    def _end(self, req: ScriptedReq, ids: list[int], finish: FinishReason, *, num_trimmed_ids: int = 0) -> TokenDelta:
        del self.running[req.message.rid]
        return self._delta(req, ids, finish, num_trimmed_ids=num_trimmed_ids)

    def _delta(
        self, req: ScriptedReq, ids: list[int], finish: FinishReason | None, *, num_trimmed_ids: int = 0
    ) -> TokenDelta:
        message = req.message
        is_first = len(req.output) == len(ids)
        start = message.logprob_start_len
        scored = range(start, len(message.input_ids)) if is_first and start >= 0 else ()
        return TokenDelta(
            rid=message.rid,
            new_ids=ids,
            finish=finish,
            num_trimmed_ids=num_trimmed_ids,
            prompt_tokens=len(message.input_ids),
            cached_tokens=3,
            grammar=_grammar_report(message.sampling),
            num_forced_ids=sum(token_id in _FORCED for token_id in ids) if message.sampling.grammar_kind else 0,
            output_logprobs=[-0.5] * len(ids) if message.return_logprob else None,
            input_logprobs=[-float(position) if position else None for position in scored] or None,
            output_alternatives=[alternatives(message, token_id, -0.5) for token_id in ids],
            input_alternatives=[
                alternatives(message, message.input_ids[position], -float(position)) if position else None
                for position in scored
            ],
        )


def alternatives(message: TokenizedRequest, token_id: int, logprob: float) -> TokenAlternatives:
    top = [(logprob - step, (token_id + step) % EOS_ID) for step in range(message.top_logprobs_num)]
    return TokenAlternatives(top, [-float(probe) for probe in message.token_ids_logprob])


def _grammar_report(sampling: SamplingParams) -> GrammarReport | None:
    relaxed = [("#/x", "is not enforced")] if sampling.json_schema_lenient else None
    return GrammarReport(0.25, "fsm", relaxed) if sampling.grammar_kind else None

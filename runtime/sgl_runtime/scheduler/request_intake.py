"""RequestIntake: messages of the API to Reqs."""

import itertools
from dataclasses import dataclass

import numpy as np

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.ipc.messages import DetokenizeStart, FinishReason, TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import MAX_SEED
from sgl_runtime.scheduler.logit_rules import logit_rules
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.sessions import Sessions


@dataclass(frozen=True)
class Intake:
    """What came of a message.

    Attributes:
        req: The request; None where it was refused.
        superseded: Live requests that it ends.
        outputs: For the detokenizer.
    """

    req: Req | None
    superseded: list[Req]
    outputs: list[DetokenizeStart | TokenDelta]


class RequestIntake:
    """Gives each request its seed, its place in the order of arrival and its rules, and a turn of a session its prompt.

    Args:
        sessions: Open sessions.
        eos_ids: Ids that end an output.
        random_seed: Seeds the requests that bring no seed; None for fresh ones.
    """

    def __init__(self, sessions: Sessions, *, eos_ids: frozenset[int], random_seed: int | None) -> None:
        self.sessions = sessions
        self._eos_ids = eos_ids
        self._seeds = np.random.default_rng(random_seed)
        self._arrivals = itertools.count()

    def take(self, message: TokenizedRequest) -> Intake:
        """Make a request of a message."""
        outputs: list[DetokenizeStart | TokenDelta] = [_start(message)]
        if message.session is None:
            return Intake(self._req(message), [], outputs)
        try:
            joined = self.sessions.join(message)
        except SglRuntimeError as error:
            reason = FinishReason(type="abort", message=error.message, code=error.code, param=error.param)
            return Intake(None, [], [*outputs, TokenDelta(rid=message.rid, new_ids=[], finish=reason)])
        req = self._req(joined.message)
        self.sessions.attach(req)
        prompt = TokenDelta(rid=req.rid, new_ids=[], prompt_ids=joined.message.input_ids)
        return Intake(req, joined.superseded, [*outputs, prompt])

    def _req(self, message: TokenizedRequest) -> Req:
        seed = message.sampling.sampling_seed
        return Req(
            message,
            seed=int(self._seeds.integers(MAX_SEED)) if seed is None else seed,
            arrival=next(self._arrivals),
            logit_rules=logit_rules(message.sampling, message.input_ids, end_ids=self._eos_ids),
        )


def _start(message: TokenizedRequest) -> DetokenizeStart:
    return DetokenizeStart(
        rid=message.rid,
        stop=message.sampling.stop,
        stop_automata=message.stop_automata,
        no_stop_trim=message.sampling.no_stop_trim,
        skip_special_tokens=message.sampling.skip_special_tokens,
    )

"""GrammarQueue: requests whose grammar is being compiled, and the masks of those that run."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import GrammarError, SglRuntimeError
from sgl_runtime.executor.base import DeviceGrammars
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.forced_tokens import ForcedTokens
from sgl_runtime.grammar.fsm_backend import FsmState
from sgl_runtime.grammar.grammar_compiler import CompiledGrammar, GrammarCompiler
from sgl_runtime.ipc.messages import FinishReason, GrammarReport
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.req import Req

NO_TOKEN = FinishReason(
    type="abort", message="no token of this model can continue the constrained output", code="bad_grammar"
)

NOTHING_LEFT = FinishReason(
    type="abort",
    message="no token that can continue the constrained output is left to draw:"
    " min_new_tokens with stop_token_ids, or a custom logit processor, forbids all of them",
    code="bad_grammar",
)

MAX_JUMPING = 16
"""Requests that decode together up to which forced text is appended without passes where the device makes masks.

With more of them, one captured pass for all costs less than one that computes the forced text of some.
"""


def grammar_spec(sampling: SamplingParams) -> GrammarSpec | None:
    """The constraint that a request asks for."""
    kind = sampling.grammar_kind
    if kind is None:
        return None
    texts = {
        "choices": json.dumps(sampling.choices),
        "regex": sampling.regex,
        "json_schema": sampling.json_schema,
        "ebnf": sampling.ebnf,
        "structural_tag": sampling.structural_tag,
    }
    text = texts[kind]
    assert text is not None
    return GrammarSpec(kind, text, sampling.json_schema_lenient)


class GrammarQueue:
    """Compiles off the loop, and makes the token masks of a pass.

    Args:
        compiler: Shared compiler with its cache.
        eos_ids: Ids that end an output.
        num_mask_words: Words of a token mask row.
        forced: Knows the tokens of forced text; None: masks alone decide.
        jump_forward: Whether forced tokens are appended without a pass for each.
        device: Makes masks on the device; None: the host makes all.

    Attributes:
        mask_seconds: Time spent on masks and on moving the cursors.
    """

    def __init__(
        self,
        compiler: GrammarCompiler,
        *,
        eos_ids: frozenset[int],
        num_mask_words: int,
        forced: ForcedTokens | None = None,
        jump_forward: bool = True,
        device: DeviceGrammars | None = None,
    ) -> None:
        self._compiler = compiler
        self._num_mask_words = num_mask_words
        self._forced = forced
        self._jump_forward = jump_forward
        self._device = device
        self._eos_ids = sorted(eos_ids)
        self._pending: dict[str, tuple[Req, Future[CompiledGrammar]]] = {}
        self.mask_seconds = 0.0

    def __len__(self) -> int:
        return len(self._pending)

    def reqs(self) -> list[Req]:
        """Requests that wait for their grammar."""
        return [req for req, _ in self._pending.values()]

    def submit(self, req: Req, spec: GrammarSpec) -> None:
        """Start to compile, or find in the cache."""
        req.start_compiling()
        self._pending[req.rid] = (req, self._compiler.submit(spec))

    def drop(self, req: Req) -> None:
        """Forget a request that was aborted."""
        del self._pending[req.rid]

    def take_ready(self, *, wait_s: float) -> tuple[list[Req], list[Req]]:
        """Requests whose grammar is there, and those whose grammar failed (their `failure` says why).

        Args:
            wait_s: How long to wait for the first, when none is ready.
        """
        if not self._pending:
            return [], []
        wait([future for _, future in self._pending.values()], timeout=wait_s, return_when=FIRST_COMPLETED)
        ready: list[Req] = []
        failed: list[Req] = []
        for req, future in list(self._pending.values()):
            if not future.done():
                continue
            self.drop(req)
            try:
                compiled = future.result()
            except SglRuntimeError as error:
                req.failure = _failure(error)
                failed.append(req)
                continue
            req.finish_compiling(compiled.grammar.new_state(), _report(req, compiled))
            self._bring_to_device(req)
            ready.append(req)
        return ready, failed

    def close(self) -> None:
        """Stop the compiler's threads."""
        self._compiler.close()

    def masks(self, reqs: Sequence[Req | None]) -> NDArray[np.int32] | None:
        """Token masks of a pass, (B, ceil(V / 32)) int32; None where no row is constrained.

        A request that no token can continue gets a `failure`, and a free row.

        Args:
            reqs: The request of each row; None where nothing is drawn.
        """
        if all(req is None or req.grammar is None or req.device_grammar is not None for req in reqs):
            return None
        begin = time.monotonic()
        masks = np.full((len(reqs), self._num_mask_words), -1, dtype=np.int32)
        for req, row in zip(reqs, masks, strict=True):
            if req is None or req.grammar is None or req.device_grammar is not None:
                continue
            forced = self._next_forced(req)
            req.is_forced = forced is not None
            if forced is not None:
                row[:] = 0
                row.view(np.uint32)[forced // 32] = np.uint32(1 << forced % 32)
                continue
            try:
                req.grammar.fill_mask(row)
            except GrammarError as error:
                row[:] = -1
                req.failure = _failure(error)
                continue
            if req.sampling.ignore_eos:
                for token_id in self._eos_ids:
                    row[token_id // 32] &= np.int32(~(1 << token_id % 32) if token_id % 32 < 31 else 0x7FFFFFFF)
            if not row.any():
                row[:] = -1
                req.failure = NO_TOKEN
        self.mask_seconds += time.monotonic() - begin
        return masks

    def token_to_append(self, req: Req, *, num_running: int) -> int | None:
        """The token that a request must go on with, if it is to be appended without a pass.

        Args:
            req: The request.
            num_running: How many decode together.
        """
        if self._device is not None and num_running > MAX_JUMPING:
            return None
        # A log probability that is wanted takes a pass.
        if not self._jump_forward or req.message.return_logprob or req.failure is not None:
            return None
        begin = time.monotonic()
        forced = self._next_forced(req)
        self.mask_seconds += time.monotonic() - begin
        return forced

    def _next_forced(self, req: Req) -> int | None:
        """The one token that a mask leaves, or would; the same whether or not it is appended without a pass."""
        if req.grammar is None or self._forced is None:
            return None
        return self._forced.next_token(req.grammar)

    def release(self, req: Req) -> None:
        """A request has ended."""
        if req.device_grammar is not None and self._device is not None:
            self._device.let_go(req.device_grammar)
            req.device_grammar = None

    def _bring_to_device(self, req: Req) -> None:
        """Let the device make the masks of a request, where all that its masks hold comes from the automaton."""
        if self._device is None or req.sampling.ignore_eos or not isinstance(req.grammar, FsmState):
            return
        req.device_grammar = self._device.hold(req.grammar.automaton)

    def forced_ids(self, reqs: Sequence[Req | None]) -> NDArray[np.int64] | None:
        """(B,) tokens that rows must take whose masks the device makes, -1 where it draws; None where it draws all.

        Args:
            reqs: The request of each row; None where nothing is drawn.
        """
        if self._forced is None or all(req is None or req.device_grammar is None for req in reqs):
            return None
        begin = time.monotonic()
        tokens: list[int | None] = [None] * len(reqs)
        for index, req in enumerate(reqs):
            if req is not None and req.device_grammar is not None:
                tokens[index] = self._next_forced(req)
                req.is_forced = tokens[index] is not None
        self.mask_seconds += time.monotonic() - begin
        if all(token is None for token in tokens):
            return None
        return np.array([-1 if token is None else token for token in tokens], dtype=np.int64)

    def advance(self, req: Req) -> None:
        """Move a request's cursor past its newest token."""
        if req.grammar is None or req.failure is not None:
            return
        begin = time.monotonic()
        try:
            accepted = req.grammar.advance(req.tokens.last)
        except GrammarError as error:
            # The request ends with the next pass.
            req.failure = _failure(error)
        else:
            if not accepted:
                # Something is drawn even where all that the mask holds has been forbidden.
                req.failure = NOTHING_LEFT
        self.mask_seconds += time.monotonic() - begin


def _report(req: Req, compiled: CompiledGrammar) -> GrammarReport:
    enforced = compiled.enforced
    relaxed = [(each.path, each.reason) for each in enforced.relaxed] if req.sampling.json_schema_lenient else None
    return GrammarReport(compiled.compile_seconds, enforced.backend, relaxed)


def _failure(error: SglRuntimeError) -> FinishReason:
    return FinishReason(type="abort", message=error.message, code=error.code)

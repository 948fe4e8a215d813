"""GrammarQueue: requests whose grammar is being compiled, and the masks of those that run."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import CompiledGrammar, GrammarCompiler
from sgl_runtime.ipc.messages import FinishReason
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.req import Req


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
    return GrammarSpec(kind, text)


class GrammarQueue:
    """Compiles off the loop, and makes the token masks of a pass.

    Args:
        compiler: Shared compiler with its cache.
        eos_ids: Ids that end an output.

    Attributes:
        mask_seconds: Time spent on masks and on moving the cursors.
    """

    def __init__(self, compiler: GrammarCompiler, *, eos_ids: frozenset[int]) -> None:
        self._compiler = compiler
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
                req.failure = FinishReason(type="abort", message=error.message, code=error.code)
                failed.append(req)
                continue
            req.finish_compiling(compiled.grammar.new_state(), seconds=compiled.compile_seconds)
            ready.append(req)
        return ready, failed

    def close(self) -> None:
        """Stop the compiler's threads."""
        self._compiler.close()

    def masks(self, reqs: Sequence[Req], num_words: int) -> NDArray[np.int32] | None:
        """Token masks of a pass, (B, ceil(V / 32)) int32; None where no row is constrained.

        A request that no token can continue gets a `failure`, and a free row.
        """
        if all(req.grammar is None for req in reqs):
            return None
        begin = time.monotonic()
        masks = np.full((len(reqs), num_words), -1, dtype=np.int32)
        for req, row in zip(reqs, masks, strict=True):
            if req.grammar is None or req.max_new_tokens == 0:
                continue
            req.grammar.fill_mask(row)
            if req.sampling.ignore_eos:
                for token_id in self._eos_ids:
                    row[token_id // 32] &= np.int32(~(1 << token_id % 32) if token_id % 32 < 31 else 0x7FFFFFFF)
            if not row.any():
                row[:] = -1
                req.failure = FinishReason(
                    type="abort",
                    message="no token of this model can continue the constrained output",
                    code="bad_grammar",
                )
        self.mask_seconds += time.monotonic() - begin
        return masks

    def advance(self, req: Req) -> None:
        """Move a request's cursor past its newest token."""
        if req.grammar is None or req.failure is not None:
            return
        begin = time.monotonic()
        accepted = req.grammar.advance(req.tokens.last)
        assert accepted, f"{req.rid}: token {req.tokens.last} was in the mask but the grammar refuses it"
        self.mask_seconds += time.monotonic() - begin

"""The grammar backend `llguidance`: a parser on the host, for EBNF and Lark, and for what is too large for us."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import (
    NOTHING_FORCED,
    EnforcedGrammar,
    ForcedText,
    GrammarSpec,
    GrammarVocabulary,
    RelaxedKeyword,
)
from sgl_runtime.grammar.json_schema.front_end import parse_schema
from sgl_runtime.grammar.json_schema.relaxing import places_of
from sgl_runtime.grammar.llguidance_grammar import LIMITS, check_matcher, lark_of, matcher_error, relaxed_keys

# Longer ones are tried in a worker process first: a long chain of rules overflows llguidance's stack.
_AT_ONCE_CHARS = 4096
# llguidance limits the number of its steps; what one takes grows with how ambiguous a grammar is.
_MAX_STEP_S = 0.5


@dataclass(frozen=True)
class _TokenRows:
    """Which tokens there are, as packed rows of bits like masks.

    Attributes:
        usable: Tokens that a constrained output may hold.
        eos: Tokens that end it.
        eos_ids: Their ids, those without a logit included.
    """

    usable: NDArray[np.int32]
    eos: NDArray[np.int32]
    eos_ids: frozenset[int]

    @classmethod
    def of(cls, vocabulary: GrammarVocabulary) -> "_TokenRows":
        usable = np.zeros(vocabulary.num_mask_words * 32, dtype=bool)
        usable[: len(vocabulary.token_bytes)] = [bool(data) for data in vocabulary.token_bytes[: vocabulary.size]]
        eos = np.zeros_like(usable)
        eos[[eos_id for eos_id in vocabulary.eos_ids if eos_id < vocabulary.size]] = True
        return cls(_packed(usable & ~eos), _packed(eos), vocabulary.eos_ids)

    def has(self, token_id: int) -> bool:
        """Whether a constrained output may hold a token."""
        return 0 <= token_id < 32 * len(self.usable) and bool(self.usable[token_id // 32] >> (token_id % 32) & 1)


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.int32]:
    return np.packbits(bits, bitorder="little").view(np.int32)


class LlguidanceBackend:
    """Implements `base.GrammarBackend`.

    Args:
        vocabulary: The tokens.
        config: How JSON is spelled.
        tools: Worker processes.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig, tools: BackendTools) -> None:
        self._config = config
        self._tools = tools
        self._tokenizer = _tokenizer(vocabulary)
        self._tokens = _TokenRows.of(vocabulary)

    def compile_at_once(self, spec: GrammarSpec) -> EnforcedGrammar | None:
        """See `base.GrammarBackend`."""
        return None if len(spec.text) > _AT_ONCE_CHARS else self.compile(spec, in_worker=False)

    def compile(self, spec: GrammarSpec, *, in_worker: bool) -> EnforcedGrammar:
        """See `base.GrammarBackend`."""
        if in_worker:
            facts, _ = self._tools.workers.run("llguidance", spec)
            lark = str(facts["lark"])
        else:
            lark = lark_of(spec, self._config)
        matcher = LLMatcher(self._tokenizer, lark, log_level=0, limits=LIMITS)
        check_matcher(matcher, spec.kind)
        relaxed: tuple[RelaxedKeyword, ...] = ()
        if spec.lenient:
            keys = relaxed_keys(matcher.get_grammar_warnings())
            places = places_of(parse_schema(spec.text), keys)
            relaxed = tuple(RelaxedKeyword(place, "is a keyword that llguidance does not enforce") for place in places)
        return EnforcedGrammar(LlguidanceGrammar(matcher, spec.kind, self._tokens), "llguidance", relaxed)


class LlguidanceGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        matcher: At the beginning.
        kind: What messages call the constraint.
        tokens: Which tokens there are.
    """

    def __init__(self, matcher: LLMatcher, kind: str, tokens: _TokenRows) -> None:
        self._matcher = matcher
        self._kind = kind
        self._tokens = tokens

    def new_state(self) -> "LlguidanceState":
        """A cursor at the beginning of the output."""
        return LlguidanceState(self._matcher.deep_copy(), self._kind, self._tokens)


class LlguidanceState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        matcher: Its own.
        kind: What messages call the constraint.
        tokens: Which tokens there are.
    """

    def __init__(self, matcher: LLMatcher, kind: str, tokens: _TokenRows) -> None:
        self._matcher = matcher
        self._kind = kind
        self._tokens = tokens
        self._row: NDArray[np.int32] | None = None
        self._failure: GrammarError | None = None

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        np.bitwise_or(self._mask(), self._tokens.eos if self.can_end() else 0, out=row)

    def advance(self, token_id: int) -> bool:
        """Move past a token, see `base.GrammarState.advance`."""
        if token_id in self._tokens.eos_ids:
            return self.can_end()
        if not self._tokens.has(token_id) or self._matcher.is_stopped():
            return False
        with self._limited_step():
            num_taken = self._matcher.try_consume_tokens([token_id])
        if num_taken == 1:
            self._row = None
        return num_taken == 1

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return bool(self._matcher.is_accepting())

    def forced_text(self) -> ForcedText:
        """Nothing that is known without a search."""
        return NOTHING_FORCED

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow; what passes a limit shows in the next mask."""
        if not self.can_end():
            return False
        try:
            return not self._mask().any()
        except GrammarError:
            return False

    def _mask(self) -> NDArray[np.int32]:
        """The tokens that may come, without those that end the output."""
        if self._failure is not None:
            raise self._failure
        if self._row is None:
            row = np.zeros_like(self._tokens.usable)
            if not self._matcher.is_stopped():
                with self._limited_step():
                    found = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
                row[: len(found)] = found[: len(row)]
            self._row = row & self._tokens.usable
        return self._row

    @contextmanager
    def _limited_step(self) -> Iterator[None]:
        """Run a step; once one has failed, or has held the other requests back, all that follow fail."""
        begin = time.thread_time()
        yield
        seconds = time.thread_time() - begin
        if self._matcher.is_error():
            self._failure = matcher_error(self._matcher, self._kind)
        elif seconds > _MAX_STEP_S:
            self._failure = GrammarError(
                f"{self._kind}: a step of llguidance took {seconds:.2f} seconds; at most {_MAX_STEP_S} are allowed:"
                " the grammar is too ambiguous"
            )
        if self._failure is not None:
            raise self._failure


class _Tokens:
    """The vocabulary as llguidance asks for it; it is never asked to tokenize, since nothing is forced."""

    def __init__(self, vocabulary: GrammarVocabulary, eos_ids: list[int]) -> None:
        self.tokens = [
            b"" if data is None or token_id in eos_ids else data
            for token_id, data in enumerate(vocabulary.token_bytes[: vocabulary.size])
        ]
        self.eos_token_id = eos_ids[0] if eos_ids else None
        self.bos_token_id = None
        self.special_token_ids: list[int] = []

    def __call__(self, text: bytes | str) -> list[int]:
        raise AssertionError("llguidance tokenizes although nothing is forced")


def _tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    eos_ids = sorted(token_id for token_id in vocabulary.eos_ids if token_id < vocabulary.size)
    # Without any, llguidance makes one up behind the others.
    size = vocabulary.size if eos_ids else vocabulary.size + 1
    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary, eos_ids)), n_vocab=size, eos_token=eos_ids or None)

"""The grammar backend `llguidance`: a parser on the host, for EBNF and Lark, and for what is too large for us."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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


class LlguidanceBackend:
    """Implements `base.GrammarBackend`.

    Args:
        vocabulary: The tokens.
        config: How JSON is spelled.
        tools: Worker processes.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig, tools: BackendTools) -> None:
        self._vocabulary = vocabulary
        self._config = config
        self._tools = tools
        self._tokenizer = _tokenizer(vocabulary)

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
        return EnforcedGrammar(LlguidanceGrammar(matcher, spec.kind, self._vocabulary), "llguidance", relaxed)


class LlguidanceGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        matcher: At the beginning.
        kind: What messages call the constraint.
        vocabulary: The tokens.
    """

    def __init__(self, matcher: LLMatcher, kind: str, vocabulary: GrammarVocabulary) -> None:
        self._matcher = matcher
        self._kind = kind
        self._vocabulary = vocabulary

    def new_state(self) -> "LlguidanceState":
        """A cursor at the beginning of the output."""
        return LlguidanceState(self._matcher.deep_copy(), self._kind, self._vocabulary)


class LlguidanceState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        matcher: Its own.
        kind: What messages call the constraint.
        vocabulary: The tokens.
    """

    def __init__(self, matcher: LLMatcher, kind: str, vocabulary: GrammarVocabulary) -> None:
        self._matcher = matcher
        self._kind = kind
        self._vocabulary = vocabulary
        self._row: NDArray[np.int32] | None = None

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        row[:] = self._mask()
        if self.can_end():
            for eos_id in self._eos_ids():
                row.view(np.uint32)[eos_id // 32] |= np.uint32(1 << (eos_id % 32))

    def advance(self, token_id: int) -> bool:
        """Move past a token, see `base.GrammarState.advance`."""
        if token_id in self._vocabulary.eos_ids:
            return self.can_end()
        tokens = self._vocabulary.token_bytes
        if not 0 <= token_id < len(tokens) or not tokens[token_id] or self._matcher.is_stopped():
            return False
        with self._limited_step():
            num_taken = self._matcher.try_consume_tokens([token_id])
        if num_taken == 1:
            self._row = None
            return True
        if self._matcher.is_error():
            self._row = None
            raise matcher_error(self._matcher, self._kind)
        return False

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return bool(self._matcher.is_accepting())

    def forced_text(self) -> ForcedText:
        """Nothing that is known without a search."""
        return NOTHING_FORCED

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow."""
        return self.can_end() and not self._mask().any()

    def _mask(self) -> NDArray[np.int32]:
        """The tokens that may come, without those that end the output."""
        if self._row is None:
            row = np.zeros(self._vocabulary.num_mask_words, dtype=np.int32)
            if self._matcher.is_error():
                raise matcher_error(self._matcher, self._kind)
            if not self._matcher.is_stopped():
                with self._limited_step():
                    found = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
                if self._matcher.is_error():
                    raise matcher_error(self._matcher, self._kind)
                row[: len(found)] = found[: len(row)]
                for eos_id in self._eos_ids():
                    row.view(np.uint32)[eos_id // 32] &= ~np.uint32(1 << (eos_id % 32))
            self._row = row
        return self._row

    @contextmanager
    def _limited_step(self) -> Iterator[None]:
        """Refuse to go on with a grammar whose steps hold the other requests back."""
        begin = time.thread_time()
        yield
        seconds = time.thread_time() - begin
        if seconds > _MAX_STEP_S:
            raise GrammarError(
                f"{self._kind}: a step of llguidance took {seconds:.2f} seconds; at most {_MAX_STEP_S} are allowed:"
                " the grammar is too ambiguous"
            )

    def _eos_ids(self) -> Sequence[int]:
        return [eos_id for eos_id in self._vocabulary.eos_ids if eos_id < self._vocabulary.size]


class _Tokens:
    """The vocabulary as llguidance asks for it; it is never asked to tokenize, since nothing is forced."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self.tokens = [
            b"" if data is None or token_id in vocabulary.eos_ids else data
            for token_id, data in enumerate(vocabulary.token_bytes[: vocabulary.size])
        ]
        self.eos_token_id = min(vocabulary.eos_ids, default=None)
        self.bos_token_id = None
        self.special_token_ids: list[int] = []

    def __call__(self, text: bytes | str) -> list[int]:
        raise AssertionError("llguidance tokenizes although nothing is forced")


def _tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    eos_ids = sorted(token_id for token_id in vocabulary.eos_ids if token_id < vocabulary.size)
    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary)), n_vocab=vocabulary.size, eos_token=eos_ids or None)

"""The grammar backend `outlines`: the index of outlines-core, for those who have the package and want its reading."""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import ConfigError, GrammarError
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import (
    NOTHING_FORCED,
    EnforcedGrammar,
    ForcedText,
    GrammarSpec,
    GrammarVocabulary,
    RelaxedKeyword,
)
from sgl_runtime.grammar.packed_arrays import Arrays


class OutlinesBackend:
    """Implements `base.GrammarBackend`.

    Args:
        vocabulary: The tokens.
        config: How JSON is spelled.
        tools: Worker processes, which build the indexes.

    Raises:
        ConfigError: the package outlines-core is not there.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig, tools: BackendTools) -> None:
        if find_spec("outlines_core") is None:
            raise ConfigError("grammar_backend is 'outlines', which needs a package: pip install outlines-core")
        self._vocabulary = vocabulary
        self._tools = tools

    def compile_at_once(self, spec: GrammarSpec) -> EnforcedGrammar | None:
        """Nothing is known to be over soon."""
        return None

    def compile(self, spec: GrammarSpec, *, in_worker: bool) -> EnforcedGrammar:
        """See `base.GrammarBackend`; always in a worker."""
        facts, arrays = self._tools.workers.run("outlines", spec)
        if not arrays["is_final"].any():
            raise GrammarError(f"no output that satisfies this {spec.kind} can be spelled with the model's vocabulary")
        relaxed = [RelaxedKeyword(place, "is a keyword that outlines does not enforce") for place in facts["relaxed"]]
        return EnforcedGrammar(OutlinesGrammar(arrays, self._vocabulary), "outlines", tuple(relaxed))


class OutlinesGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        arrays: The index, see `outlines_index`.
        vocabulary: The tokens.
    """

    def __init__(self, arrays: Arrays, vocabulary: GrammarVocabulary) -> None:
        self._ends = arrays["ends"]
        self._tokens = arrays["tokens"]
        self._targets = arrays["targets"]
        self._is_final = arrays["is_final"]
        self._eos_ids = [eos_id for eos_id in vocabulary.eos_ids if eos_id < vocabulary.size]
        self.eos_ids = vocabulary.eos_ids

    def new_state(self) -> "OutlinesState":
        """A cursor at the beginning of the output."""
        return OutlinesState(self)

    def fill_mask(self, state: int, row: NDArray[np.int32]) -> None:
        """Write the token mask of a state."""
        bits = np.zeros(len(row) * 32, dtype=bool)
        bits[self._allowed(state)] = True
        if self._is_final[state]:
            bits[self._eos_ids] = True
        row[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def next_state(self, state: int, token_id: int) -> int | None:
        """The state behind a token, None where it is not allowed."""
        allowed = self._allowed(state)
        at = int(np.searchsorted(allowed, token_id))
        if at == len(allowed) or allowed[at] != token_id:
            return None
        return int(self._targets[self._ends[state] - len(allowed) + at])

    def is_final(self, state: int) -> bool:
        """Whether the output may end at a state."""
        return bool(self._is_final[state])

    def has_next(self, state: int) -> bool:
        """Whether any token may follow a state."""
        return len(self._allowed(state)) > 0

    def _allowed(self, state: int) -> NDArray[np.int32]:
        begin = int(self._ends[state - 1]) if state else 0
        allowed: NDArray[np.int32] = self._tokens[begin : int(self._ends[state])]
        return allowed


class OutlinesState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        grammar: The constraint.
    """

    def __init__(self, grammar: OutlinesGrammar) -> None:
        self._grammar = grammar
        self._state = 0

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        self._grammar.fill_mask(self._state, row)

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when it is not allowed here."""
        if token_id in self._grammar.eos_ids:
            return self.can_end()
        state = self._grammar.next_state(self._state, token_id)
        if state is None:
            return False
        self._state = state
        return True

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return self._grammar.is_final(self._state)

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow."""
        return self.can_end() and not self._grammar.has_next(self._state)

    def forced_text(self) -> ForcedText:
        """Nothing: an index knows tokens, no text."""
        return NOTHING_FORCED

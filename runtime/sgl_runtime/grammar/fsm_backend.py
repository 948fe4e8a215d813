"""Grammars made of a ByteAutomaton: FsmGrammar, shared by requests, and FsmState, the cursor of one request."""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarVocabulary
from sgl_runtime.grammar.token_mask import TokenMaskCache


class FsmGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        automaton: What is allowed.
        automaton_id: Its number in the mask cache.
        vocabulary: The tokens.
        masks: Rows of visited states, shared by all grammars of a compiler.
    """

    def __init__(
        self, automaton: ByteAutomaton, *, automaton_id: int, vocabulary: GrammarVocabulary, masks: TokenMaskCache
    ) -> None:
        self.automaton = automaton
        self._automaton_id = automaton_id
        self._vocabulary = vocabulary
        self._masks = masks
        self._eos_ids = [token_id for token_id in vocabulary.eos_ids if token_id < vocabulary.size]

    def new_state(self) -> "FsmState":
        """A cursor at the beginning of the output."""
        return FsmState(self)

    def fill_mask(self, state: int, row: NDArray[np.int32]) -> None:
        """Write the token mask of an automaton state, see `base.GrammarState.fill_mask`."""
        row[:] = self._masks.row(self.automaton, self._automaton_id, state)
        if self.automaton.accepting[state]:
            for eos_id in self._eos_ids:
                row.view(np.uint32)[eos_id // 32] |= np.uint32(1 << (eos_id % 32))

    def is_eos(self, token_id: int) -> bool:
        """Whether a token ends the output."""
        return token_id in self._vocabulary.eos_ids

    def after_token(self, state: int, token_id: int) -> int:
        """The automaton state behind a token that is no end-of-sequence token, -1 if it is not allowed."""
        tokens = self._vocabulary.token_bytes
        data = tokens[token_id] if 0 <= token_id < len(tokens) else None
        return self.automaton.run(state, data) if data else -1


class FsmState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        grammar: The constraint.
    """

    def __init__(self, grammar: FsmGrammar) -> None:
        self._grammar = grammar
        self._state = 0

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        self._grammar.fill_mask(self._state, row)

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when it is not allowed here."""
        if self._grammar.is_eos(token_id):
            return self.can_end()
        after = self._grammar.after_token(self._state, token_id)
        if after < 0:
            return False
        self._state = after
        return True

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return bool(self._grammar.automaton.accepting[self._state])

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow."""
        return self._grammar.automaton.must_end(self._state)

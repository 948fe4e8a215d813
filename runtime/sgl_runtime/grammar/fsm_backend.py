"""Grammars made of a ByteAutomaton: FsmGrammar, shared by requests, and FsmState, the cursor of one request."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import DEAD, ByteAutomaton, Stack
from sgl_runtime.grammar.base import NOTHING_FORCED, ForcedText, GrammarVocabulary
from sgl_runtime.grammar.token_mask import TokenMaskCache, compute_mask

# Levels that hardly any output nests.
_USUAL_DEPTH = 16
_MAX_REMEMBERED = 4096
"""Places of which a grammar remembers what is forced there."""


class FsmGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        automaton: What is allowed.
        automaton_id: Its number in the mask cache.
        vocabulary: The tokens.
        masks: Rows of visited states, shared by all grammars of a compiler.
        max_depth: Most arrays, objects and strings that an output may nest, one in another.

    Raises:
        GrammarError: every output nests deeper than that.
    """

    def __init__(
        self,
        automaton: ByteAutomaton,
        *,
        automaton_id: int,
        vocabulary: GrammarVocabulary,
        masks: TokenMaskCache,
        max_depth: int,
    ) -> None:
        # No output has to go deeper than there are callees.
        num_callees = automaton.num_callees
        if num_callees > max_depth and automaton.needed_depth[0] > max_depth:
            raise GrammarError(
                f"every output nests {automaton.needed_depth[0]} levels deep; at most {max_depth} are allowed"
                " (max_grammar_depth)"
            )
        self._max_depth = max_depth
        self.automaton = automaton
        self._automaton_id = automaton_id
        self._vocabulary = vocabulary
        self._masks = masks
        self._eos_ids = [token_id for token_id in vocabulary.eos_ids if token_id < vocabulary.size]
        self._forced: dict[tuple[int, Stack], ForcedText] = {}
        # A token opens no more levels than it has bytes.
        self._surely_safe = max_depth - num_callees - len(masks.order.levels)
        if self._surely_safe < _USUAL_DEPTH:
            # Found here, where no other request waits for it.
            self._surely_safe = self._safe_depth

    def new_state(self) -> "FsmState":
        """A cursor at the beginning of the output."""
        return FsmState(self)

    def fill_mask(self, state: int, stack: Stack, row: NDArray[np.int32]) -> None:
        """Write the token mask of an automaton state, see `base.GrammarState.fill_mask`."""
        if self._is_near_limit(stack):
            row[:] = compute_mask(self.automaton, state, stack, self._masks.order, max_depth=self._max_depth)
        else:
            row[:] = self._masks.row(self.automaton, self._automaton_id, state, stack)
        if self.automaton.accepting[state]:
            for eos_id in self._eos_ids:
                row.view(np.uint32)[eos_id // 32] |= np.uint32(1 << (eos_id % 32))

    def _is_near_limit(self, stack: Stack) -> bool:
        """Whether the limit on the depth may matter."""
        return len(stack) > self._surely_safe and len(stack) > self._safe_depth

    @cached_property
    def _safe_depth(self) -> int:
        """The depth of a stack up to which no token can pass the limit; it takes a while to find.

        A token opens no more levels than it has bytes that open one, and no output has to go deeper than there are
        callees.
        """
        automaton = self.automaton
        most_opened = self._masks.order.most_of(automaton.opening_bytes)
        estimate = self._max_depth - automaton.num_callees - most_opened
        if estimate < self._max_depth // 2:
            estimate = self._max_depth - int(automaton.needed_depth.max()) - most_opened
        return estimate

    def forced_text(self, state: int, stack: Stack) -> ForcedText:
        """The bytes that must follow an automaton state; none near the limit on the depth, which masks know of."""
        if self._is_near_limit(stack):
            return NOTHING_FORCED
        # Asked for each row of a batch at each token, and rows pass the same places.
        known = self._forced.get((state, stack))
        if known is None:
            if len(self._forced) >= _MAX_REMEMBERED:
                self._forced.clear()
            known = self._forced[state, stack] = ForcedText(*self.automaton.forced_text(state, stack))
        return known

    def is_eos(self, token_id: int) -> bool:
        """Whether a token ends the output."""
        return token_id in self._vocabulary.eos_ids

    def after_token(self, state: int, stack: Stack, token_id: int) -> tuple[int, Stack]:
        """State and stack behind a token that is no end-of-sequence token; state DEAD if it is not allowed."""
        tokens = self._vocabulary.token_bytes
        data = tokens[token_id] if 0 <= token_id < len(tokens) else None
        return self.automaton.run(state, stack, data) if data else (DEAD, ())


class FsmState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        grammar: The constraint.
    """

    def __init__(self, grammar: FsmGrammar) -> None:
        self._grammar = grammar
        self._state = 0
        self._stack: Stack = ()

    @property
    def automaton(self) -> ByteAutomaton:
        """The constraint."""
        return self._grammar.automaton

    @property
    def place(self) -> tuple[int, Stack]:
        """State and stack in it."""
        return self._state, self._stack

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        self._grammar.fill_mask(self._state, self._stack, row)

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when it is not allowed here."""
        if self._grammar.is_eos(token_id):
            return self.can_end()
        state, stack = self._grammar.after_token(self._state, self._stack, token_id)
        if state == DEAD:
            return False
        self._state, self._stack = state, stack
        return True

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return bool(self._grammar.automaton.accepting[self._state])

    def forced_text(self) -> ForcedText:
        """The bytes that must come next."""
        return self._grammar.forced_text(self._state, self._stack)

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow."""
        return self._grammar.automaton.must_end(self._state)

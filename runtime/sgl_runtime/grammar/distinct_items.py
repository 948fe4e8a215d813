"""Grammars with arrays whose items must differ: an automaton, and a look at what stands in these arrays.

The automaton's masks allow any items.  What would repeat one is taken out of them: tokens that may complete an item are
tried, and those after which the repeated item is all that can come.  Few have to be tried: within a string those that
close it as a string that came before, and between values those that there are.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import DEAD, ByteAutomaton, Stack
from sgl_runtime.grammar.base import NOTHING_FORCED, ForcedText, GrammarVocabulary
from sgl_runtime.grammar.fsm_backend import FsmGrammar
from sgl_runtime.grammar.item_tracker import ENDING, ItemTracker, OpenArray

_IDS = NDArray[np.int32]

_ESCAPE = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT_ESCAPES = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))
_QUOTE = re.compile(rb'(?:[^"\\]|\\.)*?"', re.DOTALL)
# What may complete an item outside of strings, or must lead to one that came before.
_ENDS_VALUE = re.compile(rb"[\]},\s]|^(?:n|u|l|t|r|f|a|s|e)+$")

MAX_FORESEEN = 64
"""Strings that came before up to which it is foreseen that one of them is all that can come."""


class DistinctTokens:
    """The tokens of a vocabulary by what they may complete.

    Args:
        vocabulary: The tokens.

    Attributes:
        plain: Tokens without quotes and backslashes.
        closing: Tokens that close a string, by what they put in front of the quote.
        opening: Tokens that open a string, by what they put behind the quote, up to the next one.
        odd: Tokens with quotes of which one of these cannot be said.
        quoted: All tokens with quotes.
        ending: Tokens that may complete an item where no string is being written, in front of any quote.
        several: Tokens that may complete two items.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self.plain: dict[bytes, int] = {}
        closing: dict[bytes, list[int]] = defaultdict(list)
        opening: dict[bytes, list[int]] = defaultdict(list)
        odd, quoted, ending, several = ([] for _ in range(4))
        for token_id, data in enumerate(vocabulary.token_bytes[: vocabulary.size]):
            if not data or token_id in vocabulary.eos_ids:
                continue
            if b"," in data.strip(b" ,\t\r\n"):
                several.append(token_id)
            if _ENDS_VALUE.search(data.partition(b'"')[0]):
                ending.append(token_id)
            if b'"' not in data:
                if b"\\" not in data:
                    self.plain[data] = token_id
                continue
            quoted.append(token_id)
            for found, begin in ((closing, 0), (opening, data.index(b'"') + 1)):
                closed = _QUOTE.match(data, begin)
                if closed is None and found is closing:
                    continue
                content = unescaped(data[begin : closed.end() - 1] if closed else data[begin:])
                if content is None:
                    odd.append(token_id)
                else:
                    found[content].append(token_id)
        self.closing, self.opening = (
            {content: np.array(ids, dtype=np.int32) for content, ids in found.items()} for found in (closing, opening)
        )
        self.odd, self.quoted, self.ending, self.several = (
            np.array(ids, dtype=np.int32) for ids in (odd, quoted, ending, several)
        )


class DistinctGrammar:
    """A compiled constraint; implements `base.Grammar`.

    Args:
        fsm: The automaton's, which allows any items.
        vocabulary: The tokens.
        tokens: The same, by what they may complete.
    """

    def __init__(self, fsm: FsmGrammar, vocabulary: GrammarVocabulary, tokens: DistinctTokens) -> None:
        self.fsm = fsm
        self.vocabulary = vocabulary
        self.tokens = tokens

    def new_state(self) -> "DistinctState":
        """A cursor at the beginning of the output."""
        return DistinctState(self)


class DistinctState:
    """Where one request stands; implements `base.GrammarState`.

    Args:
        grammar: The constraint.
    """

    def __init__(self, grammar: DistinctGrammar) -> None:
        self._grammar = grammar
        self._state = 0
        self._stack: Stack = ()
        self._tracker = ItemTracker()

    @property
    def _automaton(self) -> ByteAutomaton:
        return self._grammar.fsm.automaton

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state, see `base.GrammarState.fill_mask`."""
        self._grammar.fsm.fill_mask(self._state, self._stack, row)
        words = row.view(np.uint32)
        for ids in self._suspects():
            for token_id in ids[(words[ids >> 5] >> (ids & 31).astype(np.uint32) & 1) != 0].tolist():
                if not self._may_come(token_id):
                    words[token_id >> 5] &= ~np.uint32(1 << (token_id & 31))

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when it is not allowed here."""
        if self._grammar.fsm.is_eos(token_id):
            return self.can_end()
        tokens = self._grammar.vocabulary.token_bytes
        data = tokens[token_id] if 0 <= token_id < len(tokens) else None
        if not data or self._automaton.run(self._state, self._stack, data, self._tracker.trial())[0] == DEAD:
            return False
        self._state, self._stack = self._automaton.run(self._state, self._stack, data, self._tracker)
        return True

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""
        return bool(self._automaton.accepting[self._state])

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow."""
        return self._automaton.must_end(self._state)

    def forced_text(self) -> ForcedText:
        """The bytes that must come next; none inside of arrays whose items are compared."""
        forced = self._grammar.fsm.forced_text(self._state, self._stack)
        trial = self._tracker.trial()
        if trial.arrays or self._automaton.run(self._state, self._stack, forced.data, trial)[0] == DEAD or trial.arrays:
            return NOTHING_FORCED
        return forced

    def _suspects(self) -> Iterator[_IDS]:
        """The tokens that may complete an item that came before, or after which only such an item can come."""
        tokens, arrays = self._grammar.tokens, self._tracker.arrays
        yield tokens.several
        if not any(each.keys for each in arrays):
            return
        literals = set().union(*(each.literals for each in arrays))
        if not arrays[-1].in_string:
            yield tokens.ending
            yield tokens.odd
            for begin in _foreseen(literals) & tokens.opening.keys():
                yield tokens.opening[begin]
            return
        begun = unescaped(bytes(arrays[-1].item[arrays[-1].string_begin :]))
        if begun is None:
            yield tokens.quoted
            return
        rests = {literal[len(begun) :] for literal in literals if literal.startswith(begun)}
        if rests:
            yield tokens.odd
        for rest in rests & tokens.closing.keys():
            yield tokens.closing[rest]
        foreseen = _foreseen(rests) & tokens.plain.keys()
        yield np.array([tokens.plain[begin] for begin in foreseen], dtype=np.int32)

    def _may_come(self, token_id: int) -> bool:
        """Whether something else than an item that came before can come behind a token that the automaton allows."""
        data, trial = self._grammar.vocabulary.token_bytes[token_id], self._tracker.trial()
        assert data is not None, "a mask holds tokens with bytes"
        state, stack = self._automaton.run(self._state, self._stack, data, trial)
        if state == DEAD:
            return False
        if not trial.arrays:
            return True
        forced, _ = self._automaton.forced_text(state, stack)
        state, _ = self._automaton.run(state, stack, forced, trial)
        return state != DEAD and not any(self._repeats_bare(each, state) for each in trial.arrays[-1:])

    def _repeats_bare(self, array: OpenArray, state: int) -> bool:
        """Whether a number or a word that came before is being written, and nothing can be added to it."""
        if not array.writes_bare:
            return False
        automaton = self._automaton
        following = np.flatnonzero((automaton.table[state] != DEAD)[automaton.byte_classes])
        return all(byte in ENDING for byte in following.tolist()) and array.repeats_bare()


def _foreseen(literals: set[bytes]) -> set[bytes]:
    """What one of some strings may begin with, and all of them."""
    if len(literals) > MAX_FORESEEN:
        return literals
    return {literal[:length] for literal in literals for length in range(len(literal) + 1)}


def unescaped(text: bytes) -> bytes | None:
    """What a part of a JSON string means, in UTF-8; None where it ends within an escape, or a pair of surrogates."""
    if b"\\" not in text:
        return text
    parts: list[bytes] = []
    place = 0
    while (found := text.find(b"\\", place)) >= 0:
        parts.append(text[place:found])
        escape = _ESCAPE.match(text, found)
        if escape is None:
            return None
        place = escape.end()
        if escape[2]:
            parts.append(bytes([_SHORT_ESCAPES[escape[2][0]]]))
            continue
        unit = int(escape[1], 16)
        if 0xD800 <= unit < 0xE000:
            low = _ESCAPE.match(text, place)
            if low is None or not low[1] or unit >= 0xDC00:
                return None
            place = low.end()
            unit = 0x10000 + (unit - 0xD800 << 10) + (int(low[1], 16) - 0xDC00)
        parts.append(chr(unit).encode("utf-8", "surrogatepass"))
    parts.append(text[place:])
    return b"".join(parts)

"""Layout: a value graph written out as states and edges over bytes."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import DEAD
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.callees import Callee, CalleeState, Transition
from sgl_runtime.grammar.json_schema.key_layout import KeyLayout
from sgl_runtime.grammar.json_schema.kinds import ARRAY, KINDS, NUM_WORDS
from sgl_runtime.grammar.json_schema.object_rules import KeyClass
from sgl_runtime.grammar.json_schema.policy import GAP_LEVEL, Whitespace, WhitespacePolicy
from sgl_runtime.grammar.json_schema.questions import Question
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.string_layout import StringLayout
from sgl_runtime.grammar.json_schema.value_graph import ValueGraph

_QUOTE, _COMMA, _COLON = b'",:'
_WORDS = [kind.encode() for kind in KINDS[:NUM_WORDS]]
_START_LEVEL = GAP_LEVEL + 1
# Stands for the place behind the opening bracket, where others stand for one behind an item, by the callee's state.
_AT_START = -1
Returns = tuple[int, ...]
"""States behind a value by label, DEAD for labels that may not come."""


class Layout:
    """Writes values into an automaton.

    Args:
        builder: Gets the states.
        graph: What the values are.
        scalars: Automata of keys.
        budget: Limits them.
        whitespace: Where white space may stand.
    """

    def __init__(
        self,
        builder: AutomatonBuilder,
        graph: ValueGraph,
        scalars: Scalars,
        budget: Budget,
        *,
        whitespace: Whitespace,
    ) -> None:
        self._builder = builder
        self._graph = graph
        self._policy = WhitespacePolicy(builder, whitespace)
        self._strings = StringLayout(builder, scalars, budget)
        self._keys = KeyLayout(builder, self._strings)
        self._values: dict[tuple[Question, Returns], int] = {}
        self._entries: dict[tuple[Question, Returns], int] = {}
        # Keys, and the same, by transition, which states of a callee share.
        self._entries_of: dict[Transition, tuple[KeyClass, int]] = {}
        self._words: dict[tuple[bytes, int], int] = {}
        # The states of numbers at which they may end, by their labels.
        self._number_ends: dict[ByteFragment, list[tuple[int, NDArray[np.int64]]]] = {}
        self._starts: dict[int, int] = {}
        self._behind: dict[tuple[int, int], int] = {}
        self._pending: deque[tuple[int, int]] = deque()

    def value(self, question: Question, returns: Returns) -> int:
        """The state from which the values with an answer lead to the states of their labels.

        `finish` has to be called after the last value.
        """
        known = self._values.get((question, returns))
        if known is not None:
            return known
        state = self._values[question, returns] = self._builder.new_state()
        answers = self._graph.answers(question)
        for word, label in zip(_WORDS, answers.words, strict=True):
            if label is not None and returns[label] != DEAD:
                self._builder.add_edge(state, word[0], self._word(word[1:], returns[label]))
        if answers.number is not None:
            self._add_number(state, answers.number, returns)
        if answers.string is not None:
            self._builder.add_push(state, _QUOTE, self._strings.embedded(answers.string), returns)
        if answers.counted is not None:
            self._builder.add_push(state, _QUOTE, self._strings.counted(answers.counted), returns)
        for number in answers.callees:
            callee = self._graph.callees[number]
            if callee.states[0].labels:
                self._builder.add_push(state, b"[{"[callee.kind - ARRAY], self._start(number), returns)
        return state

    def finish(self) -> None:
        """Write out all callees that values refer to."""
        while self._pending:
            number, index = self._pending.popleft()
            callee = self._graph.callees[number]
            if index == _AT_START:
                self._open(number, callee, self._starts[number])
            else:
                self._fill(number, callee, callee.states[index], self._behind[number, index])

    def _word(self, rest: bytes, target: int) -> int:
        known = self._words.get((rest, target))
        if known is None:
            known = self._words[rest, target] = self._builder.text_before(rest, target)
        return known

    def _add_number(self, state: int, fragment: ByteFragment, returns: Returns) -> None:
        first = self._builder.embed(fragment)
        self._builder.merge(state, first)
        ends = self._number_ends.get(fragment)
        if ends is None:
            labels = fragment.label_set
            ends = self._number_ends[fragment] = [(label, np.flatnonzero(fragment.labels == label)) for label in labels]
        for label, offsets in ends:
            if returns[label] != DEAD:
                self._builder.merge_all(first, offsets, returns[label])

    def _start(self, number: int) -> int:
        """The state behind the opening bracket of a callee."""
        known = self._starts.get(number)
        if known is None:
            known = self._starts[number] = self._builder.new_state()
            # Written later: values may be nested as deep as a schema is long.
            self._pending.append((number, _AT_START))
        return known

    def _state_behind(self, number: int, index: int) -> int:
        """The state behind an item of a callee, where a comma or the closing bracket comes."""
        known = self._behind.get((number, index))
        if known is None:
            known = self._behind[number, index] = self._builder.new_state()
            self._pending.append((number, index))
        return known

    def _open(self, number: int, callee: Callee, state: int) -> None:
        if callee.has_distinct_items:
            self._builder.note_distinct(state)
        start = callee.states[0]
        if start.end_label is not None:
            self._builder.add_pop(state, _closing(callee), start.end_label)
        if start.transitions:
            first = self._item(number, callee, start) if callee.kind == ARRAY else self._key(number, start)
            self._builder.merge(state, self._policy.gap(first), level=_START_LEVEL)

    def _fill(self, number: int, callee: Callee, node: CalleeState, state: int) -> None:
        if node.end_label is not None:
            self._policy.add_close(state, _closing(callee), node.end_label)
        if node.transitions:
            following = self._item(number, callee, node) if callee.kind == ARRAY else self._key(number, node)
            self._builder.add_edge(state, _COMMA, self._policy.after_comma(following))

    def _returns(self, number: int, targets: list[int | None]) -> Returns:
        return tuple([DEAD if target is None else self._state_behind(number, target) for target in targets])

    def _item(self, number: int, callee: Callee, node: CalleeState) -> int:
        (transition,) = node.transitions
        return self.value(transition.question, self._returns(number, transition.targets))

    def _key(self, number: int, node: CalleeState) -> int:
        """The state where a key of an object begins."""
        callee = self._graph.callees[number]
        known = self._entries_of
        for transition in node.transitions:
            if transition not in known:
                assert transition.key is not None
                returns = self._returns(number, transition.targets)
                known[transition] = (transition.key, self._entry(transition.question, returns))
        assert callee.keys is not None
        return self._keys.start(callee.keys, [known[transition] for transition in node.transitions])

    def _entry(self, question: Question, returns: Returns) -> int:
        """The state behind a key, where the colon comes."""
        known = self._entries.get((question, returns))
        if known is None:
            known = self._entries[question, returns] = self._builder.new_state()
            self._builder.add_edge(known, _COLON, self._policy.after_colon(self.value(question, returns)))
        return known


def _closing(callee: Callee) -> int:
    return b"]}"[callee.kind - ARRAY]

"""StringLayout: strings written out as callees, which the opening quote calls and the closing one ends."""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import DEAD, CountingStates
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.char_strings import CharStrings
from sgl_runtime.grammar.json_schema.scalar_answers import CountedStrings
from sgl_runtime.grammar.json_schema.scalars import Scalars

_QUOTE = ord('"')


class StringLayout:
    """Writes strings into an automaton, each kind once.

    Args:
        builder: Gets the states.
        scalars: Automata of strings.
        budget: Limits them.
    """

    def __init__(self, builder: AutomatonBuilder, scalars: Scalars, budget: Budget) -> None:
        self._builder = builder
        self._scalars = scalars
        self._budget = budget
        self._embedded: dict[ByteFragment | CharStrings, int] = {}
        self._counted: dict[CountedStrings, int] = {}
        self._char_callees: NDArray[np.int32] | None = None

    def embedded(self, fragment: ByteFragment | CharStrings) -> int:
        """The state behind the opening quote of strings that a fragment spells."""
        known = self._embedded.get(fragment)
        if known is None and isinstance(fragment, CharStrings):
            known = self._embedded[fragment] = self._by_character(fragment)
        elif known is None and isinstance(fragment, ByteFragment):
            known = self._embedded[fragment] = self._builder.embed(fragment, key=fragment)
            for offset, label in enumerate(fragment.labels.tolist()):
                if label >= 0:
                    self._builder.add_pop(known + offset, _QUOTE, label)
        assert known is not None
        return known

    def _by_character(self, strings: CharStrings) -> int:
        """A state for each state over characters; what is inside a longer character is read by callees."""
        first = self._builder.new_states(len(strings.table))
        for kind, character in enumerate(strings.characters):
            (states,) = np.nonzero(strings.kinds == kind)
            targets = strings.table[states]
            targets = np.where(targets >= 0, targets + np.int32(first), np.int32(DEAD))
            heads = character.table[0]
            label_of = np.where(heads >= 0, character.labels[heads], DEAD)
            (whole,) = np.nonzero(label_of >= 0)
            behind = targets[:, label_of[whole]]
            self._builder.add_edges(np.repeat(first + states, len(whole)), np.tile(whole, len(states)), behind.ravel())
            (longer,) = np.nonzero((heads >= 0) & (label_of < 0))
            # Written out in any case: it tells apart the bytes that the edges above do.
            callees = self._inside_of(character)[heads[longer]]
            self._builder.add_pushes(first + states, longer, callees, targets)
        for label in np.unique(strings.labels[strings.labels >= 0]).tolist():
            (ends,) = np.nonzero(strings.labels == label)
            self._builder.add_pops(first + ends, np.full(len(ends), _QUOTE, dtype=np.int64), label)
        return first

    def _inside_of(self, character: ByteFragment) -> NDArray[np.int64]:
        """(S,) the states that read on inside a character and end with its label, by the states of its spelling."""
        is_inside = character.labels < 0
        numbers = np.where(is_inside, np.cumsum(is_inside) - 1, DEAD).astype(np.int32)
        rows = np.where(character.class_table >= 0, numbers[character.class_table], np.int32(DEAD))[is_inside]
        fragment = ByteFragment(rows, np.zeros(len(rows), dtype=np.int32), character.byte_classes)
        numbered: NDArray[np.int64] = numbers.astype(np.int64) + self._builder.embed(fragment)
        table = character.table
        label_of = np.where(table >= 0, character.labels[table], DEAD)
        # The start, which nothing leads to, pops nothing.
        label_of[0] = DEAD
        for label in np.unique(label_of[label_of >= 0]).tolist():
            states, data = np.nonzero(label_of == label)
            self._builder.add_pops(numbered[states], data.astype(np.int64), label)
        return numbered

    def other_keys(self) -> tuple[int, ByteFragment]:
        """The state behind the opening quote of a key of any text, label 0, and the fragment that spells it."""
        body = self._scalars.keys((), (), lambda name, truths: 0, self._budget)
        return self.embedded(body), body

    def counted(self, wanted: CountedStrings) -> int:
        """The state behind the opening quote of strings of some lengths.

        There is one state for each number of characters.  A character of several bytes is read by a callee, so that
        its inner states are there once and not for each number.
        """
        known = self._counted.get(wanted)
        if known is not None:
            return known
        count = wanted.least if wanted.most is None else wanted.most
        first = self._counted[wanted] = self._builder.new_states(count + 1)
        if count:
            self._builder.add_counting(first, count, self._body(0), self._characters())
        if wanted.most is None:
            body = self.embedded(self._body(wanted.label))
            self._builder.merge(first + count, body)
        else:
            self._builder.add_pop(first + count, _QUOTE, wanted.label)
        enough = np.arange(wanted.least, count, dtype=np.int64)
        self._builder.add_pops(first + enough, np.full(len(enough), _QUOTE, dtype=np.int64), wanted.label)
        self._builder.note(CountingStates(first, count + 1, wanted.least, wanted.most, wanted.label))
        return first

    def _body(self, label: int) -> ByteFragment:
        return self._scalars.any_strings(label, self._budget)

    def _characters(self) -> NDArray[np.int32]:
        """(256,) the callee that reads on behind the first byte of a longer character, DEAD for other bytes."""
        if self._char_callees is None:
            body = self._body(0)
            inner = np.where(body.class_table > 0, body.class_table, DEAD).astype(np.int32)
            table = body.table
            first = self._builder.embed(ByteFragment(inner, np.zeros(len(inner), dtype=np.int32), body.byte_classes))
            states, data = np.nonzero(table[1:] == 0)
            self._builder.add_pops(first + 1 + states.astype(np.int64), data.astype(np.int64), 0)
            self._char_callees = np.where(table[0] > 0, first + table[0], DEAD).astype(np.int32)
        return self._char_callees

"""Scalars: the automata of JSON strings, property names and numbers, by what is asked about them.

Called while a schema is compiled.  A question is a list of atoms and a function from their truth to a label, so that
negation, union, intersection and exclusive choice of atoms are all the same here.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, num_states_by_length
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.graph import Labels, Table
from sgl_runtime.grammar.json_schema.char_strings import MIN_STATES, CharStrings
from sgl_runtime.grammar.json_schema.formats import format_dfa
from sgl_runtime.grammar.json_schema.fragments import Kept, SizedCache
from sgl_runtime.grammar.json_schema.json_spelling import any_spelling, canonical, spellable_chars, spelled
from sgl_runtime.grammar.json_schema.number_scalars import number_fragment
from sgl_runtime.grammar.json_schema.numbers import NumberAtom
from sgl_runtime.grammar.json_schema.overlay import EMPTY, overlay
from sgl_runtime.grammar.json_schema.string_parts import FormatLanguage, Language, PatternLanguage, StringParts
from sgl_runtime.grammar.json_schema.strings import StringAtom, StringShape, StringValues
from sgl_runtime.grammar.json_schema.truth import FALSE, TRUE, Truth, TruthLabel, TruthLabels
from sgl_runtime.grammar.product import labelled_product
from sgl_runtime.grammar.regex import search_to_dfa
from sgl_runtime.grammar.regex_tree import Reader

_MAX_FRAGMENT_BYTES = 128 * 2**20
_MAX_AUTOMATON_BYTES = 64 * 2**20
_MAX_SHAPE_BYTES = 2**20
# A string whose length is shortened gets one of so many parts of all states.
_SHARE_OF_STRING = 2
MAX_COUNTED = 16_384
"""Strings whose length is shortened have no more characters."""
# Strings are not shortened to fewer characters than these.
_MIN_MOST = 100

KeyLabel = Callable[[int, tuple[bool, ...]], int]
"""The label of a key by the index of the name that it is (-1 for another key) and the truth of each atom."""


class Scalars:
    """Compiles, and remembers what it compiled; used by all compiling threads.

    Args:
        usable_bytes: (256,) bool, the bytes that outputs can hold; nothing is spelled with others.
    """

    def __init__(self, usable_bytes: NDArray[np.bool_]) -> None:
        self._usable = usable_bytes
        self._usable_set = bytes(np.flatnonzero(usable_bytes).tolist())
        self._chars = spellable_chars(usable_bytes)
        self._fragments: SizedCache[ByteFragment] = SizedCache(_MAX_FRAGMENT_BYTES)
        self._strings: SizedCache[ByteFragment | CharStrings] = SizedCache(_MAX_FRAGMENT_BYTES)
        self._automata: SizedCache[CharDfa] = SizedCache(_MAX_AUTOMATON_BYTES)
        self._shapes: SizedCache[_KeptShape] = SizedCache(_MAX_SHAPE_BYTES)

    def strings(
        self, atoms: tuple[StringAtom, ...], label_of: TruthLabel, budget: Budget
    ) -> ByteFragment | CharStrings:
        """The text between the quotes of the strings that have a label.

        With atoms, strings are spelled as `json.dumps` with `ensure_ascii=False` does; without, in every way.

        Args:
            atoms: What is asked about a string.
            label_of: The label of a string by the truth of each atom, -1 for strings that are not wanted.
            budget: Limits of the compilation.

        Raises:
            GrammarError: a pattern is malformed, not supported or too large, or the budget does not suffice.
        """
        if not atoms:
            return self.any_strings(label_of(()), budget)
        labels = TruthLabels(len(atoms), label_of)
        key = None if labels.table is None else ("strings", atoms, labels.table, ())
        return self._remembered(self._strings, key, lambda: self._compile_strings(atoms, labels, budget))

    def shortened(self, shape: StringShape, budget: Budget) -> StringShape:
        """A shape that only strings of the given one have, with a `most` that is small enough for an automaton.

        It has none where no string of the pattern or format is longer, and is the same where it is small enough already
        or where not even short strings would do.
        """
        if shape.most is None:
            return shape
        try:
            automata = [self._automaton(each, budget) for each in _languages_of(shape)]
        except GrammarError:
            # What is wrong is said where it is enforced.
            return shape
        if all(each.num_states * (shape.most + 1) <= budget.full_states for each in automata):
            return shape
        key = (shape, budget.full_states)
        return self._shapes.get(key, lambda: _KeptShape(self._affordable(shape, automata, budget))).shape

    def _affordable(self, shape: StringShape, automata: list[CharDfa], budget: Budget) -> StringShape:
        assert shape.most is not None
        # More lengths than there may be states need not be looked at.
        longest = min(shape.most, budget.full_states)
        counts = [num_states_by_length(each, longest, budget) for each in automata]
        if not all(each[-1] for each in counts):
            return replace(shape, most=None)
        num_states = np.max(np.cumsum(counts, axis=1), axis=0)
        if longest == shape.most and num_states[-1] <= budget.full_states:
            return shape
        affordable = int(np.searchsorted(num_states, budget.full_states // _SHARE_OF_STRING, side="right")) - 1
        most = max(shape.least, min(affordable, MAX_COUNTED))
        return replace(shape, most=most) if _MIN_MOST <= most < shape.most else shape

    def any_strings(self, label: int, budget: Budget) -> ByteFragment:
        """The text between the quotes of all strings, in every spelling."""
        any_string = self._fragments.get("any spelling", lambda: any_spelling(self._usable, budget))
        return _relabelled(any_string, label)

    def keys(
        self, names: tuple[str, ...], atoms: tuple[StringAtom, ...], label_of: KeyLabel, budget: Budget
    ) -> ByteFragment:
        """The text between the quotes of the property names that have a label, spelled as `json.dumps` does.

        Args:
            names: Given names.
            atoms: What is asked about a name.
            label_of: The label of a name by its index in `names`, -1 for others, and by the truth of each atom.
            budget: Limits of the compilation.

        Raises:
            GrammarError: as for `strings`.
        """
        by_name = {name: TruthLabels(len(atoms), partial(label_of, index)) for index, name in enumerate(names)}
        return self._labelled(atoms, TruthLabels(len(atoms), partial(label_of, -1)), by_name, budget)

    def numbers(self, atoms: tuple[NumberAtom, ...], label_of: TruthLabel, budget: Budget) -> ByteFragment:
        """The JSON numbers that have a label, see `number_scalars` for how they are spelled.

        Args:
            atoms: What is asked about a number.
            label_of: The label of a number by the truth of each atom, -1 for numbers that are not wanted.
            budget: Limits of the compilation.

        Raises:
            GrammarError: a bound has too many digits, or the budget does not suffice.
        """
        labels = TruthLabels(len(atoms), label_of)
        key = None if labels.table is None else ("numbers", atoms, labels.table)
        return self._remembered(self._fragments, key, lambda: number_fragment(atoms, labels, self._usable, budget))

    def spellable(self, text: str) -> bool:
        """Whether the JSON spelling of a string consists of usable bytes."""
        return self.key_text(text) is not None

    def key_text(self, name: str) -> bytes | None:
        """The spelling of a property name behind its opening quote, with the closing one; None where it has none."""
        if not name.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in name):
            return None
        text = canonical(name)
        return None if text.translate(None, self._usable_set) else text + b'"'

    def _labelled(
        self,
        atoms: tuple[StringAtom, ...],
        labels: TruthLabels,
        by_name: Mapping[str, TruthLabels],
        budget: Budget,
    ) -> ByteFragment:
        """The strings with a label: given names have labels of their own, all others have `labels`."""
        key = None
        if labels.table is not None:
            key = ("keys", atoms, labels.table, tuple((name, each.table) for name, each in by_name.items()))
        return self._remembered(self._fragments, key, lambda: self._compile(atoms, labels, by_name, budget))

    def _compile(
        self,
        atoms: tuple[StringAtom, ...],
        labels: TruthLabels,
        by_name: Mapping[str, TruthLabels],
        budget: Budget,
    ) -> ByteFragment:
        others, labelled = self._read(atoms, labels, by_name, budget)
        return overlay(others.spelled(budget), labelled, budget)

    def _compile_strings(
        self, atoms: tuple[StringAtom, ...], labels: TruthLabels, budget: Budget
    ) -> ByteFragment | CharStrings:
        others, labelled = self._read(atoms, labels, {}, budget)
        strings = None
        if not labelled and len(others.table) >= MIN_STATES:
            strings = CharStrings.of(others.alphabet, others.table, others.labels, budget)
        return overlay(others.spelled(budget), labelled, budget) if strings is None else strings

    def _read(
        self,
        atoms: tuple[StringAtom, ...],
        labels: TruthLabels,
        by_name: Mapping[str, TruthLabels],
        budget: Budget,
    ) -> tuple["_Others", dict[bytes, int]]:
        """The strings that have no label by their text alone, and the labels of the spellings of the others."""
        shapes = [at for at, atom in enumerate(atoms) if isinstance(atom, StringShape)]
        everywhere = [labels, *by_name.values()]
        parts = StringParts(
            [atom for atom in atoms if isinstance(atom, StringShape)],
            [any(each.needs_falsehood(at) for each in everywhere) for at in shapes],
            partial(self._automaton, budget=budget),
        )

        def all_truths(truths: Sequence[Truth], text: str | None) -> tuple[Truth, ...]:
            known = dict(zip(shapes, truths, strict=True))
            return tuple(
                TRUE if isinstance(atom, StringValues) and text in atom.values else known.get(at, FALSE)
                for at, atom in enumerate(atoms)
            )

        texts = {value: labels for atom in atoms if isinstance(atom, StringValues) for value in atom.values}
        texts.update(by_name)
        labelled = {
            canonical(text): each.label(all_truths(parts.truths_of(text), text))
            for text, each in texts.items()
            if self.spellable(text)
        }
        alphabet, automata = parts.parts(self._chars, budget)
        table, found = labelled_product(
            automata, lambda marks: labels.label(all_truths(parts.truths(marks), None)), budget
        )
        return _Others(alphabet, table, found), labelled

    def _automaton(self, language: Language, budget: Budget) -> CharDfa:
        if isinstance(language, PatternLanguage):
            pattern, reader = language.pattern, language.reader
            return self._automata.get(language, lambda: search_to_dfa(pattern, budget, reader))
        name, wide = language.name, language.wide
        return self._automata.get(language, lambda: format_dfa(name, budget, wide=wide))

    def _remembered(self, cache: SizedCache[Kept], key: Hashable | None, make: Callable[[], Kept]) -> Kept:
        return make() if key is None else cache.get(key, make)


@dataclass(frozen=True)
class _KeptShape:
    """What a shape was shortened to."""

    shape: StringShape

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        return 500 + len(self.shape.pattern or "")


def _languages_of(shape: StringShape) -> list[Language]:
    """What a shape says besides lengths, read for everyone."""
    languages: list[Language] = []
    if shape.pattern is not None:
        languages.append(PatternLanguage(shape.pattern, Reader.ALL))
    if shape.format is not None:
        languages.append(FormatLanguage(shape.format, wide=False))
    return languages


@dataclass(frozen=True, eq=False)
class _Others:
    """A smallest automaton over characters.

    Attributes:
        alphabet: C classes of characters.
        table: (S, C) int32.
        labels: (S,) int32.
    """

    alphabet: Alphabet
    table: Table
    labels: Labels

    def spelled(self, budget: Budget) -> ByteFragment:
        """The spellings of its strings."""
        if (self.labels < 0).all():
            return EMPTY
        return spelled(self.alphabet, self.table, self.labels, budget)


def _relabelled(fragment: ByteFragment, label: int) -> ByteFragment:
    """A fragment with one label, with that label replaced."""
    if label < 0:
        return EMPTY
    if fragment.label_set == {label}:
        return fragment
    labels = np.where(fragment.labels < 0, fragment.labels, np.int32(label))
    return ByteFragment(fragment.class_table, labels, fragment.byte_classes)

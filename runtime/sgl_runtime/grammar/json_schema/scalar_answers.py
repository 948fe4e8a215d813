"""ScalarAnswers: the strings and numbers that have an answer to a question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget, BudgetError
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.char_strings import CharStrings
from sgl_runtime.grammar.json_schema.formula import Formula
from sgl_runtime.grammar.json_schema.kinds import NUMBER, STRING
from sgl_runtime.grammar.json_schema.questions import KindQuestion, Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.scalars import MAX_COUNTED, Scalars
from sgl_runtime.grammar.json_schema.strings import StringShape
from sgl_runtime.grammar.json_schema.truth import TruthLabel

_Labelled = TypeVar("_Labelled", bound=ByteFragment | CharStrings)


@dataclass(frozen=True, slots=True)
class CountedStrings:
    """Strings of some lengths.

    Attributes:
        least, most: Limits on the number of characters; no upper one when `most` is None.
        label: Their label.
    """

    least: int
    most: int | None
    label: int


class ScalarAnswers:
    """Finds strings and numbers.

    Args:
        reader: Knows the formulas, and where atoms were read.
        scalars: Automata of strings and numbers.
        budget: Limits them.
    """

    def __init__(self, reader: SchemaReader, scalars: Scalars, budget: Budget) -> None:
        self._formulas = reader.formulas
        self._reader = reader
        self._scalars = scalars
        self._budget = budget

    def numbers(self, question: KindQuestion) -> ByteFragment | None:
        """Numbers with their labels, None where there are none."""
        return self._scalar(question, NUMBER, self._scalars.numbers)

    def strings(self, question: KindQuestion) -> ByteFragment | CharStrings | None:
        """What stands between the quotes of strings, with their labels; None where there are none."""
        return self._scalar(question, STRING, self._scalars.strings)

    def _scalar(self, question: KindQuestion, kind: int, make: Callable[..., _Labelled]) -> _Labelled | None:
        formulas, labels = question
        if not labels:
            return None
        if kind == STRING and len(formulas) == len(labels) == 1 and labels[0][0][0]:
            formulas = (self._shortened(formulas[0]),)
        atoms = self._formulas.atoms_of(formulas)
        by_truths = dict(labels)
        is_plain = list(formulas) == atoms

        def label_of(truths: Truths) -> int:
            if is_plain:
                return by_truths.get(truths, -1)
            truth_of = dict(zip(atoms, truths, strict=True))
            found = tuple(self._formulas.holds(formula, truth_of.__getitem__) for formula in formulas)
            return by_truths.get(found, -1)

        fragment = self._made(make, atoms, label_of)
        return None if fragment.is_empty else fragment

    def _shortened(self, formula: Formula) -> Formula:
        """A formula that strings are to satisfy, with lengths for which automata suffice that are not too large."""
        parts = []
        for part in self._formulas.parts_of(formula):
            shape = self._formulas.payload(part)
            if part > 0 and isinstance(shape, StringShape) and (shape.pattern or shape.format) and shape.most:
                shorter = self._scalars.shortened(shape, self._budget)
                if shorter != shape and shape in self._reader.places:
                    self._reader.places.setdefault(shorter, self._reader.places[shape])
                part = self._formulas.atom(shorter)
            parts.append(part)
        return self._formulas.all_of(parts)

    def truths(self, kind: int, formulas: Sequence[Formula]) -> list[Truths]:
        """The truths that formulas about strings or numbers have for some value, and perhaps more."""
        atoms = self._formulas.atoms_of(formulas)
        found: dict[Truths, int] = {}

        def label_of(truths: Truths) -> int:
            truth_of = dict(zip(atoms, truths, strict=True))
            key = tuple(self._formulas.holds(formula, truth_of.__getitem__) for formula in formulas)
            return found.setdefault(key, len(found))

        self._made(self._scalars.strings if kind == STRING else self._scalars.numbers, atoms, label_of)
        return list(found)

    def _made(self, make: Callable[..., _Labelled], atoms: Sequence[Formula], label_of: TruthLabel) -> _Labelled:
        payloads: tuple[Any, ...] = tuple(self._formulas.payload(atom) for atom in atoms)
        try:
            return make(payloads, label_of, self._budget)
        except GrammarError as error:
            raise self._with_place(error, payloads) from None

    def _with_place(self, error: GrammarError, payloads: tuple[Any, ...]) -> GrammarError:
        """An error about one of some atoms, with the place where that was read if it can be found."""
        for payload in payloads:
            node = self._reader.places.get(payload) if isinstance(payload, StringShape) else None
            if node is not None and (len(payloads) == 1 or payload.pattern is not None):
                at_fault = next(name for name in ("pattern", "format", "maxLength", "minLength") if name in node.value)
                reason = f"cannot be enforced: {error.message}"
                if isinstance(error, BudgetError):
                    return BudgetError(f"json_schema: {node.child_pointer(at_fault)} {reason}")
                return node.unsupported(at_fault, reason)
        return error

    def counted(self, question: KindQuestion) -> CountedStrings | None:
        """Strings of which no more than the length is asked, None where more is."""
        formulas, labels = question
        if len(formulas) != 1 or len(labels) != 1 or not labels[0][0][0]:
            return None
        shape = self._formulas.payload(formulas[0]) if formulas[0] > 0 else None
        if not isinstance(shape, StringShape) or shape.pattern is not None or shape.format is not None:
            return None
        if shape.most is not None and shape.most < shape.least:
            return None
        most = None if shape.most is None else min(shape.most, max(MAX_COUNTED, shape.least))
        return CountedStrings(shape.least, most, labels[0][1])

"""Question: what an automaton has to find out while it reads one JSON value.

Where a schema is one conjunction the question is whether the value satisfies it.  Under anyOf, oneOf, not, if or
contains the place around the value needs the truth of several formulas at once; each combination of truths that lets
the output go on gets a label, and those that do not are cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.kinds import KINDS, ByKind, all_values, any_value, no_value

Truths = tuple[bool, ...]
Labels = tuple[tuple[Truths, int], ...]
KindQuestion = tuple[tuple[Formula, ...], Labels]
"""What is asked of values of one kind: formulas that are neither TRUE nor FALSE, and labels; none: no value will do."""
_YES: Labels = (((True,), 0),)


@dataclass(eq=False, slots=True)
class Question:
    """What is asked of a value; made by `Questions`, and never changed.

    Attributes:
        values: Formulas by kind.
        labels: The truths of these that may come, each with its label, sorted; several may share one.
    """

    values: tuple[ByKind, ...]
    labels: Labels

    def by_kind(self) -> list["KindQuestion"]:
        """What is asked of values of each kind."""
        if len(self.values) == len(self.labels) == 1:
            # By far the most are of this form: which kinds do not matter shows without further work.
            ((truth,), label) = self.labels[0]
            always: KindQuestion = ((), (((), label),))
            never: KindQuestion = ((), ())
            if not truth:
                always, never = never, always
            return [
                always if formula == TRUE else never if formula == FALSE else ((formula,), self.labels)
                for formula in self.values[0]
            ]
        return [_narrowed([value[kind] for value in self.values], self.labels) for kind in range(len(KINDS))]


class Questions:
    """The questions of one compilation; equal ones are the same object, since they are looked up often.

    Args:
        formulas: Where formulas are kept.

    Attributes:
        whatever: Any value at all, label 0.
    """

    def __init__(self, formulas: Formulas) -> None:
        self._formulas = formulas
        self._known: dict[tuple[tuple[ByKind, ...], Labels], Question] = {}
        self.whatever = self.ask((), (((), 0),))

    def ask(self, values: tuple[ByKind, ...], labels: Labels) -> Question:
        """The question with these formulas and labels, see `Question`."""
        known = self._known.get((values, labels))
        if known is None:
            known = self._known[values, labels] = Question(values, labels)
        return known

    def satisfies(self, value: ByKind) -> Question:
        """Whether a value satisfies a formula, label 0."""
        return self.ask((value,), _YES)

    def simplest(self, values: Sequence[ByKind], labels: dict[Truths, int], num_possible: int) -> Question:
        """The question with these answers.

        Args:
            values: Formulas by kind.
            labels: Label by truths.
            num_possible: How many truths there can be at all.
        """
        if len(set(labels.values())) > 1:
            return self.ask(tuple(values), tuple(sorted(labels.items())))
        if len(labels) == num_possible:
            return self.whatever
        parts = [
            all_values(
                self._formulas,
                [value if true else no_value(value) for value, true in zip(values, truths, strict=True)],
            )
            for truths in labels
        ]
        return self.satisfies(any_value(self._formulas, parts))


def _narrowed(formulas: Sequence[Formula], labels: Labels) -> KindQuestion:
    """A question about values of one kind, without the formulas that are TRUE or FALSE for all of these."""
    free = [index for index, formula in enumerate(formulas) if formula not in (TRUE, FALSE)]
    fitting: dict[Truths, int] = {}
    for truths, label in labels:
        if all(truths[index] == (formula == TRUE) for index, formula in enumerate(formulas) if index not in free):
            fitting[tuple(truths[index] for index in free)] = label
    return tuple(formulas[index] for index in free), tuple(sorted(fitting.items()))

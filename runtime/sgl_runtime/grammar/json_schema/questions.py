"""Question: what an automaton has to find out while it reads one JSON value.

Where a schema is one conjunction the question is whether the value satisfies it.  Under anyOf, oneOf, not, if or
contains the place around the value needs the truth of several formulas at once; each combination of truths that lets
the output go on gets a label, and those that do not are cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.kinds import (
    ByKind,
    all_values,
    any_value,
    no_value,
)

Truths = tuple[bool, ...]
Labels = tuple[tuple[Truths, int], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a value.

    Attributes:
        values: Formulas by kind.
        labels: The truths of these that may come, each with its label, sorted; several may share one.
    """

    values: tuple[ByKind, ...]
    labels: Labels
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Questions are looked up much more often than made.
        object.__setattr__(self, "_hash", hash((self.values, self.labels)))

    def __hash__(self) -> int:
        return self._hash


WHATEVER = Question((), (((), 0),))
"""Any value at all, label 0."""


def satisfies(value: ByKind) -> Question:
    """Whether a value satisfies a formula, label 0."""
    return Question((value,), (((True,), 0),))


def narrowed(formulas: Sequence[Formula], labels: Labels) -> tuple[tuple[Formula, ...], Labels]:
    """A question about values of one kind, without the formulas that are TRUE or FALSE for all of these."""
    if len(formulas) == 1:
        (formula,) = formulas
        if formula not in (TRUE, FALSE):
            return (formula,), labels
        return (), tuple(((), label) for (truth,), label in labels if truth == (formula == TRUE))
    free = [index for index, formula in enumerate(formulas) if formula not in (TRUE, FALSE)]
    fitting: dict[Truths, int] = {}
    for truths, label in labels:
        if all(truths[index] == (formula == TRUE) for index, formula in enumerate(formulas) if index not in free):
            fitting[tuple(truths[index] for index in free)] = label
    return tuple(formulas[index] for index in free), tuple(sorted(fitting.items()))


def simplest(formulas: Formulas, values: Sequence[ByKind], labels: dict[Truths, int], num_possible: int) -> Question:
    """The question with these answers.

    Args:
        formulas: Where formulas are kept.
        values: Formulas by kind.
        labels: Label by truths.
        num_possible: How many truths there can be at all.
    """
    if len(set(labels.values())) > 1:
        return Question(tuple(values), tuple(sorted(labels.items())))
    if len(labels) == num_possible:
        return WHATEVER
    parts = [
        all_values(formulas, [value if true else no_value(value) for value, true in zip(values, truths, strict=True)])
        for truths in labels
    ]
    return satisfies(any_value(formulas, parts))

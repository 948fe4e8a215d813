"""Step: how what must still hold of an array or object changes with an item or property.

The state inside a container is what its formulas have become; a step asks a question about the next value, and each
answer leads to a state.  (These are derivatives of the formulas with respect to an item.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sgl_runtime.grammar.json_schema.formula import Formula
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, NO_VALUE, ByKind
from sgl_runtime.grammar.json_schema.questions import Truths

Formulae = tuple[Formula, ...]


@dataclass(slots=True)
class Step:
    """One item or property.

    Attributes:
        values: What has to be found out about its value.
        after: What the container's formulas become, by the truths of `values`.
        compares_items: Whether items must differ that are compared while they are written: see `ItemTracker`.
    """

    values: Sequence[ByKind]
    after: Callable[[Truths], Formulae]
    compares_items: bool = False


class Asked:
    """The formulas that a step asks about, each once."""

    def __init__(self) -> None:
        self.values: list[ByKind] = []
        self._numbers: dict[ByKind, int] = {}

    def ask(self, value: ByKind) -> Callable[[Truths], bool]:
        """Ask about a formula; returns how to find its truth in the answer."""
        if value in (ANY_VALUE, NO_VALUE):
            return lambda truths: value == ANY_VALUE
        return itemgetter(self.number_of(value))

    def number_of(self, value: ByKind) -> int:
        """Ask about a formula that is true of some values and not of others; returns its place in the answer."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

"""Formulas: Boolean combinations of atoms as numbers, so that equal ones are one and negation is a sign.

A formula says whether a value satisfies something.  TRUE and FALSE are 1 and -1, `-f` is the negation of `f`, and the
one connective is "all of these"; "any of these" is the negation of "all of the negations".
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

Formula = int
TRUE: Formula = 1
FALSE: Formula = -1


class Formulas:
    """All formulas of one compilation, each once."""

    def __init__(self) -> None:
        # The node of formula i stands at i: an atom's payload, or the parts of an "all of these".
        self._atoms: list[Hashable] = [None, None]
        self._parts: list[tuple[Formula, ...] | None] = [None, None]
        self._known: dict[Hashable, Formula] = {}
        self._atom_sets: dict[Formula, frozenset[Formula]] = {TRUE: frozenset()}

    def atom(self, payload: Hashable) -> Formula:
        """The formula that holds where an atom does."""
        return self._number(payload, payload, None)

    def payload(self, formula: Formula) -> Hashable:
        """The payload of an atom's formula (its sign does not matter)."""
        return self._atoms[abs(formula)]

    def parts_of(self, formula: Formula) -> tuple[Formula, ...]:
        """The parts of which a formula says that all hold; itself, if it is no such formula, and none for TRUE."""
        if formula == TRUE:
            return ()
        return (self._parts[formula] if formula > 0 else None) or (formula,)

    def all_of(self, parts: Iterable[Formula]) -> Formula:
        """The formula that holds where every part does."""
        kept: dict[Formula, None] = {}
        for part in parts:
            if part == TRUE:
                continue
            if part == FALSE:
                return FALSE
            inner = self._parts[part] if part > 0 else None
            for each in inner or (part,):
                if -each in kept:
                    return FALSE
                kept[each] = None
        if len(kept) < 2:
            return next(iter(kept), TRUE)
        key = tuple(sorted(kept, key=abs))
        return self._number(key, None, key)

    def any_of(self, parts: Iterable[Formula]) -> Formula:
        """The formula that holds where some part does."""
        return -self.all_of([-part for part in parts])

    def exactly_one(self, parts: Sequence[Formula]) -> Formula:
        """The formula that holds where one part does and the others do not."""
        return self.any_of(
            self.all_of([part, *(-other for at, other in enumerate(parts) if at != index)])
            for index, part in enumerate(parts)
        )

    def atoms_of(self, formulas: Iterable[Formula]) -> list[Formula]:
        """The atoms of some formulas, positive, each once, in order of creation."""
        return sorted(self.atom_set(formulas))

    def atom_set(self, formulas: Iterable[Formula]) -> frozenset[Formula]:
        """The atoms of some formulas, positive."""
        sets = [self._atom_set(abs(formula)) for formula in formulas]
        return sets[0] if len(sets) == 1 else frozenset().union(*sets)

    def substitute(self, formula: Formula, values: Mapping[Formula, Formula]) -> Formula:
        """The formula with some atoms replaced.

        Args:
            formula: The formula.
            values: What replaces an atom, by the atom.
        """
        if not values:
            return formula
        value = self._replaced(abs(formula), values, dict(values))
        return value if formula > 0 else -value

    def holds(self, formula: Formula, truth_of: Callable[[Formula], bool]) -> bool:
        """Whether a formula holds, given the truth of its atoms."""
        return self._holds(abs(formula), truth_of, {TRUE: True}) == (formula > 0)

    def _holds(self, formula: Formula, truth_of: Callable[[Formula], bool], known: dict[Formula, bool]) -> bool:
        """Whether a positive formula holds; `known` holds what was found for others, as formulas share parts."""
        value = known.get(formula)
        if value is not None:
            return value
        parts = self._parts[formula]
        if parts is None:
            value = truth_of(formula)
        else:
            value = True
            for part in parts:
                if self._holds(abs(part), truth_of, known) != (part > 0):
                    value = False
                    break
        known[formula] = value
        return value

    def _replaced(self, formula: Formula, values: Mapping[Formula, Formula], known: dict[Formula, Formula]) -> Formula:
        """A positive formula with some atoms replaced; `known` holds these, and what was found for other formulas."""
        value = known.get(formula)
        if value is not None:
            return value
        parts = self._parts[formula]
        if parts is None or values.keys().isdisjoint(self._atom_set(formula)):
            return formula
        replaced = []
        for part in parts:
            positive = abs(part)
            # Most parts are atoms, which need no further look.
            value = known.get(positive, positive)
            if value == positive and self._parts[positive] is not None:
                value = self._replaced(positive, values, known)
            value = value if part > 0 else -value
            if value == FALSE:
                known[formula] = FALSE
                return FALSE
            replaced.append(value)
        value = known[formula] = self.all_of(replaced)
        return value

    def _atom_set(self, formula: Formula) -> frozenset[Formula]:
        """The atoms of a positive formula."""
        found = self._atom_sets.get(formula)
        if found is None:
            parts = self._parts[formula]
            if parts is None:
                found = frozenset((formula,))
            else:
                found = frozenset().union(*[self._atom_set(abs(part)) for part in parts])
            self._atom_sets[formula] = found
        return found

    def _number(self, key: Hashable, payload: Hashable, parts: tuple[Formula, ...] | None) -> Formula:
        """The number of a formula, which is added where it is new."""
        next_number = len(self._atoms)
        # One look-up, since keys can be long.
        number = self._known.setdefault(key, next_number)
        if number == next_number:
            self._atoms.append(payload)
            self._parts.append(parts)
        return number

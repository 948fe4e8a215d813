"""Objects with a schema for each property that need some of these: the most common ones by far, hence a short way."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.callees import Callee, CalleeState, Transition
from sgl_runtime.grammar.json_schema.formula import FALSE, Formula
from sgl_runtime.grammar.json_schema.object_rules import NO_NAME, KeyClass, ObjectRules
from sgl_runtime.grammar.json_schema.questions import Question

if TYPE_CHECKING:
    from sgl_runtime.grammar.json_schema.value_graph import ValueGraph

# An object whose free order between lists needs more states than this gets one order.
STATES_FOR_ORDER = 64
STATES_FOR_NAME = 4

_Place = tuple[int, int]
"""Where an object stands: what it still needs, and the properties that may not come any more, as bits."""


def build_plain(graph: "ValueGraph", callee: Callee, rules: ObjectRules, needs: Formula, budget: Budget) -> int:
    """Make the states of a callee that has its first; returns how many it has then.

    The same states as `ValueGraph` makes from all of the formulas: what a property's value must satisfy does not depend
    on the state here, and what the object needs changes with few of them.

    Args:
        graph: Answers questions.
        callee: The object.
        rules: Its rules.
        needs: What it must have, see `ObjectRules.plain_needs`.
        budget: Limits the states.
    """
    needed = rules.needed_names(needs)
    if needed is not None and rules.is_chain:
        _Chain(graph, callee, rules).build(needed)
        budget.spend(len(rules.names))
        return len(callee.states)
    start = needs if needed is None else needed
    made: type[_PlainObject] = _PlainObject if needed is None else _ObjectWithNames
    limit = STATES_FOR_ORDER + STATES_FOR_NAME * len(rules.names)
    if not made(graph, callee, rules, budget).build(start, limit):
        rules.use_one_order()
        callee.start_again()
        made(graph, callee, rules, budget).build(start, None)
    return len(callee.states)


class _PlainObject:
    """Any needs, as a formula."""

    def __init__(self, graph: "ValueGraph", callee: Callee, rules: ObjectRules, budget: Budget) -> None:
        self._graph = graph
        self._callee = callee
        self._rules = rules
        self._budget = budget
        self._places: list[_Place] = []
        self._numbers: dict[_Place, int] = {}
        self._questions: dict[KeyClass, Question | None] = {}
        self._transitions: dict[tuple[KeyClass, int], Transition] = {}
        self._known_needs: dict[Hashable, Formula] = {}

    def build(self, needs: int, limit: int | None) -> bool:
        """Make the states; False when there are more than a limit."""
        callee, rules, keys = self._callee, self._rules, self._callee.keys
        assert keys is not None
        self._places = [(needs, rules.start)]
        self._numbers = {self._places[0]: 0}
        index = 0
        while index < len(self._places):
            self._budget.spend()
            if limit is not None and len(self._places) > limit:
                return False
            before, position = self._places[index]
            transitions = callee.states[index].transitions
            for key in keys.following(rules.next_names(position)):
                moved = rules.moved(position, key)
                after = self._after(before, moved, key)
                transition = None if after is None else self._transition(key, (after, moved))
                if transition is not None:
                    transitions.append(transition)
            index += 1
        return True

    def _after(self, needs: int, position: int, key: KeyClass) -> int | None:
        """What is needed behind a property; None where it cannot come any more."""
        after = self._rules.needs_after(needs, position, key, self._known_needs)
        return None if after == FALSE else after

    def _may_end(self, needs: int) -> bool:
        """Whether an object that still needs this may end."""
        return self._graph.formulas.holds(needs, lambda atom: False)

    def _transition(self, key: KeyClass, place: _Place) -> Transition | None:
        if key not in self._questions:
            self._questions[key] = self._graph.question_about(self._rules.value_of(key))
        question = self._questions[key]
        if question is None:
            return None
        target = self._numbers.setdefault(place, len(self._places))
        if target == len(self._places):
            self._places.append(place)
            end_label = self._callee.labels[(True,)] if self._may_end(place[0]) else None
            self._callee.states.append(CalleeState((), place[1], end_label))
            self._budget.check_states(len(self._places))
        known = self._transitions.get((key, target))
        if known is None:
            known = self._transitions[key, target] = Transition(key, question, [target])
            self._callee.transitions.append(known)
        return known


class _ObjectWithNames(_PlainObject):
    """The needs are some properties, as bits."""

    def _after(self, needs: int, position: int, key: KeyClass) -> int | None:
        after = needs if key.name == NO_NAME else needs & ~(1 << key.name)
        # What may not come any more must not be needed.
        return None if after & position else after

    def _may_end(self, needs: int) -> bool:
        return not needs


class _Chain:
    """All names come in one order: a state for each, and one behind the last."""

    def __init__(self, graph: "ValueGraph", callee: Callee, rules: ObjectRules) -> None:
        self._graph = graph
        self._callee = callee
        self._rules = rules

    def build(self, needed: int) -> None:
        """Make the states; state i stands before the name of index i."""
        callee, keys, num_names = self._callee, self._callee.keys, len(self._rules.names)
        assert keys is not None
        end_label = callee.labels[(True,)]
        for index in range(1, num_names + 1):
            callee.states.append(CalleeState((), index, None if needed >> index else end_label))
        others = self._questions(keys.others)
        by_name: list[list[Transition]] = []
        for index in range(num_names):
            by_name.append([Transition(*each, [index + 1]) for each in self._questions(keys.of_name(index))])
            callee.transitions += by_name[index]
        for index, state in enumerate(callee.states):
            # A name that is needed cannot be passed over.
            ahead = needed >> index
            last = index + (ahead & -ahead).bit_length() if ahead else num_names
            state.transitions = [each for name in by_name[index:last] for each in name]
            behind_others = [Transition(*each, [index]) for each in others]
            state.transitions += behind_others
            callee.transitions += behind_others

    def _questions(self, keys: Sequence[KeyClass]) -> list[tuple[KeyClass, Question]]:
        return [
            (key, question)
            for key in keys
            if (question := self._graph.question_about(self._rules.value_of(key))) is not None
        ]

"""Callees: arrays and objects with what is asked of them, as states and transitions."""

from dataclasses import dataclass, field

from sgl_runtime.grammar.json_schema.array_rules import ArrayRules
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.object_rules import KeyClass, ObjectRules
from sgl_runtime.grammar.json_schema.questions import Question, Truths
from sgl_runtime.grammar.json_schema.steps import Formulae


@dataclass(eq=False, slots=True)
class Transition:
    """One item, or one property; states share transitions that are alike.

    Attributes:
        key: Which property; None for an item.
        question: What is asked of its value.
        targets: State behind it by label; None where that label may not come.
    """

    key: KeyClass | None
    question: Question
    targets: list[int | None]


@dataclass(slots=True)
class CalleeState:
    """Where an array or object stands between two items.

    Attributes:
        formulas: What must still hold.
        position: The names of properties that may not come any more, as bits.
        end_label: Label when it ends here, None where it may not.
        transitions: How it goes on.
        labels: With which labels it can still end.
    """

    formulas: Formulae
    position: int
    end_label: int | None
    transitions: list[Transition] = field(default_factory=list)
    labels: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Callee:
    """An array or object with what is asked of it.

    Attributes:
        kind: ARRAY or OBJECT.
        labels: The wanted truths of its formulas, with their labels.
        states: State 0 is the start.
        transitions: All transitions of these, each once.
        keys: How the keys of an object are told apart.
        has_distinct_items: Whether the items of an array must differ and are compared while they are written.
    """

    kind: int
    labels: dict[Truths, int]
    states: list[CalleeState] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    keys: KeyClasses | None = None
    rules: ArrayRules | ObjectRules | None = None
    has_distinct_items: bool = False

    def start_again(self) -> None:
        """Drop all but the first state, and its transitions."""
        del self.states[1:]
        self.states[0].transitions.clear()
        self.transitions.clear()

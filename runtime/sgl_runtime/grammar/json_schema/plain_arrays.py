"""Arrays with a schema for each item and limits on their number: the most common ones by far, hence a short way."""

from typing import TYPE_CHECKING

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.array_rules import ArrayRules, PlainArray
from sgl_runtime.grammar.json_schema.callees import Callee, CalleeState, Transition
from sgl_runtime.grammar.json_schema.questions import Question

if TYPE_CHECKING:
    from sgl_runtime.grammar.json_schema.value_graph import ValueGraph


def build_plain_array(graph: "ValueGraph", callee: Callee, rules: ArrayRules, array: PlainArray, budget: Budget) -> int:
    """Make the states of a callee that has its first; returns how many it has then.

    The same states as `ValueGraph` makes from formulas: one for each number of items up to that from which on nothing
    changes any more.

    Args:
        graph: Answers questions.
        callee: The array.
        rules: Rules of arrays.
        array: What it is.
        budget: Limits the states.
    """
    callee.has_distinct_items |= array.compares_items
    end_label = callee.labels[(True,)]
    num_prefix = max([len(each.prefix) for each in array.items], default=0)
    same_from = max(num_prefix, array.least)
    last = same_from if array.most is None else array.most
    question: Question | None = None
    index = 0
    while index < last or array.most is None:
        if index <= num_prefix:
            question = graph.question_about(rules.item_of(array, index))
        if question is None:
            break
        transition = Transition(None, question, [min(index + 1, last)])
        callee.states[index].transitions.append(transition)
        callee.transitions.append(transition)
        if index == last:
            break
        index += 1
        callee.states.append(CalleeState((), 0, end_label if index >= array.least else None))
        budget.spend()
        budget.check_states(index)
    return len(callee.states)

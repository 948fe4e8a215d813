"""JSON objects and arrays as automata; their members are laid out by a callback.

Properties come in the order in which the schema defines them, and no others come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.json_schema.literals import string_text
from sgl_runtime.grammar.json_schema.policy import WhitespacePolicy
from sgl_runtime.grammar.nfa import Nfa


@dataclass(frozen=True)
class Property:
    """A property of an object.

    Attributes:
        name: Its key.
        is_required: Whether every instance has it.
        add_value: Lays the value out from a state; returns the state behind it.
    """

    name: str
    is_required: bool
    add_value: Callable[[Nfa, int], int]


def add_object(nfa: Nfa, policy: WhitespacePolicy, properties: Sequence[Property], source: int) -> int:
    """Lay an object out; returns the state behind it.

    `first[i]` and `later[i]` stand before the key of property i or a later one, without and with another property
    before them; `done[i]` stands behind the value of property i - 1.
    """
    count = len(properties)
    end = nfa.add_states()
    first, later = nfa.add_states(count + 1), nfa.add_states(count + 1)
    nfa.add_epsilon(policy.add_gap(nfa, nfa.add_text(source, "{")), first)
    nfa.add_epsilon(nfa.add_text(first + count, "}"), end)
    closing = nfa.add_states()
    nfa.add_epsilon(nfa.add_text(policy.add_gap(nfa, closing), "}"), end)
    can_close = True
    for index in reversed(range(count)):
        each = properties[index]
        key = nfa.add_states()
        value_at = policy.add_colon(nfa, nfa.add_text(key, string_text(each.name)))
        done = each.add_value(nfa, value_at)
        for place in (first, later):
            nfa.add_epsilon(place + index, key)
            if not each.is_required:
                nfa.add_epsilon(place + index, place + index + 1)
        if can_close:
            nfa.add_epsilon(done, closing)
        if index + 1 < count:
            nfa.add_epsilon(policy.add_comma(nfa, done), later + index + 1)
        can_close = can_close and not each.is_required
    return end


@dataclass(frozen=True)
class ArrayItems:
    """What an array holds.

    Attributes:
        prefix: Automata of the first items, one each.
        rest: Automaton of all further items; None when there are none.
        least, most: Limits on the number of items; no upper one when `most` is None.
    """

    prefix: Sequence[CharDfa]
    rest: CharDfa | None
    least: int
    most: int | None

    def at(self, index: int) -> CharDfa | None:
        """The automaton of an item, None past the end of what the array may hold."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


def add_array(nfa: Nfa, policy: WhitespacePolicy, items: ArrayItems, source: int) -> int:
    """Lay an array out; returns the state behind it."""
    end, closing = nfa.add_states(), nfa.add_states()
    nfa.add_epsilon(nfa.add_text(policy.add_gap(nfa, closing), "]"), end)
    at = policy.add_gap(nfa, nfa.add_text(source, "["))
    if items.least == 0:
        nfa.add_epsilon(nfa.add_text(at, "]"), end)
    is_endless = items.most is None and items.rest is not None
    num_spelled = max(len(items.prefix), items.least, 1) if is_endless else items.most
    index = 0
    while num_spelled is None or index < num_spelled:
        item = items.at(index)
        if item is None:
            return end
        at = nfa.embed(item, at if index == 0 else policy.add_comma(nfa, at))
        index += 1
        if index >= items.least:
            nfa.add_epsilon(at, closing)
    if is_endless and items.rest is not None:
        nfa.add_epsilon(nfa.embed(items.rest, policy.add_comma(nfa, at)), at)
    return end

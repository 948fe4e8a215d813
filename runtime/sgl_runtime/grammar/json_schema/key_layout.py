"""KeyLayout: the keys of objects written out as states and edges.

Where an object has only certain keys they are a tree of plain edges.  Where it has any others, one callee for all its
states reads the key and says which it was: a tree whose every way out is the free string.
"""

import json

from sgl_runtime.grammar.automaton import DEAD, TwinStates
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.rules import NO_NAME, KeyClass
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.string_layout import StringLayout

_QUOTE = ord('"')
_BODY_LEVEL = 0

Entries = dict[KeyClass, int]
"""The states behind keys, where the colon comes."""


class KeyLayout:
    """Writes keys into an automaton.

    Args:
        builder: Gets the states.
        strings: Writes the keys of free text.
        scalars: Knows which names can be spelled.
    """

    def __init__(self, builder: AutomatonBuilder, strings: StringLayout, scalars: Scalars) -> None:
        self._builder = builder
        self._strings = strings
        self._scalars = scalars
        self._starts: dict[tuple[tuple[bytes, int], ...], int] = {}
        self._nodes: dict[tuple[tuple[tuple[bytes, int], ...], int], int] = {}
        self._chains: dict[tuple[bytes, int], list[int]] = {}
        self._callees: dict[tuple[str, ...], int] = {}

    def start(self, keys: KeyClasses, entries: Entries) -> int:
        """The state where a key begins, from which each key leads to its entry."""
        if keys.has_patterns:
            return self._with_patterns(keys, entries)
        other = entries.get(KeyClass(NO_NAME))
        if other is None:
            names = tuple((_key_text(keys.names[key.name]), entry) for key, entry in entries.items())
            known = self._starts.get(names)
            if known is None:
                known = self._starts[names] = self._builder.new_state()
                self._builder.add_edge(known, _QUOTE, self._node(names, 0))
            return known
        state = self._builder.new_state()
        by_name = [DEAD] * len(keys.names)
        for key, entry in entries.items():
            if key.name != NO_NAME:
                by_name[key.name] = entry
        self._builder.add_push(state, _QUOTE, self._callee(keys.names), (other, *by_name))
        return state

    def _with_patterns(self, keys: KeyClasses, entries: Entries) -> int:
        fragment = keys.fragment(tuple(entries))
        first = self._strings.embedded(fragment)
        state = self._builder.new_state()
        self._builder.add_push(state, _QUOTE, first, tuple(entries.values()))
        return state

    def _node(self, names: tuple[tuple[bytes, int], ...], depth: int) -> int:
        """The state behind so many bytes that the names share."""
        if len(names) == 1:
            return self._chain(names[0], depth)
        known = self._nodes.get((names, depth))
        if known is None:
            known = self._nodes[names, depth] = self._builder.new_state()
            groups: dict[int, list[tuple[bytes, int]]] = {}
            for each in names:
                groups.setdefault(each[0][depth], []).append(each)
            for byte, group in groups.items():
                self._builder.add_edge(known, byte, self._node(tuple(group), depth + 1))
        return known

    def _chain(self, name: tuple[bytes, int], depth: int) -> int:
        """The state behind so many bytes of a name that stands alone; made from its end."""
        text, entry = name
        chain = self._chains.setdefault(name, [entry])
        while len(chain) <= len(text) - depth:
            state = self._builder.new_state()
            self._builder.add_edge(state, text[len(text) - len(chain)], chain[-1])
            chain.append(state)
        return chain[len(text) - depth]

    def _callee(self, names: tuple[str, ...]) -> int:
        """Reads any key: label 0 for others than the names, one more than its index for a name."""
        known = self._callees.get(names)
        if known is not None:
            return known
        first, body = self._strings.other_keys()
        if not any(map(self._scalars.spellable, names)):
            self._callees[names] = first
            return first
        # Each node of the tree has the edges of the state where the free string is after the same bytes.
        root = self._callees[names] = self._builder.new_state()
        self._builder.merge(root, first, level=_BODY_LEVEL)
        originals = [first]
        children: dict[tuple[int, int], tuple[int, int]] = {}
        for index, name in enumerate(names):
            if not self._scalars.spellable(name):
                continue
            state, inside = root, 0
            for byte in _key_text(name)[:-1]:
                found = children.get((state, byte))
                if found is None:
                    inside = body.after(inside, byte)
                    child = self._builder.new_state()
                    self._builder.add_edge(state, byte, child)
                    self._builder.merge(child, first + inside, level=_BODY_LEVEL)
                    originals.append(first + inside)
                    found = children[state, byte] = (child, inside)
                state, inside = found
            self._builder.add_pop(state, _QUOTE, index + 1)
        self._builder.note_twins(TwinStates(root, originals))
        return root


def _key_text(name: str) -> bytes:
    """The spelling of a key behind its opening quote, with the closing one."""
    return json.dumps(name, ensure_ascii=False)[1:].encode()

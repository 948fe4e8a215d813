"""KeyLayout: the keys of objects written out as states and edges.

Where an object has only certain keys they are a tree of plain edges.  Where it has any others, one callee for all its
states reads the key and says which it was: a tree whose every way out is the free string.
"""

from sgl_runtime.grammar.automaton import DEAD, TwinStates
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.key_paths import KeyPaths
from sgl_runtime.grammar.json_schema.object_rules import NO_NAME, KeyClass
from sgl_runtime.grammar.json_schema.string_layout import StringLayout

_QUOTE = ord('"')
_BODY_LEVEL = 0
# With fewer names beside patterns, the keys of each state are an automaton of their own.
_MIN_NAMES = 16

Entries = list[tuple[KeyClass, int]]
"""Keys, and the states behind them, where the colon comes."""

_Names = tuple[tuple[bytes, int], ...]
"""Texts of keys, with their entries."""


class KeyLayout:
    """Writes keys into an automaton.

    Args:
        builder: Gets the states.
        strings: Writes the keys of free text.
    """

    def __init__(self, builder: AutomatonBuilder, strings: StringLayout) -> None:
        self._builder = builder
        self._strings = strings
        self._starts: dict[_Names, int] = {}
        self._paths: dict[KeyClasses, KeyPaths] = {}
        # For names, how many bytes they share, and the states with 0, 1, ... of these still to come.
        self._chains: dict[_Names, tuple[int, list[int]]] = {}
        self._callees: dict[tuple[bytes | None, ...], int] = {}

    def start(self, keys: KeyClasses, entries: Entries) -> int:
        """The state where a key begins, from which each key leads to its entry."""
        if keys.has_patterns:
            return self._with_patterns(keys, entries)
        # By the labels of `_callee`: the first one is that of keys which are no name.
        by_label = [DEAD] * (1 + len(keys.texts))
        for key, entry in entries:
            by_label[key.name - NO_NAME] = entry
        if by_label[0] != DEAD:
            state = self._builder.new_state()
            self._builder.add_push(state, _QUOTE, self._callee(keys.texts), tuple(by_label))
            return state
        spelled = zip(keys.texts, by_label[1:], strict=True)
        names = tuple([(text, entry) for text, entry in spelled if text is not None and entry != DEAD])
        known = self._starts.get(names)
        if known is None:
            known = self._starts[names] = self._builder.new_state()
            self._builder.add_edge(known, _QUOTE, self._node(names, 0))
        return known

    def _with_patterns(self, keys: KeyClasses, entries: Entries) -> int:
        state = self._builder.new_state()
        if len(keys.names) < _MIN_NAMES:
            first = self._strings.embedded(keys.fragment([key for key, _ in entries]))
            self._builder.add_push(state, _QUOTE, first, tuple(entry for _, entry in entries))
            return state
        paths = self._paths.get(keys)
        if paths is None:
            written = self._strings.embedded(keys.all_keys)
            paths = self._paths[keys] = KeyPaths(self._builder, keys.all_keys, written)
        returns = [DEAD] * (int(keys.all_keys.labels.max()) + 1)
        for key, entry in entries:
            returns[keys.label_of[key]] = entry
        start = paths.start([keys.label_of[key] for key, _ in entries])
        self._builder.add_push(state, _QUOTE, start, tuple(returns))
        return state

    def _node(self, names: _Names, depth: int) -> int:
        """The state behind so many bytes that the names share."""
        text, entry = names[0]
        known = self._chains.get(names)
        if known is None:
            if len(names) == 1:
                known = len(text), [entry]
            else:
                num_shared = _num_shared(min(names)[0], max(names)[0])
                known = num_shared, [self._branch(names, num_shared)]
            self._chains[names] = known
        num_shared, chain = known
        # Made from its end, as far as it is needed.
        missing = num_shared - depth + 1 - len(chain)
        if missing > 0:
            first = self._builder.text_before(text[depth : depth + missing], chain[-1])
            chain += range(first + missing - 1, first - 1, -1)
        return chain[num_shared - depth]

    def _branch(self, names: _Names, depth: int) -> int:
        """The state behind the bytes that several names share."""
        groups: dict[int, list[tuple[bytes, int]]] = {}
        for each in names:
            groups.setdefault(each[0][depth], []).append(each)
        state = self._builder.new_state()
        for byte, group in groups.items():
            self._builder.add_edge(state, byte, self._node(tuple(group), depth + 1))
        return state

    def _callee(self, texts: tuple[bytes | None, ...]) -> int:
        """Reads any key: label 0 for others than the names, one more than its index for a name.

        Args:
            texts: The names as `KeyClasses` spells them.
        """
        known = self._callees.get(texts)
        if known is not None:
            return known
        first, body = self._strings.other_keys()
        if not any(texts):
            self._callees[texts] = first
            return first
        # Each node of the tree has the edges of the state where the free string is after the same bytes.
        root = self._callees[texts] = self._builder.new_state()
        originals = [first]
        # The states behind the bytes of the text before, of which each text shares the first ones.
        path, before = [root], b""
        for text, index in sorted([(text, index) for index, text in enumerate(texts) if text is not None]):
            num_shared = _num_shared(before, text) if before else 0
            del path[num_shared + 1 :]
            num_more = len(text) - 1 - num_shared
            if num_more:
                child = self._builder.new_states(num_more)
                self._builder.add_edge(path[-1], text[num_shared], child)
                if num_more > 1:
                    self._builder.text_before(text[num_shared + 1 : -1], child + num_more - 1, child)
                path += range(child, child + num_more)
                originals += [first + inside for inside in _insides(body, text)[num_shared + 1 :]]
            self._builder.add_pop(path[-1], _QUOTE, index + 1)
            before = text
        for state, original in enumerate(originals, start=root):
            self._builder.merge(state, original, level=_BODY_LEVEL)
        self._builder.note(TwinStates(root, originals))
        return root


def _insides(body: ByteFragment, text: bytes) -> list[int]:
    """Where the free string is before each byte of a text but the closing quote, and behind the last one."""
    if not text[:-1].translate(None, body.bytes_at_start):
        return [0] * len(text)
    states = [0]
    for byte in text[:-1]:
        states.append(body.after(states[-1], byte))
    return states


def _num_shared(first: bytes, second: bytes) -> int:
    """How many bytes two different texts, of which none begins with the other, begin with alike."""
    num_shared = 0
    while first[num_shared] == second[num_shared]:
        num_shared += 1
    return num_shared

"""Structural tags: free text in which some beginnings, such as that of a tool call, must be followed by JSON.

The request's object has `structures`, each with `begin`, `schema` and `end`, and `triggers`.  The output is any text;
where a trigger has appeared one of the beginnings that start with it has to follow, then an instance of its schema,
then its end; then the text is free again.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.choices import check_encodable
from sgl_runtime.grammar.json_schema.front_end import SchemaFrontEnd, parse_schema

_LEADS = ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3))
_ROOT_LEVEL = 4


@dataclass(frozen=True)
class TaggedPart:
    """One kind of constrained part.

    Attributes:
        begin, end: What stands around it.
        schema: JSON text of its schema.
        place: Its place in the request, for messages.
    """

    begin: bytes
    schema: Any
    end: bytes
    place: str


def read_structural_tag(text: str) -> tuple[list[TaggedPart], list[bytes]]:
    """The parts and the triggers of a structural tag, given as JSON text.

    Raises:
        GrammarError: it is malformed; the message names the field.
    """
    tag = parse_schema(text)
    if not isinstance(tag, dict) or "structures" not in tag or "triggers" not in tag:
        raise GrammarError("structural_tag must be an object with 'structures' and 'triggers'")
    unknown = set(tag) - {"type", "structures", "triggers"}
    if unknown:
        raise GrammarError(f"structural_tag: {sorted(unknown)[0]!r} is not known; known: structures, triggers, type")
    if tag.get("type", "structural_tag") != "structural_tag":
        raise GrammarError(f"structural_tag: type is {tag['type']!r}; it must be 'structural_tag'")
    triggers = [_bytes(each, f"triggers[{at}]") for at, each in enumerate(_list(tag, "triggers"))]
    parts = []
    for at, each in enumerate(_list(tag, "structures")):
        place = f"structures[{at}]"
        if not isinstance(each, dict) or set(each) != {"begin", "schema", "end"}:
            raise GrammarError(f"structural_tag: {place} must be an object with 'begin', 'schema' and 'end'")
        begin = _bytes(each["begin"], f"{place}.begin")
        end = _bytes(each["end"], f"{place}.end", may_be_empty=True)
        if not begin.startswith(tuple(triggers)):
            raise GrammarError(f"structural_tag: {place}.begin is {each['begin']!r}; it must start with a trigger")
        parts.append(TaggedPart(begin, each["schema"], end, place))
    _check_distinct([part.begin for part in parts], "structures", "begin")
    _check_distinct(triggers, "triggers", "text")
    return parts, triggers


class TagFrontEnd:
    """Compiles structural tags.

    Args:
        schemas: Compiles the schemas inside.
        usable_bytes: (256,) bool, bytes that outputs can hold.
    """

    def __init__(self, schemas: SchemaFrontEnd, usable_bytes: NDArray[np.bool_]) -> None:
        self._schemas = schemas
        self._usable = usable_bytes

    def build(self, text: str, builder: AutomatonBuilder, budget: Budget) -> None:
        """Write the automaton of a structural tag, given as JSON text.

        Raises:
            GrammarError: it, or a schema in it, is malformed or not supported.
        """
        parts, triggers = read_structural_tag(text)
        free = _FreeText(builder, triggers, self._usable, budget)
        behind_triggers = free.write()
        for trigger, state in behind_triggers.items():
            following = [part for part in parts if part.begin.startswith(trigger)]
            self._write_parts(following, len(trigger), state, free, builder, budget)

    def _write_parts(
        self,
        parts: list[TaggedPart],
        num_read: int,
        state: int,
        free: "_FreeText",
        builder: AutomatonBuilder,
        budget: Budget,
    ) -> None:
        """Write the parts that begin with a trigger, behind the state where so many bytes of it have been read."""
        nodes = {b"": state}
        for part in parts:
            rest = part.begin[num_read:]
            for length in range(1, len(rest) + 1):
                if rest[:length] not in nodes:
                    nodes[rest[:length]] = builder.new_state()
                    builder.add_edge(nodes[rest[: length - 1]], rest[length - 1], nodes[rest[:length]])
            behind = free.start
            if part.end:
                behind = builder.new_state()
                builder.add_text_to(behind, part.end, free.start)
            value = self._schemas.write_value(part.schema, builder, behind, budget, place=part.place)
            builder.merge(nodes[rest], value, level=_ROOT_LEVEL)


class _Triggers:
    """The beginnings of triggers, numbered, and what one becomes with a byte.

    Source: Aho and Corasick, "Efficient string matching: an aid to bibliographic search", Communications of the ACM
    18 (6), 1975.

    Attributes:
        after: (N, 256) int32, the longest end of a text that begins a trigger, by the one before its last byte.
        found: The trigger that has appeared, by the number of the longest end.
    """

    def __init__(self, triggers: list[bytes], budget: Budget) -> None:
        children: list[dict[int, int]] = [{}]
        self.found: dict[int, bytes] = {}
        for trigger in triggers:
            node = 0
            for byte in trigger:
                node = children[node].setdefault(byte, len(children))
                if node == len(children):
                    children.append({})
            self.found[node] = trigger
            budget.check_states(len(children))
        self.after: NDArray[np.int32] = np.zeros((len(children), 256), dtype=np.int32)
        # For each beginning its longest end that is a shorter beginning.
        shorter = [0] * len(children)
        pending = deque([0])
        while pending:
            node = pending.popleft()
            budget.spend()
            self.after[node] = self.after[shorter[node]]
            for byte, child in children[node].items():
                shorter[child] = int(self.after[node, byte])
                self.after[node, byte] = child
                pending.append(child)
            if shorter[node] in self.found:
                self.found.setdefault(node, self.found[shorter[node]])


class _FreeText:
    """Text of whole characters, watched for triggers; the output may end between any two characters."""

    def __init__(
        self, builder: AutomatonBuilder, triggers: list[bytes], usable: NDArray[np.bool_], budget: Budget
    ) -> None:
        self._builder = builder
        self._triggers = _Triggers(triggers, budget)
        self._usable = usable
        self.start = 0

    def write(self) -> dict[bytes, int]:
        """Write the states; returns for each trigger the state behind it.

        A state is the longest end of the text that begins a trigger, with the continuation bytes that are to come.
        """
        behind = {trigger: self._builder.new_state() for trigger in self._triggers.found.values()}
        numbers: dict[tuple[int, int, int, int], int] = {(0, 0, 0x80, 0xBF): self.start}
        pending = deque(numbers)
        while pending:
            key = pending.popleft()
            seen, to_come, low, high = key
            state = numbers[key]
            if to_come == 0:
                self._builder.accept(state)
            for byte in np.flatnonzero(self._usable).tolist():
                after = self._after(to_come, low, high, byte)
                if after is None:
                    continue
                suffix = int(self._triggers.after[seen, byte])
                if suffix in self._triggers.found:
                    self._builder.add_edge(state, byte, behind[self._triggers.found[suffix]])
                    continue
                following = (suffix, *after)
                if following not in numbers:
                    numbers[following] = self._builder.new_state()
                    pending.append(following)
                self._builder.add_edge(state, byte, numbers[following])
        return behind

    def _after(self, to_come: int, low: int, high: int, byte: int) -> tuple[int, int, int] | None:
        """How many continuation bytes are to come behind a byte, and the range of the next; None: not allowed."""
        if to_come:
            return (to_come - 1, 0x80, 0xBF) if low <= byte <= high else None
        if byte < 0x80:
            return (0, 0x80, 0xBF)
        for first, last, count in _LEADS:
            if first <= byte <= last:
                lowest = {0xE0: 0xA0, 0xF0: 0x90}.get(byte, 0x80)
                highest = {0xED: 0x9F, 0xF4: 0x8F}.get(byte, 0xBF)
                return (count, lowest, highest)
        return None


def _list(tag: dict[str, Any], field: str) -> list[Any]:
    value = tag[field]
    if not isinstance(value, list) or not value:
        raise GrammarError(f"structural_tag: {field} must be a list with at least one entry")
    return value


def _bytes(value: Any, place: str, *, may_be_empty: bool = False) -> bytes:
    if not isinstance(value, str) or not (value or may_be_empty):
        raise GrammarError(f"structural_tag: {place} is {value!r}; it must be a string that is not empty")
    check_encodable(value, f"structural_tag: {place}")
    return value.encode()


def _check_distinct(texts: list[bytes], field: str, what: str) -> None:
    # What starts with a text comes right behind it.
    for (text, first), (other, second) in pairwise(sorted((text, at) for at, text in enumerate(texts))):
        if other.startswith(text):
            raise GrammarError(
                f"structural_tag: the {what} of {field}[{second}] starts with that of {field}[{first}]; each must"
                " be told apart from the others"
            )

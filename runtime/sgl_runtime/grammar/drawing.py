"""Drawings of small automata: the parts, and Graphviz text of them.

A callee is a part of its own.  A push is drawn where it is made, from the state before the call to the one behind it;
a pop ends at a mark.  Chains of states that leave no choice are drawn as one edge with their text.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import FIRST_SPECIAL, ByteAutomaton

MAX_STATES = 400
_MAX_LABEL = 26
_MAIN = "main"


class EdgeKind(Enum):
    """What an edge does."""

    PLAIN = "plain"
    PUSH = "push"
    POP = "pop"


@dataclass(frozen=True)
class DrawnState:
    """A circle, or for `is_mark` the end of a callee.

    Attributes:
        name: Its number, or what a mark says.
        is_accepting: Whether the output may end here.
        is_mark: Whether it is the end of a pop.
    """

    name: str
    is_accepting: bool = False
    is_mark: bool = False


@dataclass(frozen=True)
class DrawnEdge:
    """An arrow between two states of a part, by their indices.

    Attributes:
        source, target: Where it goes.
        label: Which bytes it takes, and for a push what it calls.
        kind: What it does.
    """

    source: int
    target: int
    label: str
    kind: EdgeKind

    @property
    def short_label(self) -> str:
        """The label, cut where it is long."""
        return self.label if len(self.label) <= _MAX_LABEL else self.label[: _MAX_LABEL - 1] + "…"


@dataclass
class DrawnPart:
    """The whole output, or one callee.

    Attributes:
        title: What it is called where it is called.
        states: Its states, the first one is where it begins.
        edges: Its edges.
    """

    title: str
    states: list[DrawnState] = field(default_factory=list)
    edges: list[DrawnEdge] = field(default_factory=list)


def draw(automaton: ByteAutomaton) -> list[DrawnPart]:
    """The parts of an automaton.

    Raises:
        GrammarError: it is too large for a drawing.
    """
    if automaton.num_states > MAX_STATES:
        raise GrammarError(f"the automaton has {automaton.num_states} states; at most {MAX_STATES} are drawn")
    return _Parts(automaton).draw()


def to_dot(parts: list[DrawnPart]) -> str:
    """Graphviz text of a drawing."""
    lines = [
        "digraph automaton {",
        "  rankdir=LR;",
        '  node [shape=circle, fontname="monospace", fontsize=11, width=0.4, fixedsize=true];',
        '  edge [fontname="monospace", fontsize=10];',
    ]
    for number, part in enumerate(parts):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(part.title)};", "    color=gray;"]
        lines += [f"    p{number}_start [shape=point, width=0.08];", f"    p{number}_start -> p{number}_0;"]
        for index, state in enumerate(part.states):
            shape = ', shape=box, fixedsize=false, color="#b35c00"' if state.is_mark else ""
            shape += ", shape=doublecircle" if state.is_accepting else ""
            lines.append(f"    p{number}_{index} [label={_quoted(state.name)}{shape}];")
        for edge in part.edges:
            style = _DOT_STYLES[edge.kind]
            ends = f"p{number}_{edge.source} -> p{number}_{edge.target}"
            lines.append(f"    {ends} [label={_quoted(edge.label)}{style}];")
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


_DOT_STYLES = {
    EdgeKind.PLAIN: "",
    EdgeKind.PUSH: ', color="#1f5fbf", fontcolor="#1f5fbf", style=bold',
    EdgeKind.POP: ', color="#b35c00", fontcolor="#b35c00"',
}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def bytes_label(data: list[int]) -> str:
    r"""A set of bytes as ranges: `a-z`, `"`, `\x80-\xbf`; what all but a few take is written by those few."""
    if len(data) > 200:
        missing = sorted(set(range(256)) - set(data))
        return "any" if not missing else f"not {_ranges(missing)}"
    return _ranges(data)


def _ranges(data: list[int]) -> str:
    runs: list[list[int]] = []
    for byte in sorted(data):
        if runs and byte == runs[-1][1] + 1:
            runs[-1][1] = byte
        else:
            runs.append([byte, byte])
    texts = []
    for low, high in runs:
        if high - low < 2:
            texts += [byte_text(byte) for byte in range(low, high + 1)]
        else:
            texts.append(f"{byte_text(low)}-{byte_text(high)}")
    return " ".join(texts)


def byte_text(byte: int) -> str:
    """One byte, readable."""
    if byte == ord(" "):
        return "␣"
    return chr(byte) if 0x21 <= byte < 0x7F else {0x0A: "\\n", 0x09: "\\t", 0x0D: "\\r"}.get(byte, f"\\x{byte:02x}")


@dataclass(frozen=True)
class _Way:
    """Where some bytes lead from a state, inside its part: `target` is a state, or a label for a pop."""

    kind: EdgeKind
    target: int
    callee: int = -1


class _Parts:
    """Cuts an automaton into its parts."""

    def __init__(self, automaton: ByteAutomaton) -> None:
        self._automaton = automaton
        self._slices = self._return_slices()
        self._ways = [self._ways_of(state) for state in range(automaton.num_states)]
        callees = sorted({way.callee for ways in self._ways for way in ways if way.callee >= 0})
        self._names = {state: f"callee {number}" for number, state in enumerate(callees, 1)}

    def draw(self) -> list[DrawnPart]:
        parts = [self._part(_MAIN, 0)]
        return parts + [self._part(name, state) for state, name in self._names.items()]

    def _return_slices(self) -> dict[int, list[int]]:
        """For what a push remembers, the states to go on at by label; -1 for labels that do not come."""
        automaton = self._automaton
        starts = np.unique(automaton.edge_argument[automaton.edge_target >= 0]).tolist()
        ends = [*starts, len(automaton.returns)][1:]
        return {start: automaton.returns[start:end].tolist() for start, end in zip(starts, ends, strict=True)}

    def _ways_of(self, state: int) -> dict[_Way, list[int]]:
        """The bytes by where they lead."""
        automaton = self._automaton
        ways: dict[_Way, list[int]] = defaultdict(list)
        for byte, entry in enumerate(automaton.table[state][automaton.byte_classes].tolist()):
            if entry >= 0:
                ways[_Way(EdgeKind.PLAIN, entry)].append(byte)
            elif entry <= FIRST_SPECIAL:
                edge = FIRST_SPECIAL - entry
                callee, argument = int(automaton.edge_target[edge]), int(automaton.edge_argument[edge])
                if callee < 0:
                    ways[_Way(EdgeKind.POP, argument)].append(byte)
                    continue
                for behind in dict.fromkeys(each for each in self._slices[argument] if each >= 0):
                    ways[_Way(EdgeKind.PUSH, behind, callee)].append(byte)
        return dict(ways)

    def _part(self, title: str, start: int) -> DrawnPart:
        members = self._members(start)
        kept = [state for state in members if not self._is_passed(state, start, members)]
        part = DrawnPart(title)
        numbers = {state: number for number, state in enumerate(kept)}
        accepting = self._automaton.accepting
        part.states += [DrawnState(str(state), bool(accepting[state])) for state in kept]
        for state in kept:
            for way, data in self._ways[state].items():
                label = bytes_label(data)
                if way.kind is EdgeKind.POP:
                    part.states.append(DrawnState(f"return {way.target}", is_mark=True))
                    part.edges.append(DrawnEdge(numbers[state], len(part.states) - 1, label, way.kind))
                    continue
                if way.kind is EdgeKind.PUSH:
                    label += f" ({self._names[way.callee]})"
                text, target = self._pass_on(way.target, numbers)
                joint = " " if text and way.kind is EdgeKind.PUSH else ""
                part.edges.append(DrawnEdge(numbers[state], numbers[target], label + joint + text, way.kind))
        return part

    def _members(self, start: int) -> dict[int, int]:
        """The states of a part, with how many edges lead into each from inside."""
        members = {start: 0}
        pending = [start]
        while pending:
            for way in self._ways[pending.pop()]:
                if way.kind is EdgeKind.POP:
                    continue
                if way.target not in members:
                    members[way.target] = 0
                    pending.append(way.target)
                members[way.target] += 1
        return dict(sorted(members.items(), key=lambda item: (item[0] != start, item[0])))

    def _is_passed(self, state: int, start: int, members: dict[int, int]) -> bool:
        """Whether a state is left out: one edge in, one byte out."""
        ways = self._ways[state]
        if state == start or members[state] != 1 or self._automaton.accepting[state] or len(ways) != 1:
            return False
        ((way, data),) = ways.items()
        return way.kind is EdgeKind.PLAIN and len(data) == 1 and way.target != state

    def _pass_on(self, state: int, numbers: dict[int, int]) -> tuple[str, int]:
        """The text of a chain of states that are left out, and the state behind it."""
        text = ""
        while state not in numbers:
            ((way, data),) = self._ways[state].items()
            text += byte_text(data[0])
            state = way.target
        return text, state

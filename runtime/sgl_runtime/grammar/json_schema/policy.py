"""Where JSON output may hold white space: one policy for every object and array.

compact        nowhere
single_space   one space after each comma and colon, as `json.dumps` writes by default
flexible       after a colon nothing or one space; after an opening bracket, after a comma and before a closing
               bracket nothing, one space, or one line break and up to 20 spaces; an empty array or object holds none
"""

from typing import Literal

from sgl_runtime.grammar.builder import AutomatonBuilder

Whitespace = Literal["compact", "single_space", "flexible"]

_MAX_INDENT = 20
_SPACE = ord(" ")
_NEWLINE = ord("\n")
GAP_LEVEL = 1
"""Level of the merges (see `AutomatonBuilder.merge`) that put a gap before something."""


class WhitespacePolicy:
    """Lays separators out, each in front of a state that is there.

    Args:
        builder: Gets the states.
        whitespace: The policy.
    """

    def __init__(self, builder: AutomatonBuilder, whitespace: Whitespace) -> None:
        self._builder = builder
        self._whitespace = whitespace
        self._gaps: dict[int, int] = {}
        self._spaced: dict[int, int] = {}

    def after_comma(self, target: int) -> int:
        """The state behind a comma, from which what may stand there leads to `target`."""
        return self._after_space(target) if self._whitespace == "single_space" else self.gap(target)

    def after_colon(self, target: int) -> int:
        """The state behind a colon, from which what may stand there leads to `target`."""
        if self._whitespace != "flexible":
            return self._after_space(target) if self._whitespace == "single_space" else target
        state = self._builder.new_state()
        self._builder.merge(state, target, level=GAP_LEVEL)
        self._builder.add_edge(state, _SPACE, target)
        return state

    def gap(self, target: int) -> int:
        """The state behind an opening bracket, from which what may stand there leads to `target`."""
        if self._whitespace != "flexible":
            return target
        state = self._gaps.get(target)
        if state is None:
            state = self._gaps[target] = self._builder.new_state()
            self._builder.merge(state, target, level=GAP_LEVEL)
            self._builder.add_edge(state, _SPACE, target)
            self._indent(state, target)
        return state

    def add_close(self, state: int, bracket: int, label: int) -> None:
        """What may stand before a closing bracket, and the bracket, which ends the callee."""
        self._builder.add_pop(state, bracket, label)
        if self._whitespace == "flexible":
            close = self._builder.new_state()
            self._builder.add_pop(close, bracket, label)
            self._builder.add_edge(state, _SPACE, close)
            self._indent(state, close)

    def _indent(self, state: int, target: int) -> None:
        """A line break and up to so many spaces."""
        first = self._builder.new_states(_MAX_INDENT + 1)
        self._builder.add_edge(state, _NEWLINE, first)
        for indent in range(first, first + _MAX_INDENT + 1):
            self._builder.merge(indent, target, level=GAP_LEVEL)
            if indent < first + _MAX_INDENT:
                self._builder.add_edge(indent, _SPACE, indent + 1)

    def _after_space(self, target: int) -> int:
        state = self._spaced.get(target)
        if state is None:
            state = self._spaced[target] = self._builder.new_state()
            self._builder.add_edge(state, _SPACE, target)
        return state

"""Where JSON output may hold white space: one policy for every object and array.

compact        nowhere
single_space   one space after each comma and colon, as `json.dumps` writes by default
flexible       after a colon nothing or one space; after an opening bracket, after a comma and before a closing
               bracket nothing, one space, or one line break and up to 20 spaces
"""

from dataclasses import dataclass
from typing import Literal

from sgl_runtime.grammar.char_set import CharSet
from sgl_runtime.grammar.nfa import Nfa

Whitespace = Literal["compact", "single_space", "flexible"]

_MAX_INDENT = 20
_SPACE = CharSet.of(" ")
_NEWLINE = CharSet.of("\n")


@dataclass(frozen=True)
class WhitespacePolicy:
    """Lays separators out in an automaton; every method returns the state behind the separator."""

    whitespace: Whitespace

    def add_comma(self, nfa: Nfa, source: int) -> int:
        """A comma and what may follow it."""
        behind = nfa.add_text(source, ", " if self.whitespace == "single_space" else ",")
        return self.add_gap(nfa, behind)

    def add_colon(self, nfa: Nfa, source: int) -> int:
        """A colon and what may follow it."""
        behind = nfa.add_text(source, ": " if self.whitespace == "single_space" else ":")
        if self.whitespace == "flexible":
            end = nfa.add_text(behind, " ")
            nfa.add_epsilon(behind, end)
            return end
        return behind

    def add_gap(self, nfa: Nfa, source: int) -> int:
        """What may stand behind an opening bracket or before a closing one."""
        if self.whitespace != "flexible":
            return source
        end = nfa.add_states()
        nfa.add_epsilon(source, end)
        nfa.add_edge(source, _SPACE, end)
        indent = nfa.add_states()
        nfa.add_edge(source, _NEWLINE, indent)
        for _ in range(_MAX_INDENT):
            nfa.add_epsilon(indent, end)
            wider = nfa.add_states()
            nfa.add_edge(indent, _SPACE, wider)
            indent = wider
        nfa.add_epsilon(indent, end)
        return end

"""Front end of `regex`: a tree becomes a nondeterministic automaton, and that a deterministic one.

Quantifiers and alternations are laid out as edges.  Conditions on the text around a place (look-ahead, look-behind,
anchors, word boundaries) are checked while the automaton is made deterministic, see `regex_looks.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.nfa import Nfa
from sgl_runtime.grammar.regex_looks import Guard, LookKind, guarded_dfa
from sgl_runtime.grammar.regex_parser import parse_regex
from sgl_runtime.grammar.regex_tree import (
    ANY,
    DOLLAR,
    END,
    START,
    Alternation,
    Chars,
    Concat,
    Look,
    Node,
    Reader,
    Repeat,
    disputes,
    read,
)

_ANY_TEXT = Repeat(ANY, 0, None)


def regex_to_dfa(pattern: str, budget: Budget) -> CharDfa:
    """The strings that a regex matches as a whole.

    Raises:
        GrammarError: the regex is malformed, not supported, or too large.
    """
    return _Builder(budget).compile(whole_tree(pattern))


def whole_tree(pattern: str) -> Node:
    """The tree of a regex that is to match as a whole, without anchors that say so too.

    Raises:
        GrammarError: the regex is malformed or not supported.
    """
    check_pattern_text(pattern)
    return _strip_end(_at_start(parse_regex(pattern)), END, DOLLAR)


def search_to_dfa(pattern: str, budget: Budget, reader: Reader = Reader.ALL) -> CharDfa:
    """The strings in which a regex matches somewhere, as JSON Schema's `pattern` means it.

    Args:
        pattern: The regex, in ECMAScript's syntax.
        budget: Limits of the compilation.
        reader: For whom it has to match.

    Raises:
        GrammarError: as for `regex_to_dfa`.
    """
    tree = read(_parse_pattern(pattern), reader)
    return _Builder(budget).search(tree.options if isinstance(tree, Alternation) else (tree,))


def pattern_disputes(pattern: str) -> frozenset[str]:
    """What `search_to_dfa` may differ about by the reader: letters of shorthands, "" for anything else.

    Raises:
        GrammarError: the regex is malformed or not supported.
    """
    return disputes(_parse_pattern(pattern))


def is_found_anywhere(pattern: str) -> bool:
    """Whether a regex as JSON Schema's `pattern` is found in any text, since it matches the empty text everywhere.

    Raises:
        GrammarError: the regex is malformed or not supported.
    """
    return _matches_nothing(_parse_pattern(pattern))


def _matches_nothing(node: Node) -> bool:
    """Whether a node matches the empty text whatever stands around it; False also where that is not seen."""
    if isinstance(node, Concat):
        return all(map(_matches_nothing, node.parts))
    if isinstance(node, Alternation):
        return any(map(_matches_nothing, node.options))
    return isinstance(node, Repeat) and (node.least == 0 or _matches_nothing(node.body))


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> Node:
    check_pattern_text(pattern)
    return parse_regex(pattern, ecma=True)


def check_pattern_text(pattern: str) -> None:
    """Refuse what could not even be written in UTF-8.

    Raises:
        GrammarError: the regex holds a lone surrogate.
    """
    for position, char in enumerate(pattern):
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise GrammarError(f"regex: lone surrogate (at position {position})")


def _strip_start(node: Node) -> Node:
    """The node without a `^` that is the first thing in it."""
    if node == START:
        return Concat()
    if isinstance(node, Concat) and node.parts and node.parts[0] == START:
        return Concat(node.parts[1:])
    return node


def _at_start(node: Node) -> Node:
    """A node that begins where the text does, without each `^` that says so, those in look-aheads among them."""
    if node == START:
        return Concat()
    if isinstance(node, Alternation):
        return Alternation(tuple(map(_at_start, node.options)))
    if isinstance(node, Look) and node.ahead:
        return Look(_at_start(node.body), ahead=True, negated=node.negated)
    if isinstance(node, Concat) and node.parts:
        num_at_start = 1
        while num_at_start < len(node.parts) and _takes_nothing(node.parts[num_at_start - 1]):
            num_at_start += 1
        return Concat((*map(_at_start, node.parts[:num_at_start]), *node.parts[num_at_start:]))
    return node


def _takes_nothing(node: Node) -> bool:
    """Whether a node is a condition on what stands around a place."""
    if isinstance(node, Concat):
        return all(map(_takes_nothing, node.parts))
    if isinstance(node, Alternation):
        return all(map(_takes_nothing, node.options))
    return isinstance(node, Look)


def _strip_end(node: Node, *ends: Node) -> Node:
    r"""The node without one of `ends` (`$`, `\Z`) that is the last thing in it."""
    if node in ends:
        return Concat()
    if isinstance(node, Concat) and node.parts and node.parts[-1] in ends:
        return Concat(node.parts[:-1])
    return node


@dataclass(frozen=True)
class _Builder:
    """Builds automata of one regex.

    Attributes:
        budget: Limits of the compilation.
        generous: Whether shorthands take the members of either reading: inside a negated condition, where a wider
            set means fewer outputs.
        inside: The kind of condition that is being built, None outside of any.
    """

    budget: Budget
    generous: bool = False
    inside: LookKind | None = None

    def compile(self, node: Node) -> CharDfa:
        nfa = Nfa(self.budget)
        guards: list[Guard] = []
        start = nfa.add_states()
        end = self._add(nfa, guards, node, start)
        return guarded_dfa(nfa, guards, start, end) if guards else nfa.to_dfa(start, end)

    def search(self, options: Sequence[Node]) -> CharDfa:
        """The strings in which one of some options is found."""
        nfa = Nfa(self.budget)
        guards: list[Guard] = []
        start, end = nfa.add_states(), nfa.add_states()
        # Options that are anchored alike share what is around them, or else each would be remembered by itself.
        alike: dict[tuple[bool, bool], list[Node]] = {}
        for option in options:
            from_start = _strip_start(option)
            if from_start != option:
                from_start = _at_start(from_start)
            whole = _strip_end(from_start, END)
            alike.setdefault((from_start != option, whole != from_start), []).append(whole)
        for (at_start, at_end), found in alike.items():
            entry = nfa.add_states()
            nfa.add_epsilon(start, entry)
            if not at_start:
                entry = self._add(nfa, guards, _ANY_TEXT, entry)
            found_at = self._add(nfa, guards, Alternation(tuple(found)), entry)
            nfa.add_epsilon(found_at, end if at_end else nfa.any_text_state(end))
        return guarded_dfa(nfa, guards, start, end) if guards else nfa.to_dfa(start, end)

    def _add(self, nfa: Nfa, guards: list[Guard], node: Node, source: int) -> int:
        """Lay a node out from `source`; returns its end.  No edge enters `source`, none leaves the end."""
        if isinstance(node, Chars):
            end = nfa.add_states()
            nfa.add_edge(source, node.resolve(generous=self.generous), end)
            return end
        if isinstance(node, Concat):
            for part in node.parts:
                source = self._add(nfa, guards, part, source)
            return source
        if isinstance(node, Alternation):
            end = nfa.add_states()
            for option in node.options:
                entry = nfa.add_states()
                nfa.add_epsilon(source, entry)
                nfa.add_epsilon(self._add(nfa, guards, option, entry), end)
            return end
        if isinstance(node, Repeat):
            return self._add_repeat(nfa, guards, node, source)
        assert isinstance(node, Look), "readings are picked before"
        end = nfa.add_states()
        guards.append(Guard(source, end, self._look_kind(node), node.negated, self._look_dfa(node)))
        return end

    def _add_repeat(self, nfa: Nfa, guards: list[Guard], node: Repeat, source: int) -> int:
        for _ in range(node.least):
            num_states = nfa.num_states
            source = self._add(nfa, guards, node.body, source)
            if nfa.num_states == num_states:
                # The body is empty text: once is as good as any number of times.
                return source
        if node.most is None:
            loop, end = nfa.add_states(), nfa.add_states()
            nfa.add_epsilon(source, loop)
            nfa.add_epsilon(loop, end)
            entry = nfa.add_states()
            nfa.add_epsilon(loop, entry)
            nfa.add_epsilon(self._add(nfa, guards, node.body, entry), loop)
            return end
        end = nfa.add_states()
        for _ in range(node.most - node.least):
            nfa.add_epsilon(source, end)
            entry = nfa.add_states()
            nfa.add_epsilon(source, entry)
            source = self._add(nfa, guards, node.body, entry)
        nfa.add_epsilon(source, end)
        return end

    def _look_kind(self, node: Look) -> LookKind:
        kind = LookKind.AHEAD if node.ahead else LookKind.BEHIND
        if self.inside is not None and self.inside is not kind:
            raise GrammarError(
                f"regex: {kind.value} (or an anchor or word boundary that needs it) inside {self.inside.value}"
                " is not supported"
            )
        return kind

    def _look_dfa(self, node: Look) -> CharDfa:
        inner = _Builder(self.budget, self.generous != node.negated, self._look_kind(node))
        body = Concat((node.body, _ANY_TEXT)) if node.ahead else Concat((_ANY_TEXT, node.body))
        return inner.compile(body)

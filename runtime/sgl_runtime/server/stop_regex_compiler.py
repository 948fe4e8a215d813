"""StopRegexCompiler: stop regexes to automata, once each, beside the event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from sgl_runtime.errors import GrammarError, InvalidRequestError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.regex import regex_to_dfa
from sgl_runtime.grammar.regex_parser import parse_regex
from sgl_runtime.grammar.regex_tree import Alternation, Concat, Look, Node, Repeat
from sgl_runtime.grammar.utf8 import to_bytes
from sgl_runtime.stops.stop_automaton import StopAutomaton

MAX_STATES = 4000
TIMEOUT_S = 1.0
CACHE_SIZE = 256
_MAX_SHOWN = 80


class StopRegexCompiler:
    """Compiles, and remembers what it compiled."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, StopAutomaton] = OrderedDict()

    async def compile(self, regexes: Sequence[str], *, path: str) -> tuple[StopAutomaton, ...]:
        """The automata of some regexes.

        Args:
            regexes: As a request gives them.
            path: The request's field, for errors.

        Raises:
            InvalidRequestError: a regex is malformed, too large, holds a condition on the text around, or matches the
                empty text.
        """
        automata = []
        for regex in regexes:
            automaton = self._known.get(regex)
            if automaton is None:
                try:
                    automaton = await asyncio.to_thread(compile_stop_regex, regex)
                except GrammarError as error:
                    shown = repr(regex) if len(regex) <= _MAX_SHOWN else repr(regex[:_MAX_SHOWN]) + "..."
                    raise InvalidRequestError(f"{path} {shown}: {error.message}", param=path) from error
                self._known[regex] = automaton
                if len(self._known) > CACHE_SIZE:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(regex)
            automata.append(automaton)
        return tuple(automata)


def compile_stop_regex(regex: str) -> StopAutomaton:
    """The automaton of one regex.

    Raises:
        GrammarError: see `StopRegexCompiler.compile`.
    """
    budget = Budget(max_states=MAX_STATES, timeout_s=TIMEOUT_S)
    try:
        has_condition = _has_condition(parse_regex(regex))
        automaton = to_bytes(regex_to_dfa(regex, budget), budget)
    except RecursionError:
        raise GrammarError("this regex is nested too deep") from None
    if has_condition:
        raise GrammarError(
            "a stop regex must not ask for what stands around its match: no ^, $, \\b, look-ahead, look-behind"
        )
    if automaton.is_empty:
        raise GrammarError("nothing at all matches this regex")
    if automaton.accepting[0]:
        raise GrammarError("a stop regex must not match the empty text, which is everywhere")
    return StopAutomaton(
        regex=regex,
        num_classes=automaton.table.shape[1],
        byte_classes=automaton.byte_classes.tobytes(),
        table=np.ascontiguousarray(automaton.table).tobytes(),
        accepting=automaton.accepting.astype(np.uint8).tobytes(),
    )


def _has_condition(node: Node) -> bool:
    if isinstance(node, Look):
        return True
    if isinstance(node, Concat):
        return any(map(_has_condition, node.parts))
    if isinstance(node, Alternation):
        return any(map(_has_condition, node.options))
    return isinstance(node, Repeat) and _has_condition(node.body)

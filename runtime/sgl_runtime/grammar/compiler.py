"""AutomatonCompiler: from what a request asks for to an automaton.

Called by the grammar backends, in threads of the scheduler's process and in worker processes.
"""

from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec, RelaxedKeyword, one_line
from sgl_runtime.grammar.budget import Budget, BudgetError
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.choices import choices_to_dfa
from sgl_runtime.grammar.collector_pause import paused_collector
from sgl_runtime.grammar.json_schema.front_end import JsonPolicy, SchemaFrontEnd
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.regex import regex_to_dfa
from sgl_runtime.grammar.structural_tags import TagFrontEnd
from sgl_runtime.grammar.utf8 import to_bytes


@dataclass(frozen=True)
class MadeAutomaton:
    """What a spec became.

    Attributes:
        automaton: What is enforced.
        relaxed: What the spec says and the automaton does not.
    """

    automaton: ByteAutomaton
    relaxed: tuple[RelaxedKeyword, ...] = ()


class AutomatonCompiler:
    """Compiles specs to automata, without caching whole ones; used by several threads.

    Args:
        config: State limit, time limit and policies.
        usable_bytes: (256,) bool, the bytes that outputs can hold; all by default.
    """

    def __init__(self, config: GrammarConfig, usable_bytes: NDArray[np.bool_] | None = None) -> None:
        self._config = config
        self._usable_bytes = np.ones(256, dtype=bool) if usable_bytes is None else usable_bytes
        policy = JsonPolicy(
            whitespace=config.json_whitespace,
            is_open=config.json_additional_properties == "open",
            any_order=config.json_key_order == "any",
        )
        self._schemas = SchemaFrontEnd(policy, Scalars(self._usable_bytes))
        self._tags = TagFrontEnd(self._schemas, self._usable_bytes)

    def compile(self, spec: GrammarSpec, *, stop: Event | None = None) -> ByteAutomaton:
        """Compile a spec within the limits of the configuration.

        Args:
            spec: The constraint.
            stop: Ends the compilation early once it is set.

        Raises:
            GrammarError: see `make`.
        """
        return self.make(spec, self.budget(stop=stop)).automaton

    def budget(
        self, *, stop: Event | None = None, max_states: int | None = None, timeout_s: float | None = None
    ) -> Budget:
        """The limits of the configuration, or tighter ones."""
        states, seconds = self._config.max_grammar_states, self._config.grammar_compile_timeout
        return Budget(
            max_states=states if max_states is None else min(states, max_states),
            timeout_s=seconds if timeout_s is None else min(seconds, timeout_s),
            stop=stop,
            full_states=states,
        )

    def make(self, spec: GrammarSpec, budget: Budget) -> MadeAutomaton:
        """Compile a spec.

        Raises:
            BudgetError: the automaton is too large or takes too long.
            GrammarError: the spec is malformed or not supported; or it allows no output.
        """
        try:
            with paused_collector():
                return self._make(spec, budget)
        except BudgetError as error:
            raise BudgetError(one_line(error.message)) from error
        except GrammarError as error:
            raise GrammarError(one_line(error.message)) from error
        except RecursionError:
            raise GrammarError(f"this {spec.kind} is nested too deep") from None

    def _make(self, spec: GrammarSpec, budget: Budget) -> MadeAutomaton:
        if spec.kind == "ebnf":
            raise GrammarError("automata cannot enforce an ebnf; the grammar backends auto and llguidance can")
        if spec.kind == "json_schema":
            if spec.lenient:
                return MadeAutomaton(*self._schemas.compile_lenient(spec.text, budget))
            return MadeAutomaton(self._schemas.compile(spec.text, budget))
        if spec.kind == "structural_tag":
            builder = AutomatonBuilder(budget)
            self._tags.build(spec.text, builder, budget)
            return MadeAutomaton(builder.build())
        dfa = choices_to_dfa(spec.text, budget) if spec.kind == "choices" else regex_to_dfa(spec.text, budget)
        if dfa.is_empty:
            raise GrammarError(f"no output at all satisfies this {spec.kind}")
        automaton = to_bytes(dfa, budget).restrict(self._usable_bytes, budget)
        if automaton.is_empty:
            raise GrammarError(f"no output that satisfies this {spec.kind} can be spelled with the model's vocabulary")
        return MadeAutomaton(automaton)


def compile_automaton(spec: GrammarSpec, config: GrammarConfig) -> ByteAutomaton:
    """Compile one spec, without regard to a vocabulary.

    Raises:
        GrammarError: see `AutomatonCompiler.make`.
    """
    return AutomatonCompiler(config).compile(spec)

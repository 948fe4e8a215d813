"""The grammar backend `auto`: our automata, and llguidance for what they cannot be made of."""

from functools import cached_property

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton_backend import AutomatonBackend
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import EnforcedGrammar, GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.llguidance_backend import LlguidanceBackend


class AutoBackend:
    """Implements `base.GrammarBackend`.

    Grammars in EBNF and Lark go to llguidance.  So does a regex whose automaton is too large: written in a neutral form
    it means the same there.  A JSON Schema does not (its reading differs there), and is refused.

    Args:
        vocabulary: The tokens.
        config: Limits and policies.
        tools: Worker processes and the disk cache.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig, tools: BackendTools) -> None:
        self._automata = AutomatonBackend(vocabulary, config, tools)
        self._parts = (vocabulary, config, tools)

    def compile_at_once(self, spec: GrammarSpec) -> EnforcedGrammar | None:
        """See `base.GrammarBackend`."""
        return (self._parser if spec.kind == "ebnf" else self._automata).compile_at_once(spec)

    def compile(self, spec: GrammarSpec, *, in_worker: bool) -> EnforcedGrammar:
        """See `base.GrammarBackend`."""
        if spec.kind == "ebnf":
            return self._parser.compile(spec, in_worker=in_worker)
        try:
            return self._automata.compile(spec, in_worker=in_worker)
        except BudgetError as error:
            if spec.kind in ("json_schema", "structural_tag"):
                raise BudgetError(
                    f"{error.message}; with --grammar-backend llguidance schemas of any size are taken, and read"
                    " differently (docs/grammar.md)"
                ) from None
            try:
                return self._parser.compile(spec, in_worker=in_worker)
            except GrammarError:
                raise error from None

    @cached_property
    def _parser(self) -> LlguidanceBackend:
        return LlguidanceBackend(*self._parts)

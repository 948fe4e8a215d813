"""AutomatonBackend: the grammar backend `fsm`, which compiles to automata of our own."""

import itertools
import re
import time
import weakref
from functools import cached_property

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton_record import from_record, to_record
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import EnforcedGrammar, GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compiler import AutomatonCompiler, MadeAutomaton
from sgl_runtime.grammar.disk_cache import AutomatonKeys
from sgl_runtime.grammar.distinct_items import DistinctGrammar, DistinctTokens
from sgl_runtime.grammar.fsm_backend import FsmGrammar
from sgl_runtime.grammar.token_mask import TokenMaskCache

_MASK_CACHE_BYTES = 256 * 2**20
# What is compiled beside the decode loop, in its process, must be over soon.
_AT_ONCE_S = 0.1
_AT_ONCE_STATES = 20_000
_AT_ONCE_CHARS = 200_000
# What counts to a million is tried where it can do no harm.
_LARGE_COUNT = re.compile(r"[0-9]{7}")
_WORTH_KEEPING_S = 0.02


class AutomatonBackend:
    """Implements `base.GrammarBackend`.

    Args:
        vocabulary: The tokens.
        config: Limits and policies.
        tools: Worker processes and the disk cache.

    Attributes:
        masks: Those of states that the grammars have visited.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig, tools: BackendTools) -> None:
        self._vocabulary = vocabulary
        self._config = config
        self._tools = tools
        self.masks = TokenMaskCache(tools.order, max_bytes=_MASK_CACHE_BYTES)
        self._compiler = AutomatonCompiler(config, tools.order.usable_bytes)
        self._keys = AutomatonKeys(config, tools.order.usable_bytes)
        self._ids = itertools.count()

    def compile_at_once(self, spec: GrammarSpec) -> EnforcedGrammar | None:
        """See `base.GrammarBackend`."""
        kept = self._kept(spec)
        if kept is not None:
            return self._grammar(kept)
        if len(spec.text) > _AT_ONCE_CHARS or _LARGE_COUNT.search(spec.text):
            return None
        budget = self._compiler.budget(stop=self._tools.stop, max_states=_AT_ONCE_STATES, timeout_s=_AT_ONCE_S)
        begin = time.monotonic()
        try:
            made = self._compiler.make(spec, budget)
        except BudgetError:
            return None
        if time.monotonic() - begin > _WORTH_KEEPING_S:
            self._keep(spec, made)
        return self._grammar(made)

    def compile(self, spec: GrammarSpec, *, in_worker: bool) -> EnforcedGrammar:
        """See `base.GrammarBackend`."""
        if not in_worker:
            return self._grammar(self._compiler.make(spec, self._compiler.budget(stop=self._tools.stop)))
        made = from_record(self._tools.workers.run("automaton", spec))
        self._keep(spec, made)
        return self._grammar(made)

    def _grammar(self, made: MadeAutomaton) -> EnforcedGrammar:
        automaton_id = next(self._ids)
        grammar = FsmGrammar(
            made.automaton,
            automaton_id=automaton_id,
            vocabulary=self._vocabulary,
            masks=self.masks,
            max_depth=self._config.max_grammar_depth,
        )
        # Cursors hold their grammar: when it goes, nobody needs its masks.
        weakref.finalize(grammar, self.masks.release, automaton_id)
        if not made.automaton.distinct:
            return EnforcedGrammar(grammar, "fsm", made.relaxed)
        return EnforcedGrammar(DistinctGrammar(grammar, self._vocabulary, self._distinct_tokens), "fsm", made.relaxed)

    @cached_property
    def _distinct_tokens(self) -> DistinctTokens:
        return DistinctTokens(self._vocabulary)

    def _kept(self, spec: GrammarSpec) -> MadeAutomaton | None:
        if self._tools.disk_cache is None:
            return None
        record = self._tools.disk_cache.get(self._keys.key(spec))
        return None if record is None else from_record(record)

    def _keep(self, spec: GrammarSpec, made: MadeAutomaton) -> None:
        if self._tools.disk_cache is not None:
            self._tools.disk_cache.put(self._keys.key(spec), *to_record(made))

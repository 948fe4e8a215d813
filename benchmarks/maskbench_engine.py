"""Our grammar compiler as an engine of the MaskBench driver.

The driver, `maskbench_run.py`, feeds JSON Schemas with valid and invalid instances, and regexes with strings, to an
engine and counts what it gets right, and how fast.  Run it with this folder and the runtime on the path:

    PYTHONPATH=benchmarks:runtime python maskbench_run.py maskbench_engine:FsmEngine CASES --anchor-only --tokenizer DIR

Policies: objects are open, as the specification says; properties come in the order of the schema; one space after each
comma and colon.  Every grammar is compiled anew; fragments (strings, numbers, formats, patterns that came before) are
remembered, and the garbage collector is spared, as in a server.  `WarmFsmEngine` has seen the patterns of all cases
before; MASKBENCH_CASES is their file.  `VisitedFsmEngine` besides makes every mask once before the driver asks for it,
so that what the driver calls `mask` is the time of a state that was visited before.
"""

import gzip
import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import Grammar, GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.distinct_items import DistinctGrammar
from sgl_runtime.grammar.fsm_backend import FsmGrammar
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.grammar.json_schema.formats import FORMATS
from sgl_runtime.serving.collector import spare_collector
from sgl_runtime.version import distribution_version

# Fragments that any server has made before long: free text, numbers, any value, the standard formats.
_WARM_UP = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 0},
        "share": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {},
        **{name: {"type": "string", "format": name} for name in FORMATS},
    },
}


class FsmMatcher:
    """One sequence under a grammar; what the driver calls a Matcher.

    Args:
        grammar: The constraint.
        num_words: Length of a mask.
    """

    def __init__(self, grammar: Grammar, num_words: int) -> None:
        self._grammar = grammar
        self._state = grammar.new_state()
        self._row = np.zeros(num_words, dtype=np.int32)

    @property
    def num_states(self) -> int | None:
        """Number of automaton states; None for a grammar that is no automaton."""
        grammar = self._grammar.fsm if isinstance(self._grammar, DistinctGrammar) else self._grammar
        return grammar.automaton.num_states if isinstance(grammar, FsmGrammar) else None

    def reset(self) -> None:
        """Go back to the beginning."""
        self._state = self._grammar.new_state()

    def mask(self) -> NDArray[np.int32]:
        """The tokens that may come next."""
        self._state.fill_mask(self._row)
        return self._row

    def advance(self, token: int) -> bool:
        """Move past a token."""
        return self._state.advance(token)

    def is_accepting(self) -> bool:
        """Whether the sequence may end here."""
        return self._state.can_end()


class VisitedFsmMatcher(FsmMatcher):
    """One that makes each mask before it is asked for; the driver counts that as time of `advance`."""

    def advance(self, token: int) -> bool:
        """Move past a token, and make the mask that comes next."""
        moved = super().advance(token)
        if moved:
            self.mask()
        return moved


class FsmEngine:
    """What the driver calls an Engine.

    Args:
        tok: The driver's tokenizer: `bytes`, `eos` and `n_vocab`.
    """

    name = "sgl"
    matcher_type = FsmMatcher

    def __init__(self, tok: Any) -> None:
        self._vocabulary = GrammarVocabulary(tok.bytes, frozenset([tok.eos]), tok.n_vocab)
        self._config = GrammarConfig(json_additional_properties="open", grammar_compile_timeout=15.0)
        self._compiler = GrammarCompiler(self._vocabulary, self._config)
        self.compile(_WARM_UP).mask()
        spare_collector()

    def version(self) -> str:
        """What is measured."""
        return distribution_version()

    def compile(self, schema: Any) -> FsmMatcher:
        """A JSON Schema, parsed, to a matcher whose first mask is there."""
        return self._matcher(GrammarSpec("json_schema", json.dumps(schema)))

    def compile_regex(self, pattern: str) -> FsmMatcher:
        """A regex to a matcher whose first mask is there."""
        return self._matcher(GrammarSpec("regex", pattern))

    def n_states(self, matcher: FsmMatcher) -> int | None:
        """Number of automaton states."""
        return matcher.num_states

    def _matcher(self, spec: GrammarSpec) -> FsmMatcher:
        grammar = self._compiler.compile_now(spec)
        matcher = self.matcher_type(grammar, self._vocabulary.num_mask_words)
        matcher.mask()
        return matcher


class WarmFsmEngine(FsmEngine):
    """An engine that has met the fragments of all cases."""

    name = "sgl-warm"

    def __init__(self, tok: Any) -> None:
        super().__init__(tok)
        with gzip.open(os.environ["MASKBENCH_CASES"], "rt", encoding="utf-8") as lines:
            for line in lines:
                case = json.loads(line)
                try:
                    self.compile(case["schema"])
                except GrammarError:
                    continue
        spare_collector()


class VisitedFsmEngine(WarmFsmEngine):
    """An engine whose states were all visited before."""

    name = "sgl-visited"
    matcher_type = VisitedFsmMatcher

"""GrammarCompiler: from what a request asks for to a Grammar, in the background, each spec once.

Called by the scheduler when it accepts a request with a constraint.
"""

import itertools
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import Grammar, GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.choices import choices_to_dfa
from sgl_runtime.grammar.fsm_backend import FsmGrammar
from sgl_runtime.grammar.json_schema.front_end import JsonPolicy, SchemaFrontEnd
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.regex import regex_to_dfa
from sgl_runtime.grammar.structural_tags import TagFrontEnd
from sgl_runtime.grammar.token_mask import TokenMaskCache
from sgl_runtime.grammar.utf8 import to_bytes
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

_MASK_CACHE_BYTES = 256 * 2**20
_NUM_THREADS = 2
_MAX_MESSAGE_LEN = 400


@dataclass(frozen=True)
class CompiledGrammar:
    """What `submit` promises.

    Attributes:
        grammar: The constraint.
        compile_seconds: Time that the compilation took; 0.0 when it was found in the cache.
    """

    grammar: Grammar
    compile_seconds: float


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
        """Compile a spec.

        Args:
            spec: The constraint.
            stop: Ends the compilation early once it is set.

        Raises:
            GrammarError: the spec is malformed, not supported, too large or takes too long; or it allows no output.
        """
        config = self._config
        budget = Budget(max_states=config.max_grammar_states, timeout_s=config.grammar_compile_timeout, stop=stop)
        try:
            if spec.kind == "json_schema":
                return self._schemas.compile(spec.text, budget)
            if spec.kind == "structural_tag":
                builder = AutomatonBuilder(budget)
                self._tags.build(spec.text, builder, budget)
                return builder.build()
            dfa = choices_to_dfa(spec.text, budget) if spec.kind == "choices" else regex_to_dfa(spec.text, budget)
        except GrammarError as error:
            raise GrammarError(_one_line(error.message)) from error
        except RecursionError:
            raise GrammarError(f"this {spec.kind} is nested too deep") from None
        if dfa.is_empty:
            raise GrammarError(f"no output at all satisfies this {spec.kind}")
        automaton = to_bytes(dfa, budget).restrict(self._usable_bytes, budget)
        if automaton.is_empty:
            raise GrammarError(f"no output that satisfies this {spec.kind} can be spelled with the model's vocabulary")
        return automaton


def compile_automaton(spec: GrammarSpec, config: GrammarConfig) -> ByteAutomaton:
    """Compile one spec, without regard to a vocabulary.

    Raises:
        GrammarError: see `AutomatonCompiler.compile`.
    """
    return AutomatonCompiler(config).compile(spec)


class GrammarCompiler:
    """Compiles, and remembers what it compiled.

    Args:
        vocabulary: The tokens of the served model.
        config: Limits and policies.
    """

    def __init__(self, vocabulary: GrammarVocabulary, config: GrammarConfig) -> None:
        self._vocabulary = vocabulary
        self._config = config
        self._order = VocabularyOrder.of(vocabulary)
        self._masks = TokenMaskCache(self._order, max_bytes=_MASK_CACHE_BYTES)
        self._automata = AutomatonCompiler(config, self._order.usable_bytes)
        self._automaton_ids = itertools.count()
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="grammar-compiler")
        self._stopped = Event()
        self._lock = Lock()
        self._known: OrderedDict[GrammarSpec, Future[CompiledGrammar]] = OrderedDict()

    def compile(self, spec: GrammarSpec) -> Grammar:
        """Compile, or find, a grammar and wait for it.

        Raises:
            GrammarError: see `AutomatonCompiler.compile`.
        """
        return self.submit(spec).result().grammar

    def compile_now(self, spec: GrammarSpec) -> FsmGrammar:
        """Compile in this thread, whether the grammar is known or not; it is not kept.

        Raises:
            GrammarError: see `AutomatonCompiler.compile`.
        """
        automaton = self._automata.compile(spec, stop=self._stopped)
        return FsmGrammar(
            automaton,
            automaton_id=next(self._automaton_ids),
            vocabulary=self._vocabulary,
            masks=self._masks,
            max_depth=self._config.max_grammar_depth,
        )

    def submit(self, spec: GrammarSpec) -> "Future[CompiledGrammar]":
        """Compile in the background; a spec that is known or being compiled is not compiled again.

        Returns:
            A future whose exception, if it has one, is a `GrammarError`.
        """
        with self._lock:
            known = self._known.get(spec)
            if known is not None:
                self._known.move_to_end(spec)
                return _found(known) if known.done() else known
            future = self._threads.submit(self._compile, spec)
            self._known[spec] = future
            if len(self._known) > self._config.grammar_cache_size:
                self._known.popitem(last=False)
        # Failures are not kept: a later attempt may find an idle machine or a warm fragment cache.
        future.add_done_callback(lambda done: self._forget_failure(spec, done))
        return future

    def close(self) -> None:
        """Stop the threads; compilations that have not begun are cancelled, those that run end soon."""
        self._stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        start = time.monotonic()
        grammar = self.compile_now(spec)
        return CompiledGrammar(grammar, time.monotonic() - start)

    def _forget_failure(self, spec: GrammarSpec, future: "Future[CompiledGrammar]") -> None:
        if future.cancelled() or future.exception() is not None:
            with self._lock:
                if self._known.get(spec) is future:
                    del self._known[spec]


def _one_line(message: str) -> str:
    """A message with what it quotes from a request, a path or a name, made short and printable."""
    if len(message) > _MAX_MESSAGE_LEN:
        message = f"{message[: _MAX_MESSAGE_LEN // 2]} ... {message[-_MAX_MESSAGE_LEN // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)


def _found(known: "Future[CompiledGrammar]") -> "Future[CompiledGrammar]":
    """A future that is done, with the same outcome and no time taken."""
    found: Future[CompiledGrammar] = Future()
    failure = known.exception()
    if failure is not None:
        found.set_exception(failure)
    else:
        found.set_result(CompiledGrammar(known.result().grammar, 0.0))
    return found

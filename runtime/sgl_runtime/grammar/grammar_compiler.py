"""GrammarCompiler: from what a request asks for to a Grammar, in the background, each spec once.

Called by the scheduler when it accepts a request with a constraint.  Compilations that are over soon run in a thread;
the others go on in a worker process, and do not hold back those that come behind them.
"""

import logging
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

import numpy as np

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import EnforcedGrammar, Grammar, GrammarBackend, GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compile_workers import CompileWorkers
from sgl_runtime.grammar.disk_cache import DiskCache
from sgl_runtime.grammar.packed_arrays import Arrays
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder
from sgl_runtime.grammar.worker_setup import WorkerSetup
from sgl_runtime.registry import Registry

logger = logging.getLogger(__name__)

GRAMMAR_BACKENDS = Registry(
    "grammar backend",
    {
        "auto": "sgl_runtime.grammar.auto_backend:AutoBackend",
        "fsm": "sgl_runtime.grammar.automaton_backend:AutomatonBackend",
        "llguidance": "sgl_runtime.grammar.llguidance_backend:LlguidanceBackend",
        "outlines": "sgl_runtime.grammar.outlines_backend:OutlinesBackend",
    },
)

_NUM_THREADS = 2
_NUM_WORKERS = 2


@dataclass(frozen=True)
class CompiledGrammar:
    """What `submit` promises.

    Attributes:
        enforced: The constraint.
        compile_seconds: Time that the compilation took; 0.0 when it was found in the cache.
    """

    enforced: EnforcedGrammar
    compile_seconds: float

    @property
    def grammar(self) -> Grammar:
        """The constraint itself."""
        return self.enforced.grammar


class GrammarCompiler:
    """Compiles, and remembers what it compiled.

    Args:
        vocabulary: The tokens of the served model.
        config: The backend, limits and policies.
        cache_folder: Where compiled automata are kept on disk; None for nowhere.

    Raises:
        ConfigError: the backend needs a package that is not there.
    """

    def __init__(
        self, vocabulary: GrammarVocabulary, config: GrammarConfig, *, cache_folder: Path | None = None
    ) -> None:
        self._stopped = Event()
        order = VocabularyOrder.of(vocabulary)
        self._workers = CompileWorkers(
            lambda: WorkerSetup(config, {"usable_bytes": order.usable_bytes, **vocabulary_arrays(vocabulary)}),
            timeout_s=config.grammar_compile_timeout,
        )
        disk_cache = None if cache_folder is None else DiskCache(cache_folder)
        tools = BackendTools(order, self._workers, disk_cache, self._stopped)
        self._backend: GrammarBackend = GRAMMAR_BACKENDS.load(config.grammar_backend)(vocabulary, config, tools)
        self._cache_size = config.grammar_cache_size
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="grammar-compiler")
        self._heavy_threads = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="grammar-compiler-heavy")
        self._lock = Lock()
        self._known: OrderedDict[GrammarSpec, Future[CompiledGrammar]] = OrderedDict()

    def compile(self, spec: GrammarSpec) -> Grammar:
        """Compile, or find, a grammar and wait for it.

        Raises:
            GrammarError: see `base.GrammarBackend.compile`.
        """
        return self.submit(spec).result().grammar

    def compile_now(self, spec: GrammarSpec) -> Grammar:
        """Compile in this thread, whether the grammar is known or not; it is not kept.

        Raises:
            GrammarError: see `base.GrammarBackend.compile`.
        """
        return self._backend.compile(spec, in_worker=False).grammar

    def submit(self, spec: GrammarSpec) -> "Future[CompiledGrammar]":
        """Compile in the background; a spec that is known or being compiled is not compiled again.

        Returns:
            A future whose exception, if it has one, is an `SglRuntimeError`, commonly a `GrammarError`.
        """
        with self._lock:
            known = self._known.get(spec)
            if known is not None:
                self._known.move_to_end(spec)
                return _found(known) if known.done() else known
            future: Future[CompiledGrammar] = Future()
            self._known[spec] = future
            if len(self._known) > self._cache_size:
                self._known.popitem(last=False)
        # Failures are not kept: a later attempt may find an idle machine or a warm fragment cache.
        future.add_done_callback(lambda done: self._forget_failure(spec, done))
        self._threads.submit(self._begin, spec, future)
        return future

    def close(self) -> None:
        """Stop threads and processes; compilations that run or wait fail."""
        self._stopped.set()
        self._workers.close()
        # The first threads hand work to the second ones.
        self._threads.shutdown(wait=True)
        self._heavy_threads.shutdown(wait=True)

    def _begin(self, spec: GrammarSpec, future: "Future[CompiledGrammar]") -> None:
        future.set_running_or_notify_cancel()
        start = time.monotonic()
        try:
            self._refuse_when_stopped()
            enforced = self._backend.compile_at_once(spec)
        except BaseException as error:
            future.set_exception(_known_failure(error))
            return
        seconds = time.monotonic() - start
        if enforced is not None:
            future.set_result(CompiledGrammar(enforced, seconds))
        else:
            self._heavy_threads.submit(self._go_on, spec, future, seconds)

    def _go_on(self, spec: GrammarSpec, future: "Future[CompiledGrammar]", seconds: float) -> None:
        start = time.monotonic()
        try:
            self._refuse_when_stopped()
            enforced = self._backend.compile(spec, in_worker=True)
        except BaseException as error:
            future.set_exception(_known_failure(error))
            return
        future.set_result(CompiledGrammar(enforced, seconds + time.monotonic() - start))

    def _refuse_when_stopped(self) -> None:
        if self._stopped.is_set():
            raise BudgetError("compiling the grammar was stopped because the runtime ends")

    def _forget_failure(self, spec: GrammarSpec, future: "Future[CompiledGrammar]") -> None:
        if future.exception() is not None:
            with self._lock:
                if self._known.get(spec) is future:
                    del self._known[spec]


def vocabulary_arrays(vocabulary: GrammarVocabulary) -> Arrays:
    """A vocabulary as arrays, for the worker processes."""
    lengths = [-1 if data is None else len(data) for data in vocabulary.token_bytes]
    joined = b"".join(data for data in vocabulary.token_bytes if data)
    return {
        "token_lengths": np.array(lengths, dtype=np.int32),
        "token_bytes": np.frombuffer(joined, dtype=np.uint8),
        "eos_ids": np.array(sorted(vocabulary.eos_ids), dtype=np.int32),
        "vocabulary_size": np.array([vocabulary.size], dtype=np.int64),
    }


def _known_failure(error: BaseException) -> SglRuntimeError:
    """The error for the request; one that nobody foresaw ends the request and not the server."""
    if isinstance(error, SglRuntimeError):
        return error
    logger.error("compiling a grammar failed inside the server", exc_info=error)
    return SglRuntimeError("compiling the grammar failed inside the server")


def _found(known: "Future[CompiledGrammar]") -> "Future[CompiledGrammar]":
    """A future that is done, with the same outcome and no time taken."""
    found: Future[CompiledGrammar] = Future()
    failure = known.exception()
    if failure is not None:
        found.set_exception(failure)
    else:
        found.set_result(CompiledGrammar(known.result().enforced, 0.0))
    return found

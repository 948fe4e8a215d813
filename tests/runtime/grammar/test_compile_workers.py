"""Heavy compilations run in processes of their own, which really end."""

import json
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton_record import from_record
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compile_workers import CompileWorkers
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler, vocabulary_arrays
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder
from sgl_runtime.grammar.worker_setup import WorkerSetup

BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256))), frozenset({0}), 257)
SIMPLE = GrammarSpec("regex", "ab*")
SLOW = GrammarSpec("regex", "(?:.*[a-f]){9}(?:.*a.*b.{12}){6}")
CHAIN = GrammarSpec("ebnf", "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(40_000)) + '\nr40000: "a"')


def workers_of(config: GrammarConfig) -> CompileWorkers:
    arrays = {"usable_bytes": VocabularyOrder.of(BYTES).usable_bytes, **vocabulary_arrays(BYTES)}
    return CompileWorkers(lambda: WorkerSetup(config, arrays), timeout_s=config.grammar_compile_timeout)


def child_pids() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


@pytest.fixture(scope="module")
def workers() -> Iterator[CompileWorkers]:
    made = workers_of(GrammarConfig(max_grammar_states=10_000_000, grammar_compile_timeout=60.0))
    yield made
    made.close()


def test_a_process_is_used_again(workers: CompileWorkers) -> None:
    workers.run("automaton", SIMPLE)
    before = child_pids()
    facts, arrays = workers.run("automaton", SIMPLE)
    assert child_pids() == before
    assert facts["relaxed"] == []
    assert arrays["accepting"].tolist() == [False, True]


def test_an_error_comes_back_with_its_class(workers: CompileWorkers) -> None:
    with pytest.raises(GrammarError, match="position 0") as caught:
        workers.run("automaton", GrammarSpec("regex", "("))
    assert not isinstance(caught.value, BudgetError)


def test_a_worker_keeps_to_its_limit() -> None:
    workers = workers_of(GrammarConfig(max_grammar_states=10_000_000, grammar_compile_timeout=1.0))
    with pytest.raises(BudgetError, match="took longer than 1 seconds"):
        workers.run("automaton", SLOW)
    workers.close()


def test_a_crash_ends_one_request(workers: CompileWorkers) -> None:
    with pytest.raises(GrammarError, match=r"made its process end \(SIGSEGV\)"):
        workers.run("llguidance", CHAIN)
    workers.run("automaton", SIMPLE)


def test_a_process_that_is_gone_is_replaced(workers: CompileWorkers) -> None:
    workers.run("automaton", SIMPLE)
    for pid in child_pids():
        os.kill(pid, signal.SIGKILL)
        psutil.Process(pid).wait()
    workers.run("automaton", SIMPLE)


def test_work_that_ignores_its_limit_is_ended() -> None:
    # The limit that the worker knows is far off.
    config = GrammarConfig(max_grammar_states=10_000_000, grammar_compile_timeout=60.0)
    arrays = {"usable_bytes": VocabularyOrder.of(BYTES).usable_bytes}
    workers = CompileWorkers(lambda: WorkerSetup(config, arrays), timeout_s=0.1)
    start = time.monotonic()
    with pytest.raises(BudgetError, match=r"took longer than 0\.1 seconds"):
        workers.run("automaton", SLOW)
    assert time.monotonic() - start < 30
    workers.close()


def test_memory_is_limited() -> None:
    config = GrammarConfig(max_grammar_states=10**9, grammar_compile_timeout=300.0, grammar_compile_memory=256)
    workers = workers_of(config)
    with pytest.raises(BudgetError, match="needs more than 256 MiB of memory"):
        workers.run("automaton", GrammarSpec("regex", "[ab]*a[ab]{22}"))
    workers.close()


def test_closing_ends_the_processes() -> None:
    before = set(child_pids())
    workers = workers_of(GrammarConfig())
    workers.run("automaton", SIMPLE)
    assert set(child_pids()) > before
    workers.close()
    assert set(child_pids()) == before
    with pytest.raises(BudgetError, match="runtime ends"):
        workers.run("automaton", SIMPLE)


def test_heavy_compilations_hold_nobody_back() -> None:
    config = GrammarConfig(grammar_backend="fsm", max_grammar_states=10_000_000, grammar_compile_timeout=60)
    compiler = GrammarCompiler(BYTES, config)
    heavy = [compiler.submit(GrammarSpec("regex", f"x{{{n}}}{SLOW.text}")) for n in range(4)]
    light = [compiler.submit(GrammarSpec("json_schema", json.dumps({"const": n}))) for n in range(20)]
    assert all(future.result().enforced.backend == "fsm" for future in light)
    assert not any(future.done() for future in heavy)
    compiler.close()
    assert all("runtime ends" in str(future.exception()) for future in heavy)


def test_what_a_worker_made_is_what_is_made_here(workers: CompileWorkers) -> None:
    schema = {"type": "array", "items": {"properties": {"a": {"type": "string"}, "b": {"maxLength": 30}}}}
    spec = GrammarSpec("json_schema", json.dumps(schema))
    here = compile_automaton(spec, GrammarConfig())
    there = from_record(workers.run("automaton", spec)).automaton
    for name in ("byte_classes", "table", "accepting", "edge_target", "edge_argument", "returns"):
        assert (getattr(here, name) == getattr(there, name)).all()
    assert len(there.parts) > 0

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

SLOW = GrammarSpec("regex", "(?:.*[a-f]){9}(?:.*a.*b.{12}){6}")
FSM_OF_ANY_SIZE = GrammarConfig(grammar_backend="fsm", max_grammar_states=10_000_000, grammar_compile_timeout=0.3)
BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256))), frozenset({0}), 257)


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(BYTES, GrammarConfig(grammar_cache_size=2, grammar_compile_timeout=5))
    yield made
    made.close()


def test_a_known_spec_is_not_compiled_again(compiler: GrammarCompiler) -> None:
    spec = GrammarSpec("regex", "[a-z]{1,300}")
    first = compiler.submit(spec).result()
    again = compiler.submit(GrammarSpec("regex", "[a-z]{1,300}")).result()
    assert first.compile_seconds > 0.0
    assert again.compile_seconds == 0.0
    assert again.grammar is first.grammar
    assert compiler.compile(spec) is first.grammar


def test_the_cache_is_bounded(compiler: GrammarCompiler) -> None:
    first = compiler.compile(GrammarSpec("regex", "a"))
    compiler.compile(GrammarSpec("regex", "b"))
    assert compiler.compile(GrammarSpec("regex", "a")) is first
    compiler.compile(GrammarSpec("regex", "c"))
    assert compiler.compile(GrammarSpec("regex", "a")) is first
    assert compiler.submit(GrammarSpec("regex", "b")).result().compile_seconds > 0.0


def test_a_spec_in_flight_is_compiled_once(compiler: GrammarCompiler) -> None:
    spec = GrammarSpec("regex", "[^\n]{0,500}")
    futures = [compiler.submit(spec) for _ in range(8)]
    assert len({id(future.result().grammar) for future in futures}) == 1


def test_errors_come_out_of_the_future_and_do_not_last(compiler: GrammarCompiler) -> None:
    for _ in range(2):
        assert isinstance(compiler.submit(GrammarSpec("regex", "(")).exception(), GrammarError)
    with pytest.raises(GrammarError, match="position 0"):
        compiler.compile(GrammarSpec("regex", "("))
    assert compiler.compile(GrammarSpec("regex", "a"))


def compile_threads() -> set[threading.Thread]:
    """Threads of all compilers in this process; other tests may keep an engine."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("grammar-compiler")}


def test_the_timeout_ends_the_work() -> None:
    before = compile_threads()
    compiler = GrammarCompiler(BYTES, FSM_OF_ANY_SIZE)
    start = time.monotonic()
    with pytest.raises(GrammarError, match=r"took longer than 0\.3 seconds"):
        compiler.compile(SLOW)
    compiler.close()
    assert time.monotonic() - start < 10
    assert compile_threads() <= before


def test_an_output_that_the_vocabulary_cannot_spell_is_refused() -> None:
    vocabulary = GrammarVocabulary((None, b"a", b"b", b"ab"), frozenset({0}), 4)
    compiler = GrammarCompiler(vocabulary, GrammarConfig())
    with pytest.raises(GrammarError, match="can be spelled with the model's vocabulary"):
        compiler.compile(GrammarSpec("regex", "a[xy]"))
    state = compiler.compile(GrammarSpec("regex", "a[xb]|bx")).new_state()
    # "b" alone would lead to a place from which no token goes on.
    assert not state.advance(2)
    assert state.advance(3)
    compiler.close()


def test_closing_ends_a_compilation_that_runs() -> None:
    before = compile_threads()
    compiler = GrammarCompiler(BYTES, replace(FSM_OF_ANY_SIZE, grammar_compile_timeout=60))
    running = compiler.submit(SLOW)
    while not running.running():
        time.sleep(0.001)
    compiler.close()
    assert "runtime ends" in str(running.exception())
    assert compile_threads() <= before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["x" * 300_000], "properties": {}},
        {"properties": {"a\nb\x00": {"type": "strange"}}},
        {"properties": {"a" * 5000: {"type": "strange"}}},
    ],
)
def test_an_error_is_one_short_line_whatever_it_quotes(compiler: GrammarCompiler, schema: dict[str, object]) -> None:
    message = str(compiler.submit(GrammarSpec("json_schema", json.dumps(schema))).exception())
    assert message.isprintable()
    assert 20 < len(message) < 450

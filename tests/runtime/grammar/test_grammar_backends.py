"""The table of grammar backends, and the one that needs a package of others."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import ConfigError, GrammarError
from sgl_runtime.grammar import outlines_backend
from sgl_runtime.grammar.base import GrammarSpec, GrammarState, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GRAMMAR_BACKENDS, GrammarCompiler

VOCABULARY = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256)), b"ab", b"ab"), frozenset({0}), 262)
needs_outlines = pytest.mark.skipif(find_spec("outlines_core") is None, reason="needs package outlines-core")


def allowed(state: GrammarState) -> list[int]:
    row = np.full(VOCABULARY.num_mask_words, -1, dtype=np.int32)
    state.fill_mask(row)
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def test_every_name_is_a_backend() -> None:
    assert GRAMMAR_BACKENDS.names() == ["auto", "fsm", "llguidance", "outlines"]
    for name in ("auto", "fsm", "llguidance"):
        compiler = GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend=name))
        assert allowed(compiler.compile(GrammarSpec("regex", "ab?")).new_state()) == [98, 257, 258]
        assert compiler.compile_now(GrammarSpec("choices", '["b"]')).new_state().advance(99)
        compiler.close()


def test_fsm_refuses_grammars() -> None:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend="fsm"))
    with pytest.raises(GrammarError, match="automata cannot enforce an ebnf"):
        compiler.compile(GrammarSpec("ebnf", 'root ::= "a"'))
    compiler.close()


def test_a_package_that_is_not_there_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines_backend, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install outlines-core"):
        GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend="outlines"))


@needs_outlines
def test_outlines_enforces_what_it_can() -> None:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend="outlines", json_whitespace="compact"))
    state = compiler.compile(GrammarSpec("regex", "ab*")).new_state()
    assert allowed(state) == [98, 257, 258]
    assert not state.advance(0)
    assert not state.advance(99)
    assert not state.advance(-1)
    assert state.advance(258)
    assert allowed(state) == [0, 99]
    assert state.can_end()
    assert not state.must_end()
    assert state.advance(0)
    state = compiler.compile(GrammarSpec("choices", '["x", "é"]')).new_state()
    assert state.advance(ord("x") + 1)
    assert state.must_end()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    state = compiler.compile(GrammarSpec("json_schema", json.dumps(schema))).new_state()
    assert all(state.advance(byte + 1) for byte in b'{"n":12}')
    assert state.must_end()
    compiler.close()


@needs_outlines
def test_outlines_passes_nothing_over_in_silence() -> None:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend="outlines"))
    schema = json.dumps({"type": "integer", "minimum": 3})
    with pytest.raises(GrammarError, match="#/minimum is a keyword that outlines does not enforce"):
        compiler.compile(GrammarSpec("json_schema", schema))
    lenient = compiler.submit(GrammarSpec("json_schema", schema, lenient=True)).result().enforced
    assert (lenient.backend, [each.path for each in lenient.relaxed]) == ("outlines", ["#/minimum"])
    for kind, text, message in (
        ("ebnf", "start: /a/", "outlines cannot enforce ebnf"),
        ("regex", "a(?=b)b", "only automata can enforce"),
        ("json_schema", '{"type": "strange"}', "json_schema: "),
        ("json_schema", "{", "is not JSON"),
        ("choices", "[]", "non-empty"),
    ):
        with pytest.raises(GrammarError, match=message):
            compiler.compile(GrammarSpec(kind, text))
    compiler.close()

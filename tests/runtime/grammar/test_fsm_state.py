import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarState, GrammarVocabulary
from sgl_runtime.grammar.fsm_backend import FsmState
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.grammar.token_mask import compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

VOCABULARY = GrammarVocabulary((b"</s>", b"a", b"ab", b"b", b"c", None, b"", b"<e>"), frozenset({0, 7}), 40)


@pytest.fixture
def state() -> GrammarState:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig())
    try:
        return compiler.compile(GrammarSpec("regex", "ab?|abc")).new_state()
    finally:
        compiler.close()


def allowed(state: GrammarState) -> list[int]:
    row = np.full(2, -1, dtype=np.int32)
    state.fill_mask(row)
    return [index for index in range(64) if int(row[index // 32]) >> (index % 32) & 1]


def test_walk_to_the_end(state: GrammarState) -> None:
    assert allowed(state) == [1, 2]
    assert not state.can_end()
    assert not state.advance(0)
    assert state.advance(1)
    assert allowed(state) == [0, 3, 7]
    assert state.can_end()
    assert not state.must_end()
    assert state.advance(7)
    assert allowed(state) == [0, 3, 7]
    assert state.advance(3)
    assert state.can_end()
    assert state.advance(4)
    assert state.must_end()
    assert allowed(state) == [0, 7]


def test_a_refused_token_changes_nothing(state: GrammarState) -> None:
    for token_id in (3, 4, 5, 6, 39, 1000, -1):
        assert not state.advance(token_id)
    assert allowed(state) == [1, 2]


def test_cursors_are_independent() -> None:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig())
    grammar = compiler.compile(GrammarSpec("choices", '["ab", "b"]'))
    first, second = grammar.new_state(), grammar.new_state()
    assert first.advance(3)
    assert first.must_end()
    assert allowed(second) == [1, 2, 3]
    compiler.close()


def test_filling_does_not_spoil_remembered_rows() -> None:
    compiler = GrammarCompiler(VOCABULARY, GrammarConfig())
    ends, goes_on = (compiler.compile(GrammarSpec("regex", regex)).new_state() for regex in ("b*", "b+"))
    assert allowed(ends) == [0, 3, 7]
    assert allowed(goes_on) == [3]
    assert allowed(ends) == [0, 3, 7]
    compiler.close()


@pytest.mark.parametrize("limit", [1, 2, 9, 40])
@pytest.mark.parametrize("schema", ["{}", '{"type": "array"}'])
def test_masks_know_of_the_limit_on_the_depth(schema: str, limit: int) -> None:
    tokens = (b"</s>", b"[", b"[[", b"[[[", b"]", b"1", b'{"a": ', b"}", b'"', b"a", b'["', b'": [', b", ")
    vocabulary = GrammarVocabulary(tokens, frozenset({0}), len(tokens))
    compiler = GrammarCompiler(vocabulary, GrammarConfig(max_grammar_depth=limit))
    order = VocabularyOrder.of(vocabulary)
    state = compiler.compile(GrammarSpec("json_schema", schema)).new_state()
    compiler.close()
    assert isinstance(state, FsmState)
    depths = []
    while True:
        place, stack = state.place
        expected = compute_mask(state.automaton, place, stack, order, max_depth=limit)
        found = np.zeros_like(expected)
        state.fill_mask(found)
        assert bits(found) == bits(expected)
        depths.append(len(stack))
        # One level deeper while that may be.
        if 1 not in bits(expected):
            break
        assert state.advance(1)
    assert max(depths) == limit


def bits(row: np.ndarray) -> list[int]:
    return [index for index in range(32 * len(row)) if int(row[index // 32]) >> (index % 32) & 1]

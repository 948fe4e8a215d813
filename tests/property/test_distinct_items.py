"""Arrays whose items must differ: what comes out is valid, and masks leave out what can only repeat an item."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarState, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.distinct_items import DistinctGrammar
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

PIECES = [
    '"a', '"a"', '"a",', '"a", "', '", "', '", "a"', '", "a", "b"', '"]', 'a"', 'b"', 'aa', 'ab"', '\\u0061', '\\u00', '61',
    '\\ud83d', '\\ude00', "\\", '\\"', '😀', '"}', '"}, {"', '"}, {"k": "', '{"k": "a"}', '{"k": ', "1", "1,", "1, 1", "1]", "1.0",
    ".0", "e0", "1e", "11", ", 1", ", ", "[1]", "[1], [1]", "[[", "]]", "],", "}, {", "null", "nu", "true", "tr", "ue, true",
    '["a", "a"]', '["a", "b"]', '[1, 1', "red", 'red"', '"red', "re", 'rose"', '"k": ', '": "', '{"', "k",
]  # fmt: skip
TOKENS: list[bytes | None] = [None, *(bytes([byte]) for byte in range(256)), *(each.encode() for each in PIECES)]
VOCABULARY = GrammarVocabulary(tuple(TOKENS), frozenset([0]), len(TOKENS))
COLORS = ["red", "rose", "reed", "a", "ab", "abc", "b", "c", "d"]
SCHEMAS: list[Any] = [
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "maxItems": 6},
    {"type": "array", "items": {"type": "number", "minimum": 0}, "uniqueItems": True, "maxItems": 5},
    {"type": "array", "items": {"enum": COLORS}, "uniqueItems": True},
    {
        "type": "array",
        "items": {"anyOf": [{"enum": COLORS}, {"type": "null"}, {"type": "boolean"}]},
        "uniqueItems": True,
    },
    {
        "type": "array",
        "items": {"properties": {"k": {"enum": [*COLORS, 1, 1.5]}}, "required": ["k"], "additionalProperties": False},
        "uniqueItems": True,
        "maxItems": 5,
    },
    {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "uniqueItems": True,
    },
    {
        "properties": {"k": {"type": "array", "uniqueItems": True}, "a": {"items": {"type": "string"}}},
        "required": ["k", "a"],
        "additionalProperties": False,
    },
]


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend="fsm"))


def grammar_of(compiler: GrammarCompiler, schema: Any) -> DistinctGrammar:
    grammar = compiler.submit(GrammarSpec("json_schema", json.dumps(schema))).result().enforced.grammar
    assert isinstance(grammar, DistinctGrammar)
    return grammar


def allowed_by(state: GrammarState) -> set[int]:
    row = np.zeros(VOCABULARY.num_mask_words, dtype=np.int32)
    state.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def behind(grammar: DistinctGrammar, path: list[int]) -> GrammarState | None:
    state = grammar.new_state()
    return state if all(state.advance(token) for token in path) else None


def can_go_on(grammar: DistinctGrammar, path: list[int], *, depth: int) -> bool:
    """Whether something is allowed behind a path that may be dead, so many tokens on."""
    state = behind(grammar, path)
    if state is None:
        return False
    if depth == 0 or state.can_end():
        return True
    bytes_allowed = [token for token in allowed_by(state) if 0 < token <= 256]
    return any(can_go_on(grammar, [*path, token], depth=depth - 1) for token in bytes_allowed)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_walks_under_masks_are_valid_and_masks_are_exact(compiler: GrammarCompiler, number: int) -> None:
    schema, rng = SCHEMAS[number], random.Random(number)
    grammar = grammar_of(compiler, schema)
    validator = jsonschema.Draft202012Validator(schema)
    num_ended = 0
    for walk in range(40):
        path: list[int] = []
        state = grammar.new_state()
        while len(path) < 40:
            allowed = allowed_by(state)
            assert allowed, (number, [TOKENS[token] for token in path])
            assert (0 in allowed) == state.can_end()
            if walk < 2:
                for token in range(1, len(TOKENS)):
                    if token in allowed:
                        assert behind(grammar, [*path, token]) is not None, (path, TOKENS[token])
                    else:
                        assert not can_go_on(grammar, [*path, token], depth=4), (path, TOKENS[token])
            # Mostly pieces, and ends where there may be one.
            pieces = sorted(token for token in allowed if token > 256)
            ends = allowed == {0} or (0 in allowed and rng.random() < 0.5)
            token = 0 if ends else rng.choice(pieces or sorted(allowed - {0}))
            if token == 0:
                break
            assert state.advance(token)
            path.append(token)
        if state.can_end():
            num_ended += 1
            output = b"".join(TOKENS[token] or b"" for token in path).decode()
            validator.validate(json.loads(output))
    assert num_ended > 10


def test_acceptance_agrees_with_jsonschema() -> None:
    rng = random.Random(5)
    values = [
        0,
        1,
        1.0,
        -1,
        "a",
        "b",
        "1",
        "",
        None,
        True,
        False,
        [],
        [1],
        [1.0],
        ["a"],
        {},
        {"a": 1},
        {"a": 1.0},
        {"b": 1},
    ]
    schema = {"type": "array", "uniqueItems": True}
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    validator = jsonschema.Draft202012Validator(schema)
    for _ in range(2000):
        value = [rng.choice(values) for _ in range(rng.randrange(4))]
        assert automaton.accepts(json.dumps(value).encode()) == validator.is_valid(value), value
    assert not automaton.accepts(rb'["\u0061", "a"]')
    assert not automaton.accepts(b'[{"a": 1, "b": 2}, {"b": 2, "a": 1}]')
    assert not automaton.accepts(b"[" + b"9" * 5000 + b", " + b"9" * 5000 + b"]")


def test_a_refused_token_changes_nothing(compiler: GrammarCompiler) -> None:
    state = grammar_of(compiler, SCHEMAS[0]).new_state()
    for text in ('["a', '", "'):
        for byte in text.encode():
            assert state.advance(TOKENS.index(bytes([byte])))
    before = allowed_by(state)
    assert not state.advance(TOKENS.index(b'a"'))
    assert not state.advance(TOKENS.index(b'"a", "'))
    assert allowed_by(state) == before
    assert state.advance(TOKENS.index(b'b"'))

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.token_mask import TokenMaskCache, compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

EURO = "€".encode()
TOKENS = (
    *(bytes([byte]) for byte in range(256)),
    b"ab", b"abc", b'a"', b'ab"', b'abc"}', b'"}', b'a"b', b'"]', b"\\n", b"\\n\\n", b'\\"', b'\\""', b"\\u00", b"\\u0041",
    b"\\ud83d\\ude00", b"\\ud83d", EURO, EURO + b"a", b"a" + EURO[:2], EURO[1:], EURO[2:] + b'x"}', EURO * 3, b"abcdefgh",
    b'abcdefgh"}', b"\xff", None,
)  # fmt: skip
VOCABULARY = GrammarVocabulary(TOKENS, frozenset({len(TOKENS) - 1}), len(TOKENS))


@pytest.mark.parametrize(("least", "most"), [(0, 3), (2, 5), (4, None), (1, 40), (3, 3), (0, 0)])
def test_counted_strings_allow_what_a_walk_finds(least: int, most: int | None) -> None:
    limits = f'"minLength": {least}' + (f', "maxLength": {most}' if most is not None else "")
    schema = f'{{"properties": {{"a": {{"type": "string", {limits}}}}}, "required": ["a"]}}'
    order = VocabularyOrder.of(VOCABULARY)
    automaton = compile_automaton(GrammarSpec("json_schema", schema), GrammarConfig())
    masks = TokenMaskCache(order, max_bytes=2**20)
    checked = 0
    for text in (
        "",
        "x",
        "xy",
        "é",
        "x€",
        "\\n",
        "\\u00e9",
        "xyz",
        "abcd",
        "abcdefgh",
        "\\",
        "\\u0",
        "\u20ac"[:0] + "x\\",
    ):
        state, stack = automaton.run(0, (), b'{"a": "' + text.encode())
        if state >= 0:
            checked += 1
            expected = compute_mask(automaton, state, stack, order)
            np.testing.assert_array_equal(masks.row(automaton, 0, state, stack), expected)
    assert checked >= 1

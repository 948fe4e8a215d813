"""Strings of which the characters are spelled by callees: the same as those that are spelled out state by state."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.json_schema import scalars
from sgl_runtime.grammar.token_mask import TokenMaskCache, compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

TOKENS = (
    *(bytes([byte]) for byte in range(256)),
    b"ab", b"a b", b'a"', b'b", "', b"\\n", b'\\"a', b"\\u00", b"\\u001f", "é".encode(), "é€".encode(), b"a\xc3",
    "\u2028".encode(), "€ ".encode(), "😀".encode()[:2], "😀".encode()[2:] + b'"', None,
)  # fmt: skip
VOCABULARY = GrammarVocabulary(TOKENS, frozenset({len(TOKENS) - 1}), len(TOKENS))
ORDER = VocabularyOrder.of(VOCABULARY)
relaxed = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

shapes = st.fixed_dictionaries(
    {
        "pattern": st.sampled_from(
            [
                "^a+$",
                "^[ab1.]*$",
                r"^(?:\S+\s+){0,3}\S+$",
                "^[aé€]*$",
                "a|é",
                r"^\P{L}",
                "^[^\\x00]?$",
                '^["\\\\\\n]+',
                "^[😀-😂]|b$",
                ".",
            ]
        )
    },
    optional={"minLength": st.integers(0, 2), "maxLength": st.integers(2, 5), "format": st.just("ipv4")},
)
questions = st.one_of(
    shapes,
    st.lists(shapes, min_size=2, max_size=2).map(lambda pair: {"allOf": [pair[0]], "not": pair[1]}),
    st.lists(shapes, min_size=2, max_size=3).map(lambda options: {"oneOf": options}),
)
texts = st.text(st.sampled_from('ab é€😀\u2028\n\x00\x1f"\\1.'), max_size=6)


def both_ways(schema: Any) -> tuple[ByteAutomaton, ByteAutomaton]:
    spec = GrammarSpec("json_schema", json.dumps({"type": "array", "items": {**schema, "type": "string"}}))
    config = GrammarConfig(json_additional_properties="open")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalars, "MIN_STATES", 10**9)
        spelled_out = compile_automaton(spec, config)
        patch.setattr(scalars, "MIN_STATES", 0)
        return compile_automaton(spec, config), spelled_out


@relaxed
@given(schema=questions, values=st.lists(texts, min_size=4, max_size=4), cut=st.integers(0, 9))
def test_callees_spell_the_same_strings(schema: Any, values: list[str], cut: int) -> None:
    by_character, spelled_out = both_ways(schema)
    masks = TokenMaskCache(ORDER, max_bytes=2**20)
    for value in values:
        data = json.dumps([value], ensure_ascii=False).encode()
        assert by_character.accepts(data) == spelled_out.accepts(data), value
        state, stack = by_character.run(0, (), data[: 2 + cut])
        other, below = spelled_out.run(0, (), data[: 2 + cut])
        assert (state < 0) == (other < 0)
        if state >= 0:
            expected = compute_mask(spelled_out, other, below, ORDER)
            np.testing.assert_array_equal(masks.row(by_character, 0, state, stack), expected)


def test_a_count_of_words_with_a_length_stays_small() -> None:
    schema = {"type": "string", "maxLength": 500, "pattern": r"^(?:\S+\s+){0,49}\S+$"}
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    assert automaton.num_states < 60_000
    for text, is_valid in (
        ("word " * 49 + "é", True),
        ("word " * 50 + "é", False),
        ("é" * 500, True),
        ("é" * 501, False),
    ):
        assert automaton.accepts(json.dumps(text, ensure_ascii=False).encode()) == is_valid

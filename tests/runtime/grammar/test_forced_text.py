"""What is forced at a place of a grammar, which remembers it, as the automaton says."""

import random

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar import fsm_backend
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.fsm_backend import FsmGrammar
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

NESTED = """{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["name", "parts"],
 "additionalProperties": false, "properties": {"name": {"enum": ["a", "bc"]},
 "parts": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/node"}}}}}}"""


@pytest.mark.parametrize("most", [4096, 3])
def test_the_same_state_on_another_stack_is_another_place(
    most: int, byte_level_vocabulary: GrammarVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsm_backend, "_MAX_REMEMBERED", most)
    grammar = GrammarCompiler(byte_level_vocabulary, GrammarConfig()).compile_now(GrammarSpec("json_schema", NESTED))
    assert isinstance(grammar, FsmGrammar)
    rng = random.Random(5)
    texts = set()
    for _ in range(40):
        state = grammar.new_state()
        for _ in range(60):
            forced = state.forced_text()
            assert (forced.data, forced.ends) == grammar.automaton.forced_text(*state.place)
            texts.add(forced.data)
            allowed = [byte for byte in range(256) if grammar.automaton.run(*state.place, bytes([byte]))[0] >= 0]
            if not allowed:
                break
            token = byte_level_vocabulary.token_bytes.index(bytes([rng.choice(allowed)]))
            assert state.advance(token)
    assert {b'{"name": "', b'", "parts": [', b""} <= texts

"""Structural tags agree with a plain reading of the text, in both tiers, for triggers that overlap in any way."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256))), frozenset({0}), 257)
relaxed = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
triggers = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=2, unique=True)


@pytest.fixture(scope="module")
def compilers() -> Iterator[list[GrammarCompiler]]:
    made = [GrammarCompiler(BYTES, GrammarConfig(grammar_backend=name)) for name in ("fsm", "llguidance")]
    yield made
    for compiler in made:
        compiler.close()


def is_allowed(text: str, tag: dict[str, Any]) -> bool:
    """Free text up to the first trigger to appear, then one of its parts, and so on."""
    start = 0
    while True:
        found = [(text.find(trigger, start), trigger) for trigger in tag["triggers"]]
        ends = [(at + len(trigger), at, trigger) for at, trigger in found if at >= 0]
        if not ends:
            return True
        _, at, trigger = min(ends)
        wholes = [part["begin"] + "1" + part["end"] for part in tag["structures"] if part["begin"].startswith(trigger)]
        whole = next((each for each in wholes if text.startswith(each, at)), None)
        if whole is None:
            return False
        start = at + len(whole)


@relaxed
@given(
    triggers=triggers, tails=st.lists(st.text("ab", max_size=2), min_size=1, max_size=3, unique=True), data=st.data()
)
def test_tags_mean_what_they_say(
    compilers: list[GrammarCompiler], triggers: list[str], tails: list[str], data: st.DataObject
) -> None:
    begins = list(dict.fromkeys(trigger + tail for trigger in triggers for tail in tails))
    structures = [{"begin": begin, "schema": {"const": 1}, "end": "E"} for begin in begins]
    tag = {"structures": structures, "triggers": triggers}
    grammars = []
    for compiler in compilers:
        try:
            grammars.append(compiler.compile(GrammarSpec("structural_tag", json.dumps(tag))))
        except GrammarError:
            grammars.append(None)
    assert (grammars[0] is None) == (grammars[1] is None)
    if grammars[0] is None:
        return
    pieces = st.sampled_from(["a", "b", "1E", "c", *(begin + "1E" for begin in begins)])
    for text in data.draw(st.lists(st.lists(pieces, max_size=7).map("".join), min_size=20, max_size=20)):
        states = [grammar.new_state() for grammar in grammars]
        found = [all(state.advance(ord(char) + 1) for char in text) and state.can_end() for state in states]
        assert found == [is_allowed(text, tag)] * 2, text

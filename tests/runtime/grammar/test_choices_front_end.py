import json

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton


def test_accepts_the_choices_and_nothing_else() -> None:
    choices = ["yes", "no", "no way", "日本", "日月", "e\u0301", "😀"]
    automaton = compile_automaton(GrammarSpec("choices", json.dumps(choices)), GrammarConfig())
    for choice in choices:
        assert automaton.accepts(choice.encode())
        assert not automaton.accepts(choice.encode() + b"x")
    for other in ("", "y", "no ", "日", "Yes"):
        assert not automaton.accepts(other.encode())
    assert not automaton.must_end(automaton.run(0, (), b"no")[0])
    assert automaton.must_end(automaton.run(0, (), b"no way")[0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("[]", "non-empty JSON list of strings"),
        ('["a", 1]', "non-empty JSON list of strings"),
        ('{"a": 1}', "non-empty JSON list of strings"),
        (r'["a", "\ud800"]', "lone surrogate"),
    ],
)
def test_refuses(text: str, complaint: str) -> None:
    with pytest.raises(GrammarError, match=complaint):
        compile_automaton(GrammarSpec("choices", text), GrammarConfig())

"""Constraints that two grammar backends take mean the same in both: same masks, same ends, on random walks."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

PIECES = ["ab", "ba", "aab", "é", "éa", "日", "日本", "😀", " a", "\n", "-1", "__", "A", "Éa", "b\n", "xyz", "ab" * 5]
CUT = [b"\xc3", b"\xa9a", b"\xe6\x97", b"\xa5", b"\xf0\x9f", b"\x98\x80", b"a\xc3"]
VOCABULARY = GrammarVocabulary(
    (None, *(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in PIECES), *CUT, b"", None),
    frozenset({0}),
    300,
)
TEXTS = st.text("abAé日😀 \n-1_", max_size=5)

ATOMS = [
    *("a", "b", "é", "日", "😀", ".", "[ab]", "[^a]", "[a-b日]", "[^é\\n]", "-", "1", " ", "A"),
    *(r"\d", r"\w", r"\s", r"\W", "(?i:a)", "(?i:é)", "(?s:.)", r"\p{Lu}", r"(?u:\w)", r"[^\s\S]"),
]
atoms = st.sampled_from(ATOMS)


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = inner.map(lambda body: f"(?:{body})")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map(lambda body: f"({body})"),
        st.tuples(grouped, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}", "*?", "{0}", "{3,}"])).map("".join),
    )


regexes = st.recursive(atoms, grow, max_leaves=9)
relaxed = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def compilers() -> Iterator[list[GrammarCompiler]]:
    made = [GrammarCompiler(VOCABULARY, GrammarConfig(grammar_backend=name)) for name in ("fsm", "llguidance")]
    yield made
    for compiler in made:
        compiler.close()


def walk_both(compilers: list[GrammarCompiler], spec: GrammarSpec, seed: int) -> None:
    outcomes = [compiler.submit(spec) for compiler in compilers]
    failures = [outcome.exception() for outcome in outcomes]
    assert all(failure is None or isinstance(failure, GrammarError) for failure in failures)
    assert (failures[0] is None) == (failures[1] is None), failures
    if failures[0] is not None:
        return
    rng = np.random.default_rng(seed)
    states = [outcome.result().grammar.new_state() for outcome in outcomes]
    rows = [np.zeros(VOCABULARY.num_mask_words, dtype=np.int32) for _ in states]
    walked = b""
    for _ in range(8):
        for state, row in zip(states, rows, strict=True):
            state.fill_mask(row)
        bits = [np.unpackbits(row.view(np.uint8), bitorder="little") for row in rows]
        different = np.flatnonzero(bits[0] != bits[1])
        assert not len(different), (walked, [(int(token), VOCABULARY.token_bytes[token]) for token in different[:5]])
        assert states[0].can_end() == states[1].can_end()
        assert states[0].must_end() == states[1].must_end()
        refused = int(rng.integers(1, 300))
        if not bits[0][refused]:
            assert not states[0].advance(refused)
            assert not states[1].advance(refused)
        allowed = np.flatnonzero(bits[0][1:]) + 1
        if not len(allowed):
            break
        token = int(rng.choice(allowed))
        assert states[0].advance(token)
        assert states[1].advance(token)
        walked += VOCABULARY.token_bytes[token] or b""


@relaxed
@given(regex=regexes, seed=st.integers(0, 2**32))
def test_regexes_mean_the_same(compilers: list[GrammarCompiler], regex: str, seed: int) -> None:
    walk_both(compilers, GrammarSpec("regex", regex), seed)


@relaxed
@given(choices=st.lists(TEXTS.filter(bool), min_size=1, max_size=6, unique=True), seed=st.integers(0, 2**32))
def test_choices_mean_the_same(compilers: list[GrammarCompiler], choices: list[str], seed: int) -> None:
    walk_both(compilers, GrammarSpec("choices", json.dumps(choices)), seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "regex", ["[ab]*a[ab]{7}", "^ab?$", r"\d{1,3}(\.\d{1,3}){3}", ".{1,200}", "(?i)straße|ΣΑΣ", ""]
)
def test_known_regexes_mean_the_same(compilers: list[GrammarCompiler], regex: str, seed: int) -> None:
    walk_both(compilers, GrammarSpec("regex", regex), seed)

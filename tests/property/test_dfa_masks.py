"""Token masks of random vocabularies equal a walk of each token by itself, and every mask leads on to an end."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.grammar.token_mask import compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

REGEXES = ["[ab]*é?", "(日|月){1,3}", "a(b|é)+a", "(?!aab)[ab]{3,}", "😀|é|ab", ".{0,4}"]
AUTOMATA = {regex: compile_automaton(GrammarSpec("regex", regex), GrammarConfig()) for regex in REGEXES}
PIECES = sorted(set("ab é日月😀\n".encode()))

tokens = st.lists(st.sampled_from(PIECES), max_size=6).map(bytes)
vocabularies = st.lists(st.one_of(tokens, st.none()), min_size=1, max_size=70)
relaxed = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@relaxed
@given(token_bytes=vocabularies, regex=st.sampled_from(REGEXES), eos=st.integers(0, 80), extra=st.integers(0, 40))
def test_masks_equal_brute_force(token_bytes: list[bytes | None], regex: str, eos: int, extra: int) -> None:
    vocabulary = GrammarVocabulary(token_bytes, frozenset({eos}), len(token_bytes) + extra)
    order = VocabularyOrder.of(vocabulary)
    automaton = AUTOMATA[regex]
    for state in range(automaton.num_states):
        row = compute_mask(automaton, state, (), order)
        expected = np.zeros(vocabulary.num_mask_words * 32, dtype=np.uint8)
        for token_id, data in enumerate(token_bytes):
            expected[token_id] = bool(data) and token_id != eos and automaton.run(state, (), data)[0] >= 0
        assert np.array_equal(np.unpackbits(row.view(np.uint8), bitorder="little"), expected)


@relaxed
@given(longer=st.lists(tokens, max_size=40), regex=st.sampled_from(REGEXES), seed=st.integers(0, 2**32))
def test_any_walk_through_masks_can_finish(longer: list[bytes], regex: str, seed: int) -> None:
    # All bytes but one of those that the regexes use: what needs it must not be begun.
    rng = np.random.default_rng(seed)
    missing = int(rng.choice([PIECES[-1], ord(" ")]))
    single = [bytes([byte]) for byte in range(256) if byte != missing]
    token_bytes = [None, *single, *(token for token in longer if missing not in token)]
    compiler = GrammarCompiler(GrammarVocabulary(token_bytes, frozenset({0}), len(token_bytes)), GrammarConfig())
    state = compiler.compile(GrammarSpec("regex", regex)).new_state()
    row = np.zeros((len(token_bytes) + 31) // 32, dtype=np.int32)
    output = b""
    for _ in range(12):
        state.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert len(allowed) > 0
        assert (0 in allowed) == state.can_end()
        choice = int(rng.choice(allowed))
        assert state.advance(choice)
        if choice == 0:
            break
        output += token_bytes[choice] or b""
    if state.can_end():
        assert AUTOMATA[regex].accepts(output)
    compiler.close()

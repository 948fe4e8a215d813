"""Automata of random regexes agree with Python's `re`, on random strings and on strings that they generate."""

import re
import warnings

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.regex import search_to_dfa
from sgl_runtime.grammar.regex_parser import parse_regex
from sgl_runtime.grammar.regex_tree import Reader

ALPHABET = "abAé日😀 \n-1_"
LIMITS = GrammarConfig(max_grammar_states=3000, grammar_compile_timeout=5)

atoms = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "日",
        "😀",
        ".",
        "[ab]",
        "[^a]",
        "[a-b日]",
        "[^é\\n]",
        "-",
        "1",
        " ",
        r"\d",
        r"\w",
        r"\s",
        "A",
        "(?i:a)",
        "(?s:.)",
    ]
)
anchors = st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B", "(?m:^)", "(?m:$)"])


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = inner.map(lambda body: f"(?:{body})")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map(lambda body: f"({body})"),
        st.tuples(grouped, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}", "*?", "{1,}"])).map("".join),
    )


plain = st.recursive(atoms, grow, max_leaves=8)
looks = plain.flatmap(lambda body: st.sampled_from([f"(?={body})", f"(?!{body})"]))
behinds = atoms.flatmap(lambda body: st.sampled_from([f"(?<={body})", f"(?<!{body})"]))
conditioned = st.recursive(st.one_of(atoms, atoms, looks, behinds, anchors), grow, max_leaves=8)
texts = st.text(ALPHABET, max_size=6)
relaxed = settings(max_examples=70, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def automaton_of(pattern: str) -> ByteAutomaton:
    try:
        return compile_automaton(GrammarSpec("regex", pattern), LIMITS)
    except GrammarError as error:
        if "no output at all" in error.message:
            return ByteAutomaton(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.zeros(1, dtype=bool))
        # Python accepts it, so that nothing else but size or time may be in the way.
        if "max_grammar_states" in error.message or "took longer" in error.message:
            assume(False)
        raise


def walks(automaton: ByteAutomaton, rng: np.random.Generator, count: int) -> list[bytes]:
    """Random outputs of an automaton, those that come to an end soon."""
    found = []
    for _ in range(count):
        state, output = 0, bytearray()
        for _ in range(40):
            if automaton.accepting[state] and (automaton.must_end(state) or rng.random() < 0.3):
                found.append(bytes(output))
                break
            nexts = np.flatnonzero(automaton.table[state][automaton.byte_classes] >= 0)
            if not len(nexts):
                break
            output.append(int(rng.choice(nexts)))
            state, _ = automaton.run(state, (), output[-1:])
    return found


@relaxed
@given(pattern=st.one_of(plain, conditioned), samples=st.lists(texts, min_size=1, max_size=12))
def test_random_strings(pattern: str, samples: list[str]) -> None:
    automaton = automaton_of(pattern)
    # `é` is where the ASCII and the Unicode reading of a shorthand differ: there the automaton may accept less.
    matcher = re.compile(pattern)
    for text in samples:
        accepted = automaton.accepts(text.encode())
        if accepted or not ("\\" in pattern and not text.isascii()):
            assert accepted == (matcher.fullmatch(text) is not None), (pattern, text)


@relaxed
@given(pattern=st.one_of(plain, conditioned), seed=st.integers(0, 2**32))
def test_generated_strings(pattern: str, seed: int) -> None:
    automaton = automaton_of(pattern)
    for output in walks(automaton, np.random.default_rng(seed), 10):
        text = output.decode()
        assert re.fullmatch(pattern, text) is not None, (pattern, text)


@relaxed
@given(pattern=st.text("ab(){}[]|*+?\\^$-,12.:=!<P#wxid", max_size=10))
def test_malformed_regexes_are_those_of_re(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
            is_valid = True
        except re.error:
            is_valid = False
    complaint = parser_complaint(pattern)
    if is_valid:
        not_regular = ("not supported", "back references", "general categories")
        assert complaint is None or any(reason in complaint for reason in not_regular), (pattern, complaint)
    elif complaint is None:
        # Python wants look-behind of one width and each group name once; neither matters here.
        assert "(?<" in pattern or pattern.count("(?P<") > 1, pattern


def parser_complaint(pattern: str) -> str | None:
    try:
        parse_regex(pattern)
    except GrammarError as error:
        return error.message
    return None


@relaxed
@given(pattern=st.one_of(plain, conditioned), samples=st.lists(texts, min_size=1, max_size=12))
def test_searching_for_each_reader(pattern: str, samples: list[str]) -> None:
    budget = Budget(max_states=3000, timeout_s=5)
    try:
        found = {reader: search_to_dfa(pattern, budget, reader) for reader in Reader}
    except GrammarError as error:
        if not any(reason in error.message for reason in ("max_grammar_states", "took longer", "not supported")):
            raise
        return
    for text in samples:
        accepted = {reader: dfa.accepts(text) for reader, dfa in found.items()}
        assert accepted[Reader.PYTHON] == (re.search(pattern, text) is not None), (pattern, text)
        assert not accepted[Reader.ALL] or (accepted[Reader.PYTHON] and accepted[Reader.ECMA]), (pattern, text)
        if text.isascii() and "\n" not in text and r"\B" not in pattern:
            assert accepted[Reader.ECMA] == accepted[Reader.ALL] == accepted[Reader.PYTHON], (pattern, text)

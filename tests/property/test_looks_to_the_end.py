"""Look-aheads that say where the text ends, as patterns for passwords do, against `re` on all short texts."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.regex import regex_to_dfa, search_to_dfa

TEXTS = ["".join(chars) for length in range(4) for chars in product("ab-", repeat=length)]
bodies = st.recursive(
    st.sampled_from(["a", "[ab]", ".", "-", "a*", "b?", "[^a]", ".*b", "[ab-]{2}", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(st.sampled_from("=!"), inner, st.sampled_from(["$", "$", ""])).map("(?{0[0]}{0[1]}{0[2]})".format),
    ),
    max_leaves=4,
)


def check(pattern: str) -> None:
    budget = Budget(max_states=10_000, timeout_s=10)
    found, whole, expected = search_to_dfa(pattern, budget), regex_to_dfa(pattern, budget), re.compile(pattern)
    for text in TEXTS:
        assert found.accepts(text) == bool(expected.search(text)), (pattern, text)
        assert whole.accepts(text) == bool(expected.fullmatch(text)), (pattern, text)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    anchor=st.sampled_from(["", "^", "^(?!^-*$)", "^(?=^[ab]|$)"]),
    ahead=bodies,
    body=bodies,
    end=st.sampled_from(["", "$"]),
)
def test_looks_agree_with_re(anchor: str, ahead: str, body: str, end: str) -> None:
    check(f"{anchor}(?={ahead}$){body}{end}")
    check(f"{anchor}(?!{ahead}$){body}{end}")


@pytest.mark.parametrize(
    "pattern", ["^(?=.{2}$)[ab]*$", "^(?=$)a?$", "^(?!$)a*$", "a(?=b|$)", "b|^(?=^a)a$", "^(?!^x)(?:^a|b)$"]
)
def test_known_patterns_agree_with_re(pattern: str) -> None:
    check(pattern)


def test_the_decimals_of_pydantic() -> None:
    dfa = search_to_dfa(r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", Budget(max_states=1000, timeout_s=10))
    assert [dfa.accepts(text) for text in ("12.50", "-0.5", "+7", ".5", "", "-", ".", "+.", "1.2.3")] == [True] * 4 + [
        False
    ] * 5

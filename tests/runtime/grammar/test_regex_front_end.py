import re
import time

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_set import CharSet
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.regex import search_to_dfa
from sgl_runtime.grammar.unicode_classes import without_case


def compiled(pattern: str, **limits: float) -> ByteAutomaton:
    return compile_automaton(GrammarSpec("regex", pattern), GrammarConfig(**limits))


STRINGS = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abc",
    "foo",
    "foobar",
    "barfoo",
    "xfoo x",
    "foo bar",
    "a\n",
    "\n",
    "12",
    "1a",
    "é",
    "日本",
    "😀",
    "A",
    "Ab",
    "{",
    "a{",
    "a{2}",
    "aaa",
    "aaaa",
    "a-b",
    "]",
    "a]",
    "^",
    "$",
    "\\",
    "_",
    " ",
    "\t",
    "a b",
    "ſ",
    "K",
    "k",
    "K",
    "i",
    "ı",
    "İ",
    "I",
    "a.b",
    "Passw0rd",
    "password1",
    "AB",
    "ba",
    "abab",
    "aXb",
]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a",
        "a|b",
        "(a|ab)(c|bcd)?",
        "a*b",
        "(a+b*)+c",
        "a{2,3}",
        "a{,2}",
        "a{2}",
        "a{",
        "a{2}{",
        r"a\{2\}",
        "[]a]",
        "[^]a]",
        "[a-]b?",
        "[-a]",
        "[a^]",
        r"[\]]",
        r"[\w-]+",
        ".",
        "..",
        "(?s).",
        "(?i)k",
        "(?i)[a-k]",
        "(?i)ſ",
        "(?i)[^k]",
        "(?i)i",
        "(?i:A)b",
        "(?i:a(?-i:b))",
        "(?x) a b # c",
        "(?x)[ ]",
        r"\x61\u0062",
        r"\N{LATIN SMALL LETTER A}",
        r"\141",
        r"[\141\b]",
        "(?P<name>a)b",
        "(?:a|b)+",
        "(?#no)a",
        "a(?#no)*",
        "(?x)a # c\n {2}",
        "(?=a)*a",
        "(^)*a",
        "a+?b??",
        "^a$",
        "^(?:a|b)$",
        "a$\n?",
        "(?m)a$\n",
        "(?m)^a$",
        r"\Aa\Z",
        "^^a$$",
        r"\bfoo\b",
        r"\bfoo\b.*",
        r".*\Bfoo",
        r"[a ]?\B",
        r"[a ]*\B",
        "(?=a)ab",
        "(?!a).*",
        "(?=.*o)(?!.*x)[a-z ]+",
        "((?!foo)[a-z ])*",
        "(?:(?!ab).)*",
        "(?<=a)b|ab",
        "a(?<=a)b",
        ".*(?<!foo)",
        "a(?!b).*",
        "(a(?=b)|b)*",
        "(?=a|b)*a?",
        "(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{8,16}",
        "(?=(?!b)a).*",
        "(?<=(?<!x)a)b|ab",
        r"\\",
        r"[\\^]",
        "日|😀",
        "[あ-龥]{2}",
        r"\.",
        "a.b",
        r"\d+",
        r"\D",
        r"\w",
        r"\s",
        "(?a)\\W",
        "(?u)\\w+",
    ],
)
def test_accepts_what_re_matches_as_a_whole(pattern: str) -> None:
    automaton = compiled(pattern)
    flags = re.ASCII if not pattern.startswith("(?u)") else 0
    for text in STRINGS:
        if "(?i" in pattern:
            flags = 0
        expected = re.fullmatch(pattern, text, flags) is not None
        if pattern == r"\D" and not text.isascii():
            continue
        assert automaton.accepts(text.encode()) == expected, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "complaint", "position"),
    [
        ("a(b", "missing \\)", 1),
        ("a)", "unbalanced", 1),
        ("x[ab", "unterminated character set", 1),
        ("*a", "nothing to repeat", 0),
        ("a**", "multiple repeat", 2),
        ("a|*", "nothing to repeat", 2),
        ("a{3,1}", "greater than max", 0),
        (r"a\q", "bad escape", 1),
        ("[z-a]", "bad character range", 1),
        (r"[\w-z]", "bad character range", 1),
        ("ab\\", "end of pattern", 3),
        (r"\x6", "incomplete escape", 0),
        (r"(a)\1", "back references", 3),
        ("(?P<n>a)(?P=n)", "back references", 8),
        ("(?>a)", "atomic", 0),
        ("a++", "possessive", 2),
        ("(?(1)a)", "conditional", 0),
        ("(?z)a", "unknown extension", 0),
        ("a(?i)b", "global flags", 1),
        ("(?P<1>a)", "group name", 0),
        (r"\p{Greek}", "property 'Greek'", 0),
        ("(?#x", "unterminated comment", 4),
        ("a^*", "nothing to repeat", 1),
        (r"\b+", "nothing to repeat", 0),
        (r"\N{NO SUCH THING}", "character name", 0),
        (r"\U00110000", "past U\\+10FFFF", 0),
        ("a{99999999999}", "too large", 1),
        ("a\ud800", "lone surrogate", 1),
        (r"\400", "octal", 0),
    ],
)
def test_refuses_with_the_position(pattern: str, complaint: str, position: int) -> None:
    with pytest.raises(GrammarError, match=f"regex: .*{complaint}.*at position {position}\\b"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(?=.*\\bfoo\\b).*", "b(?=^a)a", "(?<=a(?=b))b"])
def test_refuses_looks_in_both_directions_at_once(pattern: str) -> None:
    with pytest.raises(GrammarError, match=r"inside look-(ahead|behind) is not supported"):
        compiled(pattern)


def test_shorthands_satisfy_both_readings() -> None:
    assert compiled(r"\d").accepts(b"7")
    assert not compiled(r"\d").accepts("٣".encode())
    assert not compiled(r"\D").accepts("٣".encode())
    assert not compiled(r"[^\w]").accepts("é".encode())
    assert compiled(r"(?a)[^\w]").accepts("é".encode())
    assert compiled(r"(?u)\w").accepts("é".encode())
    assert not compiled(r"(?!\w).").accepts("é".encode())


def test_general_categories() -> None:
    names = compiled(r"\p{Lu}\p{Ll}+(?:[ '-]\p{L}+)*")
    assert names.accepts("José Ñandú".encode())
    assert names.accepts("Жанна-Мария".encode())
    assert not names.accepts(b"R2D2")
    assert not compiled(r"\P{L}").accepts("é".encode())
    assert compiled(r"[^\p{L}]").accepts(b"1")


def test_ignoring_case_agrees_with_re_for_every_cased_character() -> None:
    cased = [chr(point) for point in range(0x250) if chr(point).lower() != chr(point).upper()]
    for char in cased:
        members = without_case(CharSet.of(char), ascii_only=False)
        pattern = re.compile(re.escape(char), re.IGNORECASE)
        for other in [*cased, "K", "Å", "ẞ", "ς", "ſ"]:
            assert (other in members) == (pattern.fullmatch(other) is not None), (char, other)


def test_search_is_unanchored_and_strict_about_the_end() -> None:
    budget = Budget(max_states=10_000, timeout_s=10)
    middle = search_to_dfa("b+", budget)
    assert middle.accepts("abba")
    assert middle.accepts("b")
    assert not middle.accepts("aa")
    mixed = search_to_dfa("^a|b$|c", budget)
    assert [mixed.accepts(text) for text in ("ax", "xb", "xcx", "xa", "bx", "xb\n")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_many_unanchored_options_do_not_multiply() -> None:
    options = "|".join(
        f"({word}/[a-z]+)" for word in ("alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota")
    )
    assert search_to_dfa(options, Budget(max_states=1000, timeout_s=10)).num_states < 60


def test_large_bounded_repeat() -> None:
    start = time.monotonic()
    automaton = compiled("[^\n]{0,2000}")
    assert time.monotonic() - start < 10
    assert automaton.accepts(("é" * 2000).encode())
    assert not automaton.accepts(("é" * 2001).encode())


def test_is_smallest() -> None:
    assert compiled("[ab]*a[ab]{5}").num_states == 64
    assert compiled("(a|b)(a|b)|[ab]{2}").num_states == 3
    assert compiled("(aa|aaa)*a?").num_states == 1
    # One state behind the first of two bytes, and the state behind the character.
    assert compiled("é").num_states == 3


def test_state_limit_names_itself() -> None:
    with pytest.raises(GrammarError, match=r"at most 1000 are allowed .max_grammar_states"):
        compiled("[ab]*a[ab]{15}", max_grammar_states=1000)
    with pytest.raises(GrammarError, match="max_grammar_states"):
        compiled("a{2000000000}")
    with pytest.raises(GrammarError, match="max_grammar_states"):
        compiled("((((a{100}){100}){100}){100}){100}")


def test_time_limit_stops_the_work() -> None:
    start = time.monotonic()
    with pytest.raises(GrammarError, match=r"took longer than 0\.2 seconds"):
        compiled("(?:.*[a-f]){9}(?:.*a.*b.{12}){6}", grammar_compile_timeout=0.2, max_grammar_states=10_000_000)
    assert time.monotonic() - start < 5


def test_a_regex_that_nothing_satisfies_is_refused() -> None:
    with pytest.raises(GrammarError, match="no output at all"):
        compiled("a(?!b)b")
    with pytest.raises(GrammarError, match="no output at all"):
        compiled(r"\b")
    with pytest.raises(GrammarError, match="no output at all"):
        compiled(r"[^\x00-\U0010ffff]")


def test_repeats_of_nothing_end_at_once() -> None:
    assert compiled("(?:){1000000000}a(?:(?:){9999}){9999}").accepts(b"a")


def test_an_empty_regex_matches_the_empty_output_only() -> None:
    automaton = compiled("")
    assert automaton.accepts(b"")
    assert automaton.must_end(0)

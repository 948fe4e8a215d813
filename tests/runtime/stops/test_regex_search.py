"""Stop regexes against `re`, tried at every beginning."""

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fakes.byte_tokenizer import FIRST_PIECE_ID, VOCABULARY
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.errors import GrammarError
from sgl_runtime.ipc.messages import DetokenizeStart, FinishReason, TextDelta, TokenDelta
from sgl_runtime.scheduler.stop_search import StopSearch
from sgl_runtime.server.stop_regex_compiler import compile_stop_regex
from sgl_runtime.stops.regex_search import RegexSearch

REGEXES = ["ab", "a+b", "(a|b)c?a", "ab|b", "a[bc]{2,3}", "(ab)+c|cc", "b.a", "abcabca|ca?b", "[^a]b"]
CONTINUATIONS = ["".join(letters) for size in range(7) for letters in itertools.product("abc", repeat=size)]
AUTOMATA = {regex: compile_stop_regex(regex) for regex in REGEXES}


def first_match(regex: str, text: str) -> tuple[int, int] | None:
    """Begin and end of the match that begins first, then is longest."""
    for begin in range(len(text)):
        for end in range(len(text), begin, -1):
            if re.fullmatch(regex, text[begin:end]):
                return begin, end
    return None


def may_match(regex: str, beginning: str) -> bool:
    return any(re.fullmatch(regex, beginning + rest) for rest in CONTINUATIONS)


@given(st.sampled_from(REGEXES), st.text("abc", max_size=12), st.integers(0, 12))
def test_matches_and_open_beginnings_are_those_of_re(regex: str, text: str, cut: int) -> None:
    search = RegexSearch(AUTOMATA[regex])
    search.feed(text[:cut].encode())
    assert search.match == first_match(regex, text[:cut])
    search.feed(text[cut:].encode())
    assert search.open_from == next((i for i in range(len(text)) if may_match(regex, text[i:])), len(text))


def test_characters_of_several_bytes_match_as_a_whole() -> None:
    search = RegexSearch(compile_stop_regex("[é-ü]+€"))
    data = "xé€".encode()
    for byte in data:
        assert search.match is None
        search.feed(bytes([byte]))
    assert search.match == (1, len(data))


def test_a_hostile_regex_costs_no_more_than_its_states() -> None:
    search = RegexSearch(compile_stop_regex("(a|aa)+(a|b)*c"))
    search.feed(b"a" * 3000)
    assert (search.match, search.open_from) == (None, 0)
    search.feed(b"c")
    assert search.match == (0, 3001)


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("(", "regex: "),
        (r"\bEND", "must not ask for what stands around its match"),
        ("^a", "must not ask for what stands around"),
        ("a$", "must not ask for what stands around"),
        ("a(?!b)", "must not ask for what stands around"),
        ("(x?)*", "must not match the empty text"),
        (r"(a)\1", "regex: "),
        ("[ab]*a[ab]{20}", "automaton states"),
        ("(" * 5000 + ")" * 5000, "nested more than 100 deep"),
    ],
)
def test_what_cannot_be_a_stop_regex_is_refused(regex: str, message: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(message)):
        compile_stop_regex(regex)


TOKENS = st.one_of(st.sampled_from(list(b"abc")), st.integers(FIRST_PIECE_ID, VOCABULARY.size - 1))


@given(st.lists(TOKENS, min_size=1, max_size=14), st.lists(st.sampled_from(REGEXES), max_size=2), st.booleans())
def test_streams_show_nothing_of_a_match(ids: list[int], regexes: list[str], with_string: bool) -> None:
    strings = ("lo", "User") if with_string else ()
    automata = [AUTOMATA[regex] for regex in regexes]
    search = StopSearch(strings, automata)
    detokenizer = Detokenizer(VOCABULARY)
    detokenizer.accept(DetokenizeStart(rid="r", stop=strings, stop_automata=tuple(automata)))
    pieces, last = [], None
    for place, token_id in enumerate(ids):
        match = search.feed(VOCABULARY.token_bytes[token_id])
        finish = FinishReason(type="length") if place == len(ids) - 1 else None
        if match is not None:
            finish = FinishReason(type="stop", matched=match.text, regex=match.regex)
        (last,) = detokenizer.accept(TokenDelta(rid="r", new_ids=[token_id], finish=finish))
        assert isinstance(last, TextDelta)
        pieces.append(last.text)
        if match is not None:
            break
    used = ids[: len(pieces)]
    text = b"".join(VOCABULARY.token_bytes[token_id] for token_id in used).decode(errors="replace")
    # Regexes are matched on bytes, of which a broken character is none; the oracle would see a sign in its place.
    assume("\ufffd" not in text)
    found = [first_match(regex, text) for regex in regexes]
    found += [(text.find(string), text.find(string) + len(string)) for string in strings if string in text]
    matches = [match for match in found if match is not None]
    begin = min((match[0] for match in matches), default=len(text))
    assert "".join(pieces) == text[:begin]
    if matches:
        assert last.finish.matched == text[begin : max(match[1] for match in matches if match[0] == begin)]
        ids_text = b"".join(VOCABULARY.token_bytes[i] for i in used[: last.num_text_ids]).decode(errors="replace")
        assert ids_text + last.text_tail == text[:begin]

import re

import numpy as np
import pytest

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.json_schema.formats import FORMATS, format_dfa, is_standard_format
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.strings import StringShape

AUTOMATA: dict[tuple[str, bool], CharDfa] = {}


def automaton(name: str, *, wide: bool = False) -> CharDfa:
    if (name, wide) not in AUTOMATA:
        AUTOMATA[name, wide] = format_dfa(name, Budget(max_states=100_000, timeout_s=30), wide=wide)
    return AUTOMATA[name, wide]


CASES = {
    "date": ("2024-02-29 1999-12-31", "2023-02-29 0000-01-01 24-01-01 2024-1-1 2024-13-01"),
    "time": ("08:30:06Z 08:30:06.123456789012+05:30 23:59:60Z", "08:30:06 24:00:00Z 22:59:60Z 08:30:06+24:00"),
    "date-time": (
        "2024-02-29T08:30:06Z 2024-02-29t08:30:06.5-08:00",
        "2024-02-29 2024-02-30T08:30:06Z 2024-02-29T08:30:06",
    ),
    "duration": ("P1D PT36H P1Y2M3DT4H5M6S P2W", "P PT P1D2H P1Y2W PT0.5S 1D P1Y2D"),
    "uuid": (
        "2EB8AA08-aa98-11ea-b4aa-73b441d16380",
        "2eb8aa08aa9811eab4aa73b441d16380 {2eb8aa08-aa98-11ea-b4aa-73b441d16380}",
    ),
    "email": (
        "joe.bloggs@example.com a@b.co te~st@mail.example.org x@[127.0.0.1] x@[IPv6:::1]",
        ".a@b.co a..b@c.de a@b a@b=c.de @b.co a@ a@[127.0.0.300]",
    ),
    "idn-email": ("실례@실례.테스트 δοκιμή@example.com a@b.co", "a@b .a@b.co 실례"),
    "hostname": ("localhost www.example.com a--b.com 1host", "a_b -a a- a..b a. xn--X ab--c"),
    "idn-hostname": ("실례.테스트 bücher.example a。b localhost", "〮실례 -ü ü- xn--7a aא"),
    "ipv4": ("192.168.0.1 0.0.0.0 255.255.255.255", "256.1.1.1 1.2.3 01.2.3.4 1.2.3.4.5"),
    "ipv6": (
        "::1 :: 1:2:3:4:5:6:7:8 ::ffff:192.168.0.1 1::8",
        "1 1:2:3:4:5:6:7 1::2::3 12345:: ::ffff:192.168.0.01 fe80::a%eth1",
    ),
    "uri": (
        "http://a.b/c?d#e urn:a:b mailto:a@b.co http://[::1]:80/ a:",
        "/a a http://a/%zz http://a:b/ é:a",
    ),
    "uri-reference": ("/a a #b ?c=d //e/f ./a:b http://a.b/", "1:b /%zz a\\b /a[b]"),
    "iri": ("http://ƒøø.ßår/?∂éœ=πîx#πîüx urn:a", "/abc âππ"),
    "iri-reference": ("/âππ #ƒrägmênt âππ", "#ƒräg\\mênt"),
    "uri-template": ("a/{b:1}/{+c,d*} x", "{ {} {a,} {a:0} a} {a..b}"),
    "json-pointer": ("/a~0b/~1 / /a//b", "a /~ /~2"),
    "relative-json-pointer": ("0# 1/a 10", "01 -1 0## /a"),
    "regex": (r"^[a-z0-9_]{3,16}$ a|b (?:x(y)+)? \d+\.\d* [^a-f]+", r"[ ( a) * a** \a (?i)a (?P<n>a) a{3,1}"),
}


def test_every_standard_format_has_a_case() -> None:
    assert set(CASES) == set(FORMATS)
    assert all(map(is_standard_format, CASES))
    assert not is_standard_format("int32")


@pytest.mark.parametrize("name", CASES)
def test_examples(name: str) -> None:
    valid, invalid = (texts.split() for texts in CASES[name])
    assert [text for text in valid if not automaton(name).accepts(text)] == []
    assert [text for text in invalid if automaton(name).accepts(text)] == []
    assert [text for text in valid if not automaton(name, wide=True).accepts(text)] == []


def generated(dfa: CharDfa, rng: np.random.Generator) -> str:
    members = [chars.ranges for chars in dfa.alphabet.char_sets()]
    state, text = 0, ""
    while not (dfa.accepting[state] and rng.random() < 0.1) and len(text) < 400:
        column = int(rng.choice(np.flatnonzero(dfa.table[state] >= 0)))
        low, high = members[column][int(rng.integers(len(members[column])))]
        text += chr(int(rng.integers(low, high + 1)))
        state = int(dfa.table[state, column])
        if not (dfa.table[state] >= 0).any():
            break
    return text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_all_readers_take_some_reader_takes(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        text = generated(automaton(name), rng)
        if automaton(name).accepts(text):
            assert automaton(name, wide=True).accepts(text), text


def test_generated_regexes_compile() -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        text = generated(automaton("regex"), rng)
        if automaton("regex").accepts(text):
            re.compile(text)


def test_generated_names_fit() -> None:
    rng = np.random.default_rng(7)
    for name, most in (("hostname", 253), ("email", 254)):
        texts = [
            text for text in (generated(automaton(name), rng) for _ in range(100)) if automaton(name).accepts(text)
        ]
        assert texts
        for text in texts:
            assert len(text) <= most
            assert all(len(label) <= 63 for label in text.rpartition("@")[2].split("."))


def test_not_a_date_leaves_out_what_may_be_one() -> None:
    scalars = Scalars(np.ones(256, dtype=bool))
    other = scalars.strings(
        (StringShape(format="date"),), lambda truths: -1 if truths[0] else 0, Budget(max_states=10_000, timeout_s=30)
    )
    labels = [other.label_of(text) for text in (b"2024-01-01", b"0000-01-01", b"20240101", b"yesterday", b"2024")]
    assert labels == [-1, -1, -1, 0, 0]

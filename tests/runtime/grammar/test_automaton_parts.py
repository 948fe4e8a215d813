import itertools

import numpy as np
import pytest

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, intersect
from sgl_runtime.grammar.char_set import ANY_CHAR, CharSet
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.minimize import minimize
from sgl_runtime.grammar.regex import regex_to_dfa
from sgl_runtime.grammar.table_parts import byte_classes
from sgl_runtime.grammar.utf8 import to_bytes


def budget() -> Budget:
    return Budget(max_states=100_000, timeout_s=30)


def test_char_set_algebra() -> None:
    letters, vowels = CharSet.between("a", "z"), CharSet.of("uoiea")
    consonants = letters - vowels
    assert "b" in consonants
    assert "e" not in consonants
    assert (consonants | vowels) == letters
    assert (letters & CharSet.of("a1")) == CharSet.of("a")
    assert letters.complement().complement() == letters
    assert "\ud800" not in ANY_CHAR


def test_alphabet_is_the_coarsest_partition() -> None:
    sets = [CharSet.between("a", "f"), CharSet.between("d", "k"), CharSet.of("z")]
    alphabet, member = Alphabet.from_sets(sets)
    assert alphabet.num_classes == 4
    for point in range(0x80):
        number = int(alphabet.class_of(np.array([point], dtype=np.int32))[0])
        inside = [chr(point) in chars for chars in sets]
        assert (number >= 0) == any(inside)
        if number >= 0:
            assert member[number].tolist() == inside


def test_minimisation_agrees_with_moore() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        num_states, num_classes = int(rng.integers(1, 14)), int(rng.integers(1, 4))
        table = rng.integers(-1, num_states, (num_states, num_classes)).astype(np.int32)
        # A chain through all states keeps every one reachable; all accept, or can by the last.
        table[:-1, 0] = np.arange(1, num_states)
        accepting = rng.random(num_states) < 0.5
        accepting[-1] = True
        smallest_table, smallest_accepting = minimize(table, accepting, budget())
        assert len(smallest_table) == len(set(moore(table, accepting)))
        full = ByteAutomaton(np.zeros(256, dtype=np.uint8), table, accepting)
        small = ByteAutomaton(np.zeros(256, dtype=np.uint8), smallest_table, smallest_accepting)
        for length in range(5):
            for word in itertools.product(range(num_classes), repeat=length):
                assert accepts(full, word) == accepts(small, word)


def moore(table: np.ndarray, accepting: np.ndarray) -> list[int]:
    block = [int(flag) for flag in accepting]
    while True:
        keys = [
            (block[state], *(block[target] if target >= 0 else -1 for target in row)) for state, row in enumerate(table)
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        after = [numbers[key] for key in keys]
        if len(set(after)) == len(set(block)):
            return after
        block = after


def accepts(automaton: ByteAutomaton, word: tuple[int, ...]) -> bool:
    state = 0
    for number in word:
        state = int(automaton.table[state, number])
        if state < 0:
            return False
    return bool(automaton.accepting[state])


def test_utf8_encodes_every_character_once() -> None:
    automaton = to_bytes(regex_to_dfa("(?s).", budget()), budget())
    # The start, the end, and what may follow a first byte: one to three continuations, and four special ranges.
    assert automaton.num_states == 9
    for point in [*range(0, 0x3000, 7), 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        assert automaton.accepts(chr(point).encode())
    for wrong in (
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xff",
        b"\x80",
    ):
        assert automaton.run(0, (), wrong)[0] < 0


def test_character_and_byte_automata_agree() -> None:
    dfa = regex_to_dfa(r"[a-zé-ü]*(?:日[^本]|[\U0001f600-\U0001f64f]{1,2}\u0800?)+", budget())
    automaton = to_bytes(dfa, budget())
    pieces = ["a", "é", "ÿ", "日", "本", "月", "😀", "\U0001f650", "\u0800"]
    for length in range(4):
        for word in itertools.product(pieces, repeat=length):
            text = "".join(word)
            assert dfa.accepts(text) == automaton.accepts(text.encode()), text


def test_every_state_can_finish() -> None:
    automaton = to_bytes(regex_to_dfa(r"(?=.*\d)[a-zé\d]{3,5}|日+x", budget()), budget())
    finishing = automaton.accepting.copy()
    for _ in range(automaton.num_states):
        finishing |= (np.append(finishing, False)[automaton.table]).any(axis=1)
    assert finishing.all()


def test_intersection() -> None:
    both = intersect(regex_to_dfa("[a-m]*x?", budget()), regex_to_dfa("(?:ab|x|z)+", budget()), budget())
    assert [both.accepts(text) for text in ("ab", "abx", "x", "abab", "", "z", "xab")] == [True, True, True, True] + [
        False
    ] * 3
    none: CharDfa = intersect(regex_to_dfa("a+", budget()), regex_to_dfa("b+", budget()), budget())
    assert none.is_empty


def test_restriction_drops_bytes_and_what_needs_them() -> None:
    automaton = to_bytes(regex_to_dfa("a[bx]c|ad", budget()), budget())
    allowed = np.ones(256, dtype=bool)
    allowed[ord("c")] = False
    only = automaton.restrict(allowed, budget())
    assert only.accepts(b"ad")
    assert only.run(0, (), b"ab")[0] < 0
    allowed[ord("c")], allowed[ord("b")] = True, False
    assert [automaton.restrict(allowed, budget()).accepts(text) for text in (b"abc", b"axc", b"ad")] == [
        False,
        True,
        True,
    ]
    allowed[ord("a")] = False
    assert automaton.restrict(allowed, budget()).is_empty


@pytest.mark.parametrize("num_fragments", [0, 1, 8, 40])
def test_bytes_of_a_class_are_told_apart_by_nothing(num_fragments: int):
    rng = np.random.default_rng(num_fragments)
    # With forty of these, what tells bytes apart is more than one number can hold.
    fragments = [
        ByteFragment.of(np.repeat(rng.integers(-1, 3, size=(3, 64), dtype=np.int32), 4, axis=1), np.zeros(3, np.int32))
        for _ in range(num_fragments)
    ]
    alone = np.array([34, 44, 34, 200])
    classes, kept = byte_classes(fragments, alone)
    columns = [tuple(fragment.byte_classes.tolist()) for fragment in fragments]
    marks = [(byte,) if byte in alone else (-1, *(column[byte] for column in columns)) for byte in range(256)]
    assert len(kept) == len(set(marks))
    assert [classes[byte] for byte in kept] == list(range(len(kept)))
    for byte in range(256):
        assert marks[byte] == marks[kept[classes[byte]]]

import json
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberAtom, NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.strings import StringAtom, StringShape, StringValues

SCALARS = Scalars(np.ones(256, dtype=bool))


def budget(**limits: Any) -> Budget:
    return Budget(**{"max_states": 100_000, "timeout_s": 30, **limits})


def wanted(truths: tuple[bool, ...]) -> int:
    return 0 if all(truths) else -1


def unwanted(truths: tuple[bool, ...]) -> int:
    return -1 if any(truths) else 0


def strings(*atoms: StringAtom, label_of: Callable[[tuple[bool, ...]], int] = wanted) -> ByteFragment:
    return SCALARS.strings(atoms, label_of, budget())


def numbers(*atoms: NumberAtom, label_of: Callable[[tuple[bool, ...]], int] = wanted) -> ByteFragment:
    return SCALARS.numbers(atoms, label_of, budget())


def accepted(fragment: ByteFragment, texts: str) -> list[str]:
    return [text for text in texts.split() if fragment.label_of(text.encode()) >= 0]


def number_range(
    low: object = None,
    high: object = None,
    *,
    inclusive: bool = True,
    is_integer: bool = False,
    multiple: object = None,
) -> NumberRange:
    def bound(value: object) -> Bound | None:
        return None if value is None else Bound(Decimal(str(value)), inclusive)

    return NumberRange(is_integer, bound(low), bound(high), None if multiple is None else Decimal(str(multiple)))


def test_a_free_string_has_every_spelling() -> None:
    free = SCALARS.strings((), lambda truths: 7, budget())
    for spelling in (r"a\u0041\/\"\\ ", r"\ud83d\ude00", "é😀", r"\u00E9\n", ""):
        assert free.label_of(spelling.encode()) == 7
        json.loads(f'"{spelling}"')
    for spelling in ('"', r"\ud83d", r"\ude00", "\n", "\\", r"\x41", r"\u12"):
        assert free.label_of(spelling.encode()) == -1
    assert free.label_of(b"\xff") == free.label_of(b"\xed\xa0\x80") == -1
    assert SCALARS.strings((), lambda truths: -1, budget()).is_empty


def test_strings_with_atoms_have_the_spelling_of_json_dumps() -> None:
    any_text = strings(StringShape(pattern=""))
    for text in ('a"b\\c/', "\0\b\f\n\r\t\x0b\x1f\x7f", "é😀\u2028"):
        assert any_text.label_of(json.dumps(text, ensure_ascii=False)[1:-1].encode()) == 0
    for spelling in (r"\u0041", r"\/", r"\u001F", r"\u000a", r"\ud83d\ude00"):
        assert any_text.label_of(spelling.encode()) == -1


def test_lengths_count_characters() -> None:
    exact = strings(StringShape(least=2, most=2))
    assert [exact.label_of(text.encode()) for text in ("ab", "é😀", r"\n\"", "a", "abc", r"\n")] == [
        0,
        0,
        0,
        -1,
        -1,
        -1,
    ]
    assert exact.num_states < 50


def test_labels_tell_apart_what_holds() -> None:
    atoms = (StringShape(pattern="^a"), StringShape(pattern="b$"), StringShape(least=3))
    labelled = strings(*atoms, label_of=lambda truths: truths[0] + 2 * truths[1] + 4 * truths[2])
    for text, label in (("", 0), ("a", 1), ("b", 2), ("ab", 3), ("aab", 7), ("xyz", 4), ("xyb", 6), ("axy", 5)):
        assert labelled.label_of(text.encode()) == label


def test_exactly_one_of_two_patterns() -> None:
    either = strings(
        StringShape(pattern="^a"),
        StringShape(pattern="b$"),
        label_of=lambda truths: 0 if truths[0] != truths[1] else -1,
    )
    assert accepted(either, "a b ab ba aab xb ax x") == ["a", "b", "xb", "ax"]


def test_negation_of_what_readers_dispute_is_left_out() -> None:
    digits = strings(StringShape(pattern=r"^\d+$"))
    others = strings(StringShape(pattern=r"^\d+$"), label_of=unwanted)
    assert accepted(digits, "12 1a ١٢") == ["12"]
    assert accepted(others, "12 1a ١٢ é") == ["1a", "é"]
    # Python's `$` also holds before a line break at the end.
    assert others.label_of(rb"12\n") == digits.label_of(rb"12\n") == -1


def test_a_disputed_string_has_a_label_where_it_does_not_matter() -> None:
    either = strings(
        StringShape(pattern=r"^\w+$"), StringShape(most=9), label_of=lambda truths: 0 if any(truths) else -1
    )
    assert accepted(either, "é abc ééééééééééé") == ["é", "abc"]


def test_values_and_their_negation() -> None:
    red = StringValues(frozenset(["red", "green", 'q"t', ""]))
    assert [strings(red).label_of(text) for text in (b"red", rb"q\"t", b"", b"re", b"reds")] == [0, 0, 0, -1, -1]
    others = strings(red, label_of=unwanted)
    assert [others.label_of(text) for text in (b"red", rb"q\"t", b"", b"re", b"reds")] == [-1, -1, -1, 0, 0]
    short = strings(red, StringShape(most=3))
    assert accepted(short, "red green re") == ["red"]
    assert strings(StringValues(frozenset(f"item-{index}" for index in range(1000)))).num_states < 40


def test_keys_have_labels_by_name() -> None:
    names = tuple(f"name_{index}" for index in range(50))
    closed = SCALARS.keys(names, (), lambda index, truths: index, budget())
    assert [closed.label_of(text) for text in (b"name_0", b"name_49", b"name_4", b"name_", b"name_50")] == [
        0,
        49,
        4,
        -1,
        -1,
    ]
    opened = SCALARS.keys(names, (), lambda index, truths: index if index >= 0 else 99, budget())
    assert [opened.label_of(text) for text in (b"name_0", b"name_", b"x", b"name_491")] == [0, 99, 99, 99]


def test_keys_with_patterns() -> None:
    def label_of(index: int, truths: tuple[bool, ...]) -> int:
        return 2 * index + truths[0] if index >= 0 else 10 if truths[0] else -1

    keys = SCALARS.keys(("a", "x-b"), (StringShape(pattern="^x-"),), label_of, budget())
    assert [keys.label_of(text) for text in (b"a", b"x-b", b"x-", b"x-bc", b"b")] == [0, 3, 10, 10, -1]


def test_names_can_be_forbidden() -> None:
    keys = SCALARS.keys(("a", "ab"), (), lambda index, truths: -1 if index >= 0 else 0, budget())
    assert [keys.label_of(text) for text in (b"a", b"ab", b"abc", b"", b"b")] == [-1, -1, 0, 0, 0]


def test_unusable_bytes() -> None:
    usable = np.ones(256, dtype=bool)
    usable[[ord("q"), 0xC3, ord("E")]] = False
    scalars = Scalars(usable)
    assert [scalars.spellable(text) for text in ("a", "q", "é", "😀", "\n", "\ud800")] == [
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    text = scalars.strings((StringShape(pattern="^.q?$"),), wanted, budget())
    assert [text.label_of(each.encode()) for each in ("a", "aq", "q", "é", "😀")] == [0, -1, -1, -1, 0]
    keys = scalars.keys(("q", "a"), (), lambda index, truths: index, budget())
    assert (keys.label_of(b"q"), keys.label_of(b"a")) == (-1, 1)
    number = scalars.numbers((), lambda truths: 0, budget())
    assert accepted(number, "1e5 1E5") == ["1e5"]


def test_integers_and_numbers() -> None:
    integer = numbers(NumberRange(is_integer=True))
    assert accepted(integer, "0 -1 10 123456789012345678901234567890 1.0 1e5 01 -0 -") == [
        "0",
        "-1",
        "10",
        "123456789012345678901234567890",
    ]
    number = SCALARS.numbers((), lambda truths: 0, budget())
    legal = "1.5 -0.1e-7 1E+10 0.0 1e5 -0.0 1e307 9.99e+300 1e-400"
    assert accepted(number, legal) == legal.split()
    # Readers get infinity for what is past the last float.
    assert accepted(number, "01 1. .5 +1 - 1e 0x1 NaN Infinity 1e308 1e999 10e308 1e1000") == []


def test_not_an_integer() -> None:
    broken = numbers(NumberRange(is_integer=True), label_of=unwanted)
    # For some 1.0 is an integer; floats have no digits to tell the last one from 1.
    assert accepted(broken, "1 1.5 -0.25 1.0 1.0000000000000000000001 1e-06 1e20") == ["1.5", "-0.25", "1e-06"]


def test_bounds_and_exponents() -> None:
    unit = numbers(number_range(0, 1))
    assert accepted(unit, "0 1 0.5 1.0 0.30000000000000004 1e-06 5E-7 -0.5 1.1 1e-06x -1e-06 1e16") == [
        "0",
        "1",
        "0.5",
        "1.0",
        "0.30000000000000004",
        "1e-06",
        "5E-7",
    ]
    large = numbers(number_range(1000, None))
    assert accepted(large, "1000 999.9 1e+16 1.5e20 1e-06 1e5") == ["1000", "1e+16", "1.5e20"]
    inside = numbers(number_range(0, 1, inclusive=False))
    assert accepted(inside, "0.5 0 1 0.99999999999999 0.9999999999999999999 1e-06 0.0") == [
        "0.5",
        "0.99999999999999",
        "1e-06",
    ]


def test_outside_of_a_range() -> None:
    outside = numbers(number_range(-1.5, 10), label_of=unwanted)
    assert accepted(outside, "-1.5 -1.6 10 10.1 11 0 10.00000000000000000001 -2 1e20") == [
        "-1.6",
        "10.1",
        "11",
        "-2",
        "1e20",
    ]


@pytest.mark.parametrize(
    ("multiple", "multiples", "others"),
    [
        ("0.01", "0 1.25 100 -3.5 1 0.5", "0.001 1.255"),
        ("0.5", "1 1.5 -2.0 100000000", "0.25 1.1"),
        ("2.5", "2.5 5 -7.5 10.0", "1 0.5 2.55"),
        ("3", "3 9 -12 0", "4 1.5"),
        ("0.001", "1.5 2", "0.0001"),
    ],
)
def test_multiples(multiple: str, multiples: str, others: str) -> None:
    atom = number_range(multiple=multiple)
    assert accepted(numbers(atom), f"{multiples} {others}") == multiples.split()
    assert accepted(numbers(atom, label_of=unwanted), f"{multiples} {others}") == others.split()


def test_multiples_are_those_that_dividing_floats_finds_too() -> None:
    atom = number_range(multiple="0.01")
    multiples, others = numbers(atom), numbers(atom, label_of=unwanted)
    for hundredths in range(0, 100_000, 7):
        text = f"{hundredths // 100}.{hundredths % 100:02d}"
        assert (multiples.label_of(text.encode()) == 0) == (float(text) / 0.01).is_integer(), text
        assert others.label_of(text.encode()) == -1


def test_number_values() -> None:
    some = NumberValues(frozenset(map(Decimal, ["1", "2.5", "1E-7", "1E+16", "-3", "9007199254740993"])))
    printed = "1 1.0 2.5 1e-07 0.0000001 1e+16 -3 -3.0 9007199254740993"
    assert accepted(numbers(some), f"{printed} 1.00 2.50 3 1e-7 10e-08") == printed.split()
    assert accepted(numbers(some, label_of=unwanted), f"{printed} 1.00 2.50 3 2.6 1e-05") == ["3", "2.6", "1e-05"]
    assert accepted(numbers(some, number_range(2, None)), printed) == ["2.5", "1e+16", "9007199254740993"]
    assert accepted(numbers(some, NumberRange(is_integer=True)), printed) == ["1", "-3", "9007199254740993"]


def test_many_values_and_many_ranges() -> None:
    values = NumberValues(frozenset(map(Decimal, range(0, 4000, 4))))
    assert accepted(numbers(values), "0 4 3996 5 4000") == ["0", "4", "3996"]
    assert accepted(numbers(values, label_of=unwanted), "0 4 3996 5 4000") == ["5", "4000"]
    steps = [number_range(10 * index, 10 * index + 15) for index in range(12)]
    once = numbers(*steps, label_of=lambda truths: 0 if sum(truths) == 1 else -1)
    assert accepted(once, "5 12 17.5 20 22 29 130 124.5 3") == ["5", "17.5", "29", "124.5", "3"]


def test_a_second_call_finds_the_first_one() -> None:
    atoms = (StringShape(pattern="^once$"),)
    assert SCALARS.strings(atoms, wanted, budget()) is SCALARS.strings(atoms, lambda truths: truths[0] - 1, budget())
    assert SCALARS.strings(atoms, wanted, budget()) is not SCALARS.strings(atoms, unwanted, budget())


def test_more_atoms_than_are_remembered() -> None:
    atoms = tuple(StringShape(pattern=f"^{letter}") for letter in "abcdefghij")
    one = SCALARS.strings(atoms, lambda truths: truths.index(True) if any(truths) else -1, budget())
    assert [one.label_of(text) for text in (b"ax", b"j", b"k")] == [0, 9, -1]


def test_limits_are_kept() -> None:
    with pytest.raises(GrammarError, match="max_grammar_states"):
        SCALARS.strings((StringShape(most=3000),), wanted, budget(max_states=2000))
    with pytest.raises(GrammarError, match="max_grammar_states"):
        SCALARS.strings((StringShape(pattern="a[ab]{15}$"),), wanted, budget(max_states=2000))
    with pytest.raises(GrammarError, match="multipleOf 9999991 takes more than"):
        SCALARS.numbers((number_range(multiple=9999991),), wanted, budget())
    with pytest.raises(GrammarError, match="bound 1E-999 is out of range"):
        SCALARS.numbers((number_range("1e-999"),), wanted, budget())
    stop = threading.Event()
    stop.set()
    with pytest.raises(GrammarError, match="stopped"):
        SCALARS.strings((StringShape(pattern="(ab|ba){400}c"),), wanted, budget(stop=stop))


def test_many_threads_share_the_caches() -> None:
    scalars = Scalars(np.ones(256, dtype=bool))
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for index in range(30):
                size = (index + offset) % 10 + 1
                found = scalars.strings((StringShape(pattern=f"^a{{{size}}}$"),), wanted, budget())
                assert found.label_of(b"a" * size) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures

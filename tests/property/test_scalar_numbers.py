"""Automata of numbers agree with what readers of exact decimals, and readers of 64-bit floats, say about their texts."""

import itertools
import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberAtom, NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.scalars import Scalars

SCALARS = Scalars(np.ones(256, dtype=bool))
relaxed = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

constants = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "3",
        "10",
        "99",
        "100",
        "-37",
        "0.5",
        "0.05",
        "-12.34",
        "1000",
        "1e-7",
        "123456.789",
        "5e15",
        "0.1",
    ]
).map(Decimal)
bounds = st.one_of(st.none(), st.builds(Bound, constants, st.booleans()))
divisors = st.sampled_from(["1", "2", "5", "7", "0.01", "0.5", "2.5", "0.1", "0.3", "0.001", "100"]).map(Decimal)
ranges = st.builds(NumberRange, st.booleans(), bounds, bounds, st.one_of(st.none(), st.none(), divisors))
values = st.builds(NumberValues, st.frozensets(constants, min_size=1, max_size=3))
atoms = st.lists(st.one_of(ranges, ranges, values), min_size=1, max_size=3).map(tuple)


def exact_truth(atom: NumberAtom, text: str, *, strict_integers: bool) -> bool:
    value = Decimal(text)
    if isinstance(atom, NumberValues):
        return value in atom.values
    is_integer = text.lstrip("-").isdigit() if strict_integers else value == value.to_integral_value()
    below = atom.high is None or value < atom.high.value or (atom.high.inclusive and value == atom.high.value)
    above = atom.low is None or value > atom.low.value or (atom.low.inclusive and value == atom.low.value)
    is_multiple = atom.multiple_of is None or (Fraction(value) / Fraction(atom.multiple_of)).denominator == 1
    return (is_integer or not atom.is_integer) and below and above and is_multiple


def loaded(value: Decimal) -> int | float:
    """A number of a schema as Python's `json` loads it."""
    number: int | float = json.loads(str(value))
    return number


def float_truth(atom: NumberAtom, text: str) -> bool:
    """What `jsonschema` says."""
    value = json.loads(text)
    if isinstance(atom, NumberValues):
        return any(value == loaded(each) for each in atom.values)
    if atom.is_integer and isinstance(value, float) and not value.is_integer():
        return False
    for bound, sign in ((atom.low, 1), (atom.high, -1)):
        if bound is not None:
            end = loaded(bound.value)
            if sign * value < sign * end or (value == end and not bound.inclusive):
                return False
    if atom.multiple_of is None:
        return True
    divisor = loaded(atom.multiple_of)
    if isinstance(divisor, float):
        quotient = value / divisor
        if math.isinf(quotient):
            return (Fraction(value) / Fraction(divisor)).denominator == 1
        return int(quotient) == quotient
    return value % divisor == 0


def readings(asked: tuple[NumberAtom, ...], text: str) -> list[tuple[bool, ...]]:
    return [
        tuple(exact_truth(atom, text, strict_integers=True) for atom in asked),
        tuple(exact_truth(atom, text, strict_integers=False) for atom in asked),
        tuple(float_truth(atom, text) for atom in asked),
    ]


def random_labels(num_atoms: int, rng: np.random.Generator) -> Callable[[tuple[bool, ...]], int]:
    vectors = list(itertools.product((False, True), repeat=num_atoms))
    table = dict(zip(vectors, rng.integers(-1, 3, len(vectors)).tolist(), strict=True))
    return lambda truths: table[truths]


def walk(fragment: ByteFragment, rng: np.random.Generator) -> bytes | None:
    state, text = 0, bytearray()
    for _ in range(60):
        if fragment.labels[state] >= 0 and rng.random() < 0.25:
            return bytes(text)
        following = np.flatnonzero(fragment.table[state] >= 0)
        if not len(following):
            break
        text.append(int(rng.choice(following)))
        state = int(fragment.table[state, text[-1]])
    return bytes(text) if fragment.labels[state] >= 0 else None


def budget() -> Budget:
    return Budget(max_states=100_000, timeout_s=30)


@relaxed
@given(asked=atoms, seed=st.integers(0, 2**32))
def test_every_reader_gives_generated_numbers_their_label(asked: tuple[NumberAtom, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    label_of = random_labels(len(asked), rng)
    fragment = SCALARS.numbers(asked, label_of, budget())
    for _ in range(20):
        text = walk(fragment, rng) if not fragment.is_empty else None
        if text is not None:
            expected = fragment.label_of(text)
            for truths in readings(asked, text.decode()):
                assert label_of(truths) == expected, (asked, text, truths)


numbers = st.one_of(
    st.integers(-2000, 2000),
    st.decimals(-200, 200, places=2).map(float),
    st.decimals(-2, 2, places=4).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**18), 10**18),
    constants.map(loaded),
    constants.map(float),
)


@relaxed
@given(asked=atoms, seed=st.integers(0, 2**32), samples=st.lists(numbers, min_size=5, max_size=30))
def test_printed_numbers_have_their_label(asked: tuple[NumberAtom, ...], seed: int, samples: list[int | float]) -> None:
    label_of = random_labels(len(asked), np.random.default_rng(seed))
    fragment = SCALARS.numbers(asked, label_of, budget())
    for value in samples:
        text = json.dumps(value)
        expected = {label_of(truths) for truths in readings(asked, text)}
        found = fragment.label_of(text.encode())
        if len(expected) > 1:
            assert found == -1, (asked, text)
        else:
            # Not every number is written, but those of few digits are.
            assert found in (-1, *expected), (asked, text)
            if is_simple(asked, text):
                assert found == expected.pop(), (asked, text)


def is_simple(asked: tuple[NumberAtom, ...], text: str) -> bool:
    digits = text.strip("-").replace(".", "")
    asks_multiple = any(isinstance(atom, NumberRange) and atom.multiple_of is not None for atom in asked)
    near = [bound.value for atom in asked if isinstance(atom, NumberRange) for bound in (atom.low, atom.high) if bound]
    return (
        digits.isdigit()
        and len(digits) <= 7
        and text not in ("-0", "-0.0")
        and (not asks_multiple or "." not in text)
        and not text.endswith(".0")
        and all(value == Decimal(text) or abs(value - Decimal(text)) > Decimal("1e-8") for value in near)
    )

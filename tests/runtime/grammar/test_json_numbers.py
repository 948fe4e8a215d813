from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberRange
from sgl_runtime.grammar.json_schema.scalars import Scalars

SCALARS = Scalars(np.ones(256, dtype=bool))


def bound(value: Any, *, inclusive: bool = True) -> Bound:
    return Bound(Decimal(str(value)), inclusive)


def made(wanted: NumberRange, *, negated: bool = False) -> ByteFragment:
    budget = Budget(max_states=10_000, timeout_s=10)
    return SCALARS.numbers((wanted,), lambda truths: 0 if truths[0] != negated else -1, budget)


def accepts(fragment: ByteFragment, value: object) -> bool:
    return fragment.label_of(str(value).encode()) == 0


def holds(wanted: NumberRange, value: Decimal) -> bool:
    above = wanted.low is None or value > wanted.low.value or (wanted.low.inclusive and value == wanted.low.value)
    below = wanted.high is None or value < wanted.high.value or (wanted.high.inclusive and value == wanted.high.value)
    return above and below


INTEGERS = [*range(-120, 121), 999, 1000, 1001, -999, -1000, 10**20, -(10**20)]
ENDS = [None, -100, -37, -1, 0, 1, 9, 10, 37, 99, 100]


@pytest.mark.parametrize("low", ENDS)
@pytest.mark.parametrize("inclusive", [True, False])
def test_integer_ranges(low: int | None, inclusive: bool) -> None:
    for high in ENDS:
        wanted = NumberRange(
            is_integer=True,
            low=None if low is None else bound(low, inclusive=inclusive),
            high=None if high is None else bound(high),
        )
        fragment = made(wanted)
        for value in INTEGERS:
            assert accepts(fragment, value) == holds(wanted, Decimal(value)), (wanted, value)


def test_integers_between_fractions_and_multiples() -> None:
    some = made(NumberRange(is_integer=True, low=bound(-2.5), high=bound(7.25), multiple_of=Decimal(3)))
    assert [value for value in range(-20, 20) if accepts(some, value)] == [0, 3, 6]
    thirteens = made(NumberRange(is_integer=True, multiple_of=Decimal(13)))
    assert [value for value in range(-40, 40) if accepts(thirteens, value)] == [-39, -26, -13, 0, 13, 26, 39]


def test_number_ranges_agree_with_decimals() -> None:
    rng = np.random.default_rng(3)
    texts = [f"{rng.integers(-300, 300)}.{digits}" for digits in rng.integers(0, 1000, 300)]
    texts += [
        "0",
        "0.0",
        "0.5",
        "0.50",
        "0.05",
        "0.049",
        "1",
        "1.0",
        "-0.5",
        "99.9",
        "100",
        "100.0",
        "100.000001",
        "-12.34",
        "12.340",
    ]
    for low, high in [(0.5, 100), (-12.34, 12.34), (None, 0.05), (0.05, None), (-300, -0.5), (0, None), (1e-3, 1e3)]:
        for inclusive in (True, False):
            wanted = NumberRange(
                is_integer=False,
                low=None if low is None else bound(low, inclusive=inclusive),
                high=None if high is None else bound(high, inclusive=inclusive),
            )
            inside, outside = made(wanted), made(wanted, negated=True)
            for text in texts:
                assert accepts(inside, text) == holds(wanted, Decimal(text)), (wanted, text)
                assert accepts(outside, text) != accepts(inside, text), (wanted, text)


def test_bounds_of_many_digits() -> None:
    last = made(NumberRange(is_integer=True, low=bound(-(2**63)), high=bound(2**63 - 1)))
    assert [accepts(last, value) for value in (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    tiny = made(NumberRange(is_integer=False, low=bound("1e-20"), high=bound("1e20", inclusive=False)))
    texts = ("0.00000000000000000001", "0.000000000000000000009", "99999999999999", "100000000000000000000", "1e-10")
    assert [accepts(tiny, text) for text in texts] == [True, False, True, False, True]


def test_exclusive_bounds_hold_for_floats_too() -> None:
    inside = made(NumberRange(is_integer=False, low=bound(0, inclusive=False), high=bound(1, inclusive=False)))
    assert accepts(inside, "0.99999999999999")
    assert not accepts(inside, "0.9999999999999999999")
    assert accepts(inside, "0.00000000000001")
    assert not accepts(inside, "0." + "0" * 400 + "1")

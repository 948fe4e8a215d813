import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberRange, number_dfa


def bound(value: Any, *, inclusive: bool = True) -> Bound:
    return Bound(Decimal(str(value)), inclusive)


def made(**fields: Any) -> Any:
    return number_dfa(NumberRange(**fields), Budget(max_states=10_000, timeout_s=10))


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
        dfa = number_dfa(wanted, Budget(max_states=10_000, timeout_s=10))
        for value in INTEGERS:
            assert dfa.accepts(str(value)) == wanted.holds(value), (wanted, value)


def test_integers_between_fractions_and_multiples() -> None:
    dfa = made(is_integer=True, low=bound(-2.5), high=bound(7.25), multiple_of=3)
    assert [value for value in range(-20, 20) if dfa.accepts(str(value))] == [0, 3, 6]
    assert [value for value in range(-40, 40) if made(is_integer=True, multiple_of=13).accepts(str(value))] == [
        -39,
        -26,
        -13,
        0,
        13,
        26,
        39,
    ]


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
            dfa = number_dfa(wanted, Budget(max_states=10_000, timeout_s=10))
            for text in texts:
                holds = _holds(wanted, Decimal(text)) and not (text.startswith("-0") and Decimal(text) == 0)
                assert dfa.accepts(text) == holds, (wanted, text)


def _holds(wanted: NumberRange, value: Decimal) -> bool:
    above = wanted.low is None or value > wanted.low.value or (wanted.low.inclusive and value == wanted.low.value)
    below = wanted.high is None or value < wanted.high.value or (wanted.high.inclusive and value == wanted.high.value)
    return above and below


def test_exclusive_bounds_hold_for_floats_too() -> None:
    dfa = made(is_integer=False, low=bound(0, inclusive=False), high=bound(1, inclusive=False))
    assert dfa.accepts("0.99999999999999")
    assert not dfa.accepts("0.9999999999999999999")
    assert dfa.accepts("0.00000000000001")
    assert not dfa.accepts("0." + "0" * 400 + "1")


def test_free_numbers_are_json_numbers() -> None:
    integer, number = made(is_integer=True), made(is_integer=False)
    for text in ("0", "-1", "10", "123456789012345678901234567890"):
        assert integer.accepts(text)
        assert number.accepts(text)
    for text in ("1.5", "-0.1e-7", "1E+10", "0.0", "1e5"):
        assert number.accepts(text)
        assert not integer.accepts(text)
        json.loads(text)
    for text in ("01", "1.", ".5", "+1", "-", "", "1e", "0x1", "NaN", "Infinity"):
        assert not number.accepts(text)
        assert not integer.accepts(text)

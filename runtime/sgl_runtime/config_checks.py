"""Checks that the sections of the configuration share."""

import math

from sgl_runtime.errors import ConfigError


def check_positive(name: str, value: int | None, high: float = math.inf) -> None:
    """See that a number is at least 1, and no more than a limit; None is right too.

    Raises:
        ConfigError: it is not.
    """
    if value is not None and not 1 <= value <= high:
        allowed = "at least 1" if high == math.inf else f"from 1 to {int(high)}"
        raise ConfigError(f"{name} is {value}; it must be {allowed}")


def check_seconds(name: str, value: float, *, may_be_zero: bool = False) -> None:
    """See that a time is finite and above 0, or at least 0 where that has a meaning.

    Raises:
        ConfigError: it is not.
    """
    if not (0.0 < value < math.inf or (may_be_zero and value == 0.0)):
        allowed = "0 seconds or more" if may_be_zero else "above 0 seconds"
        raise ConfigError(f"{name} is {value}; it must be {allowed}")

"""The atoms about strings: what one group of keywords asks about a string."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StringShape:
    """What a string must satisfy.

    Attributes:
        least, most: Limits on its number of characters; no upper one when `most` is None.
        pattern: A regex that it matches somewhere.
        format: Name of a format that it has, one of `formats.FORMATS`.
    """

    least: int = 0
    most: int | None = None
    pattern: str | None = None
    format: str | None = None


@dataclass(frozen=True)
class StringValues:
    """A string that is one of some values.

    Attributes:
        values: The strings.
    """

    values: frozenset[str]


StringAtom = StringShape | StringValues

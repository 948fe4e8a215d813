"""CharSet: a set of Unicode characters as ranges; the labels of automata that still work on characters."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True)
class CharSet:
    """Characters in sorted, disjoint, non-adjacent inclusive ranges of code points, surrogates left out."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int]]) -> "CharSet":
        """Any inclusive ranges, in any order, overlapping or not; surrogates are dropped."""
        cut: list[tuple[int, int]] = []
        for low, high in ranges:
            if low <= min(high, _SURROGATES[0] - 1):
                cut.append((low, min(high, _SURROGATES[0] - 1)))
            if max(low, _SURROGATES[1] + 1) <= high:
                cut.append((max(low, _SURROGATES[1] + 1), high))
        cut.sort()
        merged: list[tuple[int, int]] = []
        for low, high in cut:
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def of(cls, chars: str) -> "CharSet":
        """Exactly the characters of a string."""
        return cls.from_ranges((ord(char), ord(char)) for char in chars)

    @classmethod
    def between(cls, low: str, high: str) -> "CharSet":
        """All characters from `low` to `high`, both included."""
        return cls.from_ranges([(ord(low), ord(high))])

    @classmethod
    def from_code_points(cls, code_points: Iterable[int]) -> "CharSet":
        """Exactly these code points, given in ascending order."""
        ranges: list[tuple[int, int]] = []
        for point in code_points:
            if ranges and point == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], point)
            else:
                ranges.append((point, point))
        return cls.from_ranges(ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, char: str) -> bool:
        point = ord(char)
        return any(low <= point <= high for low, high in self.ranges)

    def __or__(self, other: "CharSet") -> "CharSet":
        return CharSet.from_ranges(self.ranges + other.ranges)

    def __and__(self, other: "CharSet") -> "CharSet":
        return (self.complement() | other.complement()).complement()

    def __sub__(self, other: "CharSet") -> "CharSet":
        return self & other.complement()

    def complement(self) -> "CharSet":
        """Every character that is not in this set."""
        gaps = []
        next_point = 0
        for low, high in self.ranges:
            if next_point < low:
                gaps.append((next_point, low - 1))
            next_point = high + 1
        gaps.append((next_point, MAX_CODE_POINT))
        return CharSet.from_ranges(gaps)


@lru_cache(maxsize=1024)
def single(char: str) -> CharSet:
    """The set of one character."""
    return CharSet.of(char)


EMPTY_SET = CharSet(())
ANY_CHAR = EMPTY_SET.complement()

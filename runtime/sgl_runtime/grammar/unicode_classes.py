r"""Classes of characters that a regex names: shorthands, general categories, letters without case.

`\d`, `\w` and `\s` have two readings, ASCII and Unicode.  Unless a flag picks one, what is generated must satisfy
both: a shorthand stands for its ASCII members, and its negation leaves out all Unicode members.
"""

import unicodedata
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.char_set import MAX_CODE_POINT, CharSet

_ASCII_DIGITS = CharSet.between("0", "9")
_ASCII_WORD = CharSet.from_ranges([(48, 57), (65, 90), (95, 95), (97, 122)])
_ASCII_SPACE = CharSet.of(" \t\n\r\f\v")
ASCII_CLASSES = {"d": _ASCII_DIGITS, "w": _ASCII_WORD, "s": _ASCII_SPACE}
# White space for ECMAScript, whose regexes JSON Schema means, and not for Python.
ECMA_SPACE = CharSet.of("\ufeff")
# And the other way round.
PYTHON_SPACE = CharSet.of("\x1c\x1d\x1e\x1f\x85")
_LONG_NAMES = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Control": "Cc",
    "Format": "Cf",
}
# Past this code point no character has a case.
_CASED_LIMIT = 0x1F000


@cache
def unicode_class(letter: str) -> CharSet:
    r"""The Unicode members of `\d`, `\w` or `\s`, as Python's `re` has them.

    Args:
        letter: One of "d", "w", "s".
    """
    chars = map(chr, range(MAX_CODE_POINT + 1))
    if letter == "d":
        members = (ord(char) for char in chars if char.isdecimal())
    elif letter == "w":
        members = (ord(char) for char in chars if char == "_" or char.isalnum())
    else:
        members = (ord(char) for char in chars if char.isspace())
    return CharSet.from_code_points(members)


@cache
def agreed_space() -> CharSet:
    r"""The members of `\s` for ECMAScript that are members for Python too."""
    return unicode_class("s") - PYTHON_SPACE


@cache
def _categories() -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    names: dict[str, int] = {}
    numbers = bytearray()
    for char in map(chr, range(MAX_CODE_POINT + 1)):
        numbers.append(names.setdefault(unicodedata.category(char), len(names)))
    return np.frombuffer(bytes(numbers), dtype=np.uint8), tuple(names)


@cache
def category(name: str) -> CharSet | None:
    """The characters of a general category ("Lu", "Uppercase_Letter") or group of them ("L"); None for other names."""
    numbers, names = _categories()
    name = _LONG_NAMES.get(name, name)
    wanted = [number for number, full in enumerate(names) if full == name or full[0] == name]
    if not wanted:
        return None
    return CharSet.from_code_points(np.flatnonzero(np.isin(numbers, wanted)).tolist())


@cache
def _case_families(ascii_only: bool) -> tuple[dict[str, str], dict[str, list[int]]]:
    """For each cased character the key of its family, and the members of each family."""
    members: dict[str, list[int]] = {}
    keys: dict[str, str] = {}
    for point in range(128 if ascii_only else _CASED_LIMIT):
        char = chr(point)
        # Characters whose lower-case letters have one upper-case form are equal to `re` without case.
        key = _lower(char).upper()
        members.setdefault(key, []).append(point)
        keys[char] = key
    families = {key: points for key, points in members.items() if len(points) > 1}
    return {char: key for char, key in keys.items() if key in families}, families


def _lower(char: str) -> str:
    """The one-character lower-case form; U+0130 alone has none in full, and "i" in the simple mapping."""
    lowered = char.lower()
    return lowered if len(lowered) == 1 else lowered[0]


@lru_cache(maxsize=256)
def without_case(chars: CharSet, *, ascii_only: bool) -> CharSet:
    """The characters of a set and all that differ from one of them in case only."""
    keys, families = _case_families(ascii_only)
    extra: list[tuple[int, int]] = []
    done: set[str] = set()
    for low, high in chars.ranges:
        for point in range(low, min(high + 1, _CASED_LIMIT)):
            key = keys.get(chr(point))
            if key is not None and key not in done:
                done.add(key)
                extra.extend((member, member) for member in families[key])
    return chars | CharSet.from_ranges(extra)

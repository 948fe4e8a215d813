"""Reads what stands for one character of a set: classes in brackets and escapes."""

import re
import unicodedata

from sgl_runtime.grammar.char_set import EMPTY_SET, MAX_CODE_POINT, CharSet, single
from sgl_runtime.grammar.regex_cursor import RegexCursor
from sgl_runtime.grammar.regex_tree import Chars, RegexFlags, Shorthand
from sgl_runtime.grammar.unicode_classes import category

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS = "0123456789abcdefABCDEF"
_OCTAL_DIGITS = "01234567"
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_BRACED = re.compile(r"\{([^{}]*)\}")


def literal(char: str, flags: RegexFlags) -> Chars:
    """One character that stands for itself."""
    return Chars(single(char), flags=flags)


def read_escape(cursor: RegexCursor, start: int, flags: RegexFlags) -> Chars:
    """Take what follows a backslash outside of a class (anchors are read elsewhere)."""
    digit = cursor.peek()
    if digit.isascii() and digit.isdigit() and digit != "0":
        octal = cursor.text[cursor.position : cursor.position + 3]
        if not (len(octal) == 3 and all(each in _OCTAL_DIGITS for each in octal)):
            raise cursor.error("back references are not supported", start)
    if flags.ecma and digit == "k":
        raise cursor.error("back references are not supported", start)
    item = _escaped_item(cursor, start, flags)
    return item if isinstance(item, Chars) else literal(item, flags)


def read_class(cursor: RegexCursor, start: int, flags: RegexFlags) -> Chars:
    """Take a class up to its closing bracket; the opening one is taken already."""
    negated = cursor.take("^")
    ranges: list[tuple[int, int]] = []
    items: list[Chars | str] = []
    # To Python a bracket right at the beginning is a member; to ECMAScript the class is empty.
    first = not flags.ecma
    while first or not cursor.take("]"):
        first = False
        item_at = cursor.position
        items.append(_class_item(cursor, start, flags))
        if not _is_range(cursor):
            continue
        cursor.take("-")
        low, high = items[-1], _class_item(cursor, start, flags)
        if isinstance(low, str) and isinstance(high, str) and low <= high:
            ranges.append((ord(low), ord(high)))
        elif flags.ecma and not (isinstance(low, str) and isinstance(high, str)):
            # A shorthand is no end of a range, so that the dash is a member.
            items.extend(["-", high])
        else:
            raise cursor.error(f"bad character range {cursor.text[item_at : cursor.position]}", item_at)
    listed = CharSet.from_ranges([*ranges, *((ord(item), ord(item)) for item in items if isinstance(item, str))])
    shorthands: list[Shorthand] = []
    for item in items:
        if isinstance(item, Chars) and item.shorthands:
            shorthands.extend(item.shorthands)
        elif isinstance(item, Chars):
            listed = listed | item.resolve(generous=False)
    return Chars(listed, tuple(shorthands), negated=negated, flags=flags)


def _is_range(cursor: RegexCursor) -> bool:
    return cursor.peek() == "-" and cursor.text[cursor.position + 1 : cursor.position + 2] not in ("]", "")


def _class_item(cursor: RegexCursor, start: int, flags: RegexFlags) -> Chars | str:
    at = cursor.position
    if cursor.at_end:
        raise cursor.error("unterminated character set", start)
    char = cursor.next()
    if char != "\\":
        return char
    if cursor.take("b"):
        return "\b"
    return _escaped_item(cursor, at, flags)


def _escaped_item(cursor: RegexCursor, start: int, flags: RegexFlags) -> Chars | str:
    letter = cursor.next_or("bad escape (end of pattern)")
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter in "dwsDWS":
        shorthand = Shorthand(letter.lower(), negated=letter.isupper(), charset=flags.charset)
        return Chars(EMPTY_SET, (shorthand,))
    if letter in "pP":
        return _category(cursor, start, letter == "P", flags)
    if flags.ecma and letter == "c" and cursor.peek().isascii() and cursor.peek().isalpha():
        return chr(ord(cursor.next()) % 32)
    if flags.ecma and letter == "u":
        wide = _wide_character(cursor, start)
        if wide is not None:
            return wide
    if letter in _HEX_LENGTHS:
        return _character(cursor, _digits(cursor, _HEX_DIGITS, _HEX_LENGTHS[letter], start), 16, start)
    if letter == "N":
        return _named(cursor, start)
    if letter.isascii() and letter.isdigit():
        return _octal(cursor, letter, start)
    if letter.isascii() and letter.isalpha():
        raise cursor.error(f"bad escape \\{letter}", start)
    return letter


def _digits(cursor: RegexCursor, allowed: str, length: int, start: int) -> str:
    digits = cursor.text[cursor.position : cursor.position + length]
    if len(digits) < length or any(digit not in allowed for digit in digits):
        raise cursor.error(f"incomplete escape {cursor.text[start : cursor.position]}", start)
    cursor.position += length
    return digits


def _octal(cursor: RegexCursor, first: str, start: int) -> str:
    digits = first
    while len(digits) < 3 and cursor.peek() and cursor.peek() in _OCTAL_DIGITS:
        digits += cursor.next()
    if any(digit not in _OCTAL_DIGITS for digit in digits) or int(digits, 8) > 0o377:
        raise cursor.error(f"bad octal escape \\{digits}", start)
    return chr(int(digits, 8))


def _character(cursor: RegexCursor, digits: str, base: int, start: int) -> str:
    point = int(digits, base)
    if point > MAX_CODE_POINT:
        raise cursor.error("the code point is past U+10FFFF", start)
    return chr(point)


def _wide_character(cursor: RegexCursor, start: int) -> str | None:
    r"""The character of `\u{...}` or of two surrogates; None where there is neither."""
    match = _SURROGATE_PAIR.match(cursor.text, start)
    if match is not None:
        cursor.position = match.end()
        high, low = (int(digits, 16) for digits in match.groups())
        return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
    match = _BRACED.match(cursor.text, cursor.position)
    if match is None or not match.group(1) or any(digit not in _HEX_DIGITS for digit in match.group(1)):
        return None
    cursor.position = match.end()
    return _character(cursor, match.group(1), 16, start)


def _named(cursor: RegexCursor, start: int) -> str:
    match = _BRACED.match(cursor.text, cursor.position)
    try:
        char = unicodedata.lookup(match.group(1)) if match else ""
    except KeyError:
        char = ""
    if match is None or len(char) != 1:
        raise cursor.error("unknown character name", start)
    cursor.position = match.end()
    return char


def _category(cursor: RegexCursor, start: int, negated: bool, flags: RegexFlags) -> Chars:
    match = _BRACED.match(cursor.text, cursor.position)
    name = match.group(1) if match else cursor.peek()
    cursor.position = match.end() if match else cursor.position + len(name)
    if name.startswith("^"):
        name, negated = name[1:], not negated
    for prefix in ("General_Category=", "gc="):
        name = name.removeprefix(prefix)
    members = category(name)
    if members is None:
        raise cursor.error(f"unknown or unsupported character property {name!r}; general categories are known", start)
    return Chars(members.complement() if negated else members, flags=flags)

"""Reads the keywords of numbers and strings, checked."""

from decimal import Decimal

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.json_schema.formats import is_standard_format
from sgl_runtime.grammar.json_schema.numbers import ANY_INTEGER, ANY_NUMBER, Bound, NumberRange
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode
from sgl_runtime.grammar.json_schema.strings import StringShape
from sgl_runtime.grammar.regex import is_found_anywhere

_NUMBER_KEYWORDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_STRING_KEYWORDS = frozenset(("minLength", "maxLength", "pattern", "format"))


def read_number(node: SchemaNode, *, is_integer: bool) -> NumberRange:
    """The range of an `integer` or `number`.

    Raises:
        GrammarError: a keyword is malformed.
    """
    if _NUMBER_KEYWORDS.isdisjoint(node.value):
        return ANY_INTEGER if is_integer else ANY_NUMBER
    multiple = _decimal(node, "multipleOf")
    if multiple is not None and multiple <= 0:
        raise node.error("multipleOf", f"is {node.value['multipleOf']}; it must be above 0")
    return NumberRange(
        is_integer=is_integer,
        low=_bound(node, "minimum", "exclusiveMinimum", sign=1),
        high=_bound(node, "maximum", "exclusiveMaximum", sign=-1),
        multiple_of=multiple,
    )


def read_string(node: SchemaNode) -> list[StringShape]:
    """The keywords of a `string`; a format that no draft knows is an annotation.

    Raises:
        GrammarError: a keyword is malformed.
    """
    if _STRING_KEYWORDS.isdisjoint(node.value):
        return []
    for keyword in ("pattern", "format"):
        if keyword in node.value and not isinstance(node.value[keyword], str):
            raise node.error(keyword, f"is {node.value[keyword]!r}; it must be a string")
    pattern = node.value.get("pattern")
    shape_format = node.value.get("format")
    shape = StringShape(
        least=node.integer("minLength") or 0,
        most=node.integer("maxLength"),
        pattern=None if pattern is None or _is_found_anywhere(pattern) else pattern,
        format=shape_format if shape_format is not None and is_standard_format(shape_format) else None,
    )
    return [] if shape == StringShape() else [shape]


def _is_found_anywhere(pattern: str) -> bool:
    try:
        return is_found_anywhere(pattern)
    except GrammarError:
        # What is wrong with it is said where it is enforced.
        return False


def _decimal(node: SchemaNode, keyword: str) -> Decimal | None:
    value = node.value.get(keyword)
    if value is None and keyword not in node.value:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.error(keyword, f"is {value!r}; it must be a number")
    return Decimal(str(value))


def _bound(node: SchemaNode, inclusive: str, exclusive: str, *, sign: int) -> Bound | None:
    """The tighter of two bounds; `exclusive` is a number, or in draft 4 a flag on the other."""
    at_end = _decimal(node, inclusive)
    flag = node.value.get(exclusive)
    if isinstance(flag, bool):
        return None if at_end is None else Bound(at_end, inclusive=not flag)
    beyond = _decimal(node, exclusive)
    if beyond is None or (at_end is not None and at_end * sign > beyond * sign):
        return None if at_end is None else Bound(at_end, inclusive=True)
    return Bound(beyond, inclusive=False)

"""Reads the keywords of numbers, strings, arrays and objects, checked."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sgl_runtime.grammar.json_schema.formats import FORMATS
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberRange
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode
from sgl_runtime.grammar.json_schema.strings import StringShape


def read_number(node: SchemaNode, *, is_integer: bool) -> NumberRange:
    """The range of an `integer` or `number`.

    Raises:
        GrammarError: a keyword is malformed, or `multipleOf` is not a whole number.
    """
    multiple = _decimal(node, "multipleOf")
    if multiple is not None:
        if multiple <= 0:
            raise node.error("multipleOf", f"is {node.value['multipleOf']}; it must be above 0")
        if is_integer and (1 / multiple) % 1 == 0:
            multiple = Decimal(1)
        if multiple % 1 != 0:
            raise node.error("multipleOf", f"is {node.value['multipleOf']}; only whole numbers are supported")
        is_integer = True
    return NumberRange(
        is_integer=is_integer,
        low=_bound(node, "minimum", "exclusiveMinimum", sign=1),
        high=_bound(node, "maximum", "exclusiveMaximum", sign=-1),
        multiple_of=int(multiple or 1),
    )


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


def read_string(node: SchemaNode) -> StringShape:
    """The keywords of a `string`.

    Raises:
        GrammarError: a keyword is malformed, or the format is not one that is enforced.
    """
    for keyword in ("pattern", "format"):
        if keyword in node.value and not isinstance(node.value[keyword], str):
            raise node.error(keyword, f"is {node.value[keyword]!r}; it must be a string")
    wanted = node.value.get("format")
    if wanted is not None and wanted not in FORMATS:
        raise node.error("format", f"is {wanted!r}, which is not supported; supported: {', '.join(FORMATS)}")
    return StringShape(
        least=node.integer("minLength") or 0,
        most=node.integer("maxLength"),
        pattern=node.value.get("pattern"),
        format=wanted,
    )


@dataclass(frozen=True)
class ArrayShape:
    """What an array must satisfy.

    Attributes:
        prefix: Schemas of the first items.
        rest: Schema of all further items; None when there are none.
        least, most: Limits on the number of items; no upper one when `most` is None.
    """

    prefix: list[SchemaNode]
    rest: SchemaNode | None
    least: int
    most: int | None


def read_array(node: SchemaNode) -> ArrayShape:
    """The keywords of an `array`; lists of first items are closed unless a schema for further ones is given.

    Raises:
        GrammarError: a keyword is malformed or cannot be enforced, or the items may be anything.
    """
    least, most = node.integer("minItems") or 0, node.integer("maxItems")
    if node.value.get("uniqueItems", False) is not False and (most is None or most > 1):
        raise node.error("uniqueItems", "is a keyword that is not supported, unless it is false")
    # Up to draft 2019-09 a list under `items` was what is `prefixItems` now.
    is_old = isinstance(node.value.get("items"), list)
    prefix_keyword, rest_keyword = ("items", "additionalItems") if is_old else ("prefixItems", "items")
    prefix = node.schemas(prefix_keyword) if prefix_keyword in node.value else []
    rest = node.child(rest_keyword) if rest_keyword in node.value else None
    if rest is not None and rest.value is True and prefix:
        rest = None
    if rest is not None and rest.value is False:
        rest = None
    elif rest is None and not prefix and most != 0:
        raise node.error("items", "is missing: an array of any JSON values is not supported")
    if rest is None:
        most = len(prefix) if most is None else min(most, len(prefix))
    return ArrayShape(prefix, rest, least, most)


@dataclass(frozen=True)
class ObjectShape:
    """What an object must satisfy.

    Attributes:
        properties: The properties that it may have, in order.
        required: Names of those that it must have.
    """

    properties: dict[str, SchemaNode]
    required: frozenset[str]


def read_object(node: SchemaNode) -> ObjectShape:
    """The keywords of an `object`; one that lists properties and says nothing more is closed.

    Raises:
        GrammarError: a keyword is malformed or cannot be enforced, or the object may hold anything.
    """
    listed = node.value.get("properties", {})
    if not isinstance(listed, dict):
        raise node.error("properties", "must be an object")
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if node.value.get(keyword, False) is not False:
            raise node.error(keyword, "is not false; objects with further properties are not supported")
    if node.value.get("patternProperties"):
        raise node.error("patternProperties", "is a keyword that is not supported")
    if "properties" not in node.value and node.value.get("additionalProperties") is not False:
        raise node.error("properties", "is missing: an object with any properties is not supported")
    required = node.strings("required")
    for name in required:
        if name not in listed:
            raise node.error("required", f"names {name!r}, which is not among the properties")
    _check_counts(node, len(listed), len(set(required)))
    present = {name: node.child("properties", name) for name in listed}
    if any(present[name].value is False for name in required):
        return ObjectShape(present, frozenset(required))
    return ObjectShape(
        {name: child for name, child in present.items() if child.value is not False}, frozenset(required)
    )


def _check_counts(node: SchemaNode, num_listed: int, num_required: int) -> None:
    least, most = node.integer("minProperties"), node.integer("maxProperties")
    if least is not None and num_required < least:
        raise node.error("minProperties", f"is {least}, which is not supported where {num_required} are required")
    if most is not None and num_listed > most:
        raise node.error("maxProperties", f"is {most}, which is not supported where {num_listed} are listed")


def read_listed_values(node: SchemaNode) -> list[Any]:
    """The values of `enum` and `const`; with both, those that are in both.

    Raises:
        GrammarError: `enum` is no non-empty list.
    """
    if "enum" not in node.value:
        return [node.value["const"]]
    values = node.value["enum"]
    if not isinstance(values, list) or not values:
        raise node.error("enum", "must be a non-empty list")
    if "const" in node.value:
        values = [value for value in values if same_json(value, node.value["const"])]
    return values


def same_json(first: Any, second: Any) -> bool:
    """Equality of JSON values: numbers by value, and true is not 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(first[key], second[key]) for key in first)
    return bool(first == second)

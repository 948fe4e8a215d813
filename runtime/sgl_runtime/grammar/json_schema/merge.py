"""Conjunctions of schemas: `$ref` with siblings, `allOf`, and what stands next to `anyOf` or `oneOf`.

Merging comes before closing: an object under `allOf` may have the properties of every part, in the order of the parts.
"""

import math
from collections.abc import Callable
from typing import Any

from sgl_runtime.grammar.json_schema import keywords
from sgl_runtime.grammar.json_schema.readers import same_json
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

_ITEM_KEYWORDS = ("items", "prefixItems", "additionalItems")


def merge(first: SchemaNode, second: SchemaNode) -> SchemaNode:
    """A schema whose instances are those of both; it stands at the place of the first.

    Raises:
        GrammarError: a keyword stands in both and the two cannot be put into one.
    """
    if first.value is False or second.value is True:
        return first
    if second.value is False or first.value is True:
        return SchemaNode(second.value, first.pointer)
    _check_scopes(first, second)
    merged = dict(first.value)
    for name, value in second.value.items():
        if name not in merged:
            merged[name] = value
        elif name in _RULES:
            merged[name] = _RULES[name](merged[name], value)
        elif keywords.is_annotation(name) or same_json(merged[name], value):
            continue
        else:
            raise second.error(
                name, f"differs from the {name!r} of {first.pointer}, which must hold too: not supported"
            )
    _close(merged, first.value, second.value)
    _close(merged, second.value, first.value)
    return SchemaNode(merged, first.pointer)


def _check_scopes(first: SchemaNode, second: SchemaNode) -> None:
    """Refuse keywords that mean the rest of what their own schema lists, where the merged one would list more."""
    if "unevaluatedProperties" in second.value:
        raise second.error("unevaluatedProperties", "is not supported in a schema that must hold together with others")
    about_items = [[name for name in _ITEM_KEYWORDS if name in node.value] for node in (first, second)]
    if all(about_items) and about_items != [["items"], ["items"]]:
        raise second.error(
            about_items[1][0], f"cannot be put together with the items of {first.pointer}: not supported"
        )
    if all(about_items) and any(isinstance(node.value["items"], list) for node in (first, second)):
        raise second.error("items", f"cannot be put together with the items of {first.pointer}: not supported")


def split_choices(node: SchemaNode, keyword: str) -> list[SchemaNode]:
    """The options of an `anyOf` or `oneOf`, each merged with what stands next to it.

    Raises:
        GrammarError: an option cannot be merged.
    """
    rest = SchemaNode({name: value for name, value in node.value.items() if name != keyword}, node.pointer)
    options = node.schemas(keyword)
    if not keywords.assertions(rest):
        return options
    # The option's place is kept: it says more about what is wrong than that of the whole.
    return [SchemaNode(merge(rest, option).value, option.pointer) for option in options]


def _close(merged: dict[str, Any], closed: dict[str, Any], other: dict[str, Any]) -> None:
    """Forbid the other part's properties where one part says that it has no others than its own."""
    if closed.get("additionalProperties") is not False or not isinstance(other.get("properties"), dict):
        return
    own = closed.get("properties", {})
    merged["properties"] = {
        name: schema if name in own or name not in other["properties"] or closed.get("patternProperties") else False
        for name, schema in merged["properties"].items()
    }


def _merge_types(first: Any, second: Any) -> Any:
    names_of_both = []
    for names in (first, second):
        listed = [names] if isinstance(names, str) else list(names)
        names_of_both.append([*listed, "integer"] if "number" in listed else listed)
    shared = [name for name in names_of_both[0] if name in names_of_both[1]]
    return [name for name in shared if name != "integer" or "number" not in shared]


def _merge_properties(first: Any, second: Any) -> Any:
    merged = dict(first)
    for name, schema in second.items():
        merged[name] = _both(first[name], schema) if name in first else schema
    return merged


def _both(first: Any, second: Any) -> Any:
    return first if same_json(first, second) else {"allOf": [first, second]}


def _merge_lists(first: Any, second: Any) -> Any:
    return [*first, *(item for item in second if item not in first)]


def _merge_enums(first: Any, second: Any) -> Any:
    return [value for value in first if any(same_json(value, other) for other in second)]


def _merge_multiples(first: Any, second: Any) -> Any:
    return math.lcm(first, second) if isinstance(first, int) and isinstance(second, int) else [first, second]


def _tighter(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def rule(first: Any, second: Any) -> Any:
        if isinstance(first, bool) or isinstance(second, bool):
            # Draft 4 flags belong to a bound of their own schema: a list is refused when it is read.
            return first if first is second else [first, second]
        return choose(first, second)

    return rule


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "type": _merge_types,
    "properties": _merge_properties,
    "required": _merge_lists,
    "enum": _merge_enums,
    "items": _both,
    "additionalProperties": lambda first, second: False if first is False or second is False else _both(first, second),
    "allOf": lambda first, second: [*first, *second],
    "multipleOf": _merge_multiples,
    "uniqueItems": lambda first, second: first or second,
    **{name: _tighter(max) for name in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")},
    **{name: _tighter(min) for name in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")},
}

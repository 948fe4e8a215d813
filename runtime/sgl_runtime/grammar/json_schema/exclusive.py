"""Whether `oneOf` can be enforced as a plain choice: no output made for one option satisfies another.

Outputs are narrower than the schema: an object made for an option holds only the properties that the option lists.
The other option has to be read in full, with whatever else it lets through.
"""

from collections.abc import Callable
from typing import Any

from sgl_runtime.grammar.json_schema import keywords
from sgl_runtime.grammar.json_schema.literals import type_names
from sgl_runtime.grammar.json_schema.merge import split_choices
from sgl_runtime.grammar.json_schema.readers import read_listed_values, same_json
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

Flatten = Callable[[SchemaNode], SchemaNode]
_MAX_DEPTH = 8


def excludes(made_for: SchemaNode, other: SchemaNode, flatten: Flatten, depth: int = 0) -> bool:
    """Whether it is certain that no output made for one schema satisfies another.

    Args:
        made_for: The schema that the output was made for.
        other: The schema that it must not satisfy.
        flatten: Resolves `$ref` and `allOf` of a schema.
        depth: How many properties deep the two stand.
    """
    made_for, other = flatten(made_for), flatten(other)
    if made_for.value is False or other.value is False:
        return True
    if made_for.value is True or other.value is True or depth > _MAX_DEPTH:
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in made_for.value:
            options = split_choices(made_for, keyword)
            return all(excludes(option, other, flatten, depth + 1) for option in options)
        if keyword in other.value:
            options = split_choices(other, keyword)
            return all(excludes(made_for, option, flatten, depth + 1) for option in options)
    shared = _possible_types(made_for) & _possible_types(other)
    if not shared:
        return True
    if _is_listed(made_for):
        return all(_rejects(other, value) for value in read_listed_values(made_for))
    return shared == {"object"} and _objects_exclude(made_for, other, flatten, depth)


def _possible_types(node: SchemaNode) -> set[str]:
    if _is_listed(node):
        return set().union(*(type_names(value) for value in read_listed_values(node)))
    if "type" not in node.value:
        return set(keywords.TYPES)
    types = set(keywords.allowed_types(node))
    return types | {"integer"} if "number" in types else types


def _is_listed(node: SchemaNode) -> bool:
    return "enum" in node.value or "const" in node.value


def _rejects(node: SchemaNode, value: Any) -> bool:
    """Whether a given value is certainly no instance."""
    if type_names(value).isdisjoint(_possible_types(node)):
        return True
    return _is_listed(node) and not any(same_json(value, each) for each in read_listed_values(node))


def _objects_exclude(made_for: SchemaNode, other: SchemaNode, flatten: Flatten, depth: int) -> bool:
    own, listed = made_for.value.get("properties", {}), other.value.get("properties", {})
    if not isinstance(own, dict) or not isinstance(listed, dict):
        return False
    if any(name not in own or own[name] is False for name in other.strings("required")):
        return True
    is_closed = other.value.get("additionalProperties") is False and not other.value.get("patternProperties")
    for name in made_for.strings("required"):
        if name not in own:
            continue
        if name not in listed:
            if is_closed:
                return True
        elif excludes(made_for.child("properties", name), other.child("properties", name), flatten, depth + 1):
            return True
    return False

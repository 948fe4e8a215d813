"""Reads the keywords of arrays and objects into formulas, checked."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sgl_runtime.grammar.json_schema.atoms import (
    ANYTHING,
    NOTHING,
    Child,
    Contains,
    HasProperty,
    Items,
    NumItems,
    NumProperties,
    Properties,
    PropertyNames,
    Unique,
)
from sgl_runtime.grammar.json_schema.evaluated import evaluated_at
from sgl_runtime.grammar.json_schema.formula import TRUE, Formula
from sgl_runtime.grammar.json_schema.kinds import OBJECT, STRING, ByKind, about, any_value
from sgl_runtime.grammar.json_schema.literals import check_texts
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

if TYPE_CHECKING:
    from sgl_runtime.grammar.json_schema.reader import SchemaReader

Names = tuple[str, ...]

_ARRAY_KEYWORDS = frozenset((
    "items", "additionalItems", "prefixItems", "minItems", "maxItems", "contains", "minContains", "maxContains",
    "uniqueItems", "unevaluatedItems",
))  # fmt: skip
_OBJECT_KEYWORDS = frozenset((
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required",
    "minProperties", "maxProperties", "propertyNames",
))  # fmt: skip

MAX_REORDERED = 6
"""Required properties up to which their order in `required` counts, too: with more, there are too many orders."""


class ContainerReader:
    """The part of a `SchemaReader` that knows arrays and objects.

    Args:
        reader: Numbers the schemas of what is inside.
    """

    def __init__(self, reader: "SchemaReader") -> None:
        self._reader = reader
        self._formulas = reader.formulas

    def array(self, node: SchemaNode, allowed: Names | None) -> Formula:
        """What the keywords about arrays say.

        Raises:
            GrammarError: one is malformed.
        """
        schema = node.value
        if _ARRAY_KEYWORDS.isdisjoint(schema):
            return TRUE
        parts: list[Formula] = []
        # Up to draft 2019-09 a list under `items` was what is `prefixItems` now.
        is_old = isinstance(schema.get("items"), list)
        prefix_keyword, rest_keyword = ("items", "additionalItems") if is_old else ("prefixItems", "items")
        prefix = node.schemas(prefix_keyword) if prefix_keyword in schema else []
        prefix_children = tuple(self._child(each, allowed) for each in prefix)
        rest = self._child(node.child(rest_keyword), allowed) if rest_keyword in schema else ANYTHING
        if prefix and rest_keyword not in schema and allowed is not None:
            # The reading for output: a list of first items has no others.
            rest = NOTHING
        if rest != ANYTHING or any(child != ANYTHING for child in prefix_children):
            parts.append(self._formulas.atom(Items(prefix_children, rest)))
        least, most = node.integer("minItems"), node.integer("maxItems")
        if least:
            parts.append(self._formulas.atom(NumItems(least)))
        if most is not None:
            parts.append(-self._formulas.atom(NumItems(most + 1)))
        if "contains" in schema:
            parts.append(self._contains(node, allowed))
        if self._flag(node, "uniqueItems") and (most is None or most > 1):
            parts.append(self._formulas.atom(Unique()))
        if schema.get("unevaluatedItems", True) not in (True, {}):
            evaluated = evaluated_at(node, "unevaluatedItems", self._reader.references)
            if not evaluated.all_items:
                others = self._child(node.child("unevaluatedItems"), allowed)
                parts.append(self._formulas.atom(Items((ANYTHING,) * evaluated.num_items, others)))
        return self._formulas.all_of(parts)

    def object(self, node: SchemaNode, allowed: Names | None) -> Formula:
        """What the keywords about objects say.

        Raises:
            GrammarError: one is malformed.
        """
        schema = node.value
        if _OBJECT_KEYWORDS.isdisjoint(schema):
            return TRUE
        required = list(dict.fromkeys(self._required(node)))
        parts = [self._properties(node, allowed, required)]
        parts += [self._formulas.atom(HasProperty(name)) for name in required]
        least, most = node.integer("minProperties"), node.integer("maxProperties")
        if least:
            parts.append(self._formulas.atom(NumProperties(least)))
        if most is not None:
            parts.append(-self._formulas.atom(NumProperties(most + 1)))
        if "propertyNames" in schema:
            names = self._reader.read(node.child("propertyNames"), None)[STRING]
            if names != TRUE:
                parts.append(self._formulas.atom(PropertyNames(names)))
        return self._formulas.all_of(parts)

    def dependencies(self, node: SchemaNode, keyword: str, allowed: Names | None) -> list[ByKind]:
        """What `dependentSchemas`, `dependentRequired` or the older `dependencies` say.

        Raises:
            GrammarError: the keyword is malformed.
        """
        found = []
        for name, dependent in node.named(keyword).items():
            value = dependent.value
            if isinstance(value, list):
                if not all(isinstance(each, str) for each in value):
                    raise node.error(keyword, f"holds {value!r}; it must be a list of strings")
                needed = about(OBJECT, self._formulas.all_of(self._formulas.atom(HasProperty(each)) for each in value))
            elif keyword == "dependentRequired":
                raise node.error(keyword, f"holds {value!r}; it must be a list of strings")
            else:
                needed = self._reader.read(dependent, allowed)
            absent = about(OBJECT, -self._formulas.atom(HasProperty(name)))
            found.append(any_value(self._formulas, [absent, needed]))
        return found

    def equal_array(self, value: list[Any]) -> Formula:
        """What makes an array equal to a given one."""
        children = tuple(self._reader.const_child(each) for each in value)
        return self._formulas.all_of(
            [
                self._formulas.atom(Items(children, NOTHING)),
                *([self._formulas.atom(NumItems(len(value)))] if value else []),
            ]
        )

    def equal_object(self, value: dict[str, Any]) -> Formula:
        """What makes an object equal to a given one."""
        listed = tuple((name, self._reader.const_child(each)) for name, each in value.items())
        check_texts(value)
        return self._formulas.all_of(
            [
                self._formulas.atom(Properties(listed, len(listed), (), NOTHING)),
                *(self._formulas.atom(HasProperty(name)) for name in value),
            ]
        )

    def _properties(self, node: SchemaNode, allowed: Names | None, needed: Sequence[str]) -> Formula:
        schema = node.value
        listed = {name: self._child(each, allowed) for name, each in node.named("properties").items()}
        by_pattern = node.named("patternProperties").items()
        patterns = tuple([(pattern, self._child(each, allowed)) for pattern, each in by_pattern])
        check_texts(listed)
        num_ordered = len(listed)
        additional = ANYTHING
        if "additionalProperties" in schema:
            additional = self._child(node.child("additionalProperties"), allowed)
        elif schema.get("unevaluatedProperties", True) not in (True, {}):
            evaluated = evaluated_at(node, "unevaluatedProperties", self._reader.references)
            if not evaluated.all_properties:
                additional = self._child(node.child("unevaluatedProperties"), allowed)
                listed |= {name: ANYTHING for name in evaluated.names if name not in listed}
                patterns += tuple((each, ANYTHING) for each in evaluated.patterns if each not in dict(patterns))
        elif "unevaluatedProperties" not in schema and "properties" in schema and not patterns and allowed is not None:
            additional = NOTHING
            listed |= {name: ANYTHING for name in allowed if name not in listed}
        if additional == ANYTHING and not patterns and all(child == ANYTHING for child in listed.values()):
            return TRUE
        places = dict(zip(listed, range(num_ordered), strict=False))
        required = tuple([name for name in needed if name in places])
        if len(required) > MAX_REORDERED or all(places[one] < places[other] for one, other in pairwise(required)):
            required = ()
        return self._formulas.atom(Properties(tuple(listed.items()), num_ordered, patterns, additional, required))

    def _required(self, node: SchemaNode) -> list[str]:
        required = node.value.get("required")
        if isinstance(required, bool):
            # A flag of draft 3, which speaks of the property's own place: without meaning here.
            return []
        names = list(node.strings("required"))
        check_texts(names)
        return names

    def _contains(self, node: SchemaNode, allowed: Names | None) -> Formula:
        least, most = node.integer("minContains"), node.integer("maxContains")
        # A number of items at most is a negation: the schema has to mean what the specification says.
        child = self._child(node.child("contains"), allowed if most is None else None)
        least = 1 if least is None else least
        parts = [self._formulas.atom(Contains(child, least))] if least else []
        if most is not None:
            parts.append(-self._formulas.atom(Contains(child, most + 1)))
        return self._formulas.all_of(parts)

    def _child(self, node: SchemaNode, allowed: Names | None) -> Child:
        return self._reader.child(node, is_open=allowed is None)

    def _flag(self, node: SchemaNode, keyword: str) -> bool:
        value = node.value.get(keyword, False)
        if not isinstance(value, bool):
            raise node.error(keyword, f"is {json.dumps(value)}; it must be true or false")
        return value

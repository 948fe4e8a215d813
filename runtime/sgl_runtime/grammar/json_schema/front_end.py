"""Reads a JSON Schema and lays its instances out as an automaton.

Every keyword is enforced, is an annotation, or is refused with its place; none is passed over.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.json_schema import keywords
from sgl_runtime.grammar.json_schema.containers import ArrayItems, Property, add_array, add_object
from sgl_runtime.grammar.json_schema.exclusive import excludes
from sgl_runtime.grammar.json_schema.fragments import FragmentCache
from sgl_runtime.grammar.json_schema.literals import add_literal, string_text, type_names
from sgl_runtime.grammar.json_schema.merge import merge, split_choices
from sgl_runtime.grammar.json_schema.numbers import NumberRange, number_dfa
from sgl_runtime.grammar.json_schema.policy import Whitespace, WhitespacePolicy
from sgl_runtime.grammar.json_schema.readers import (
    read_array,
    read_listed_values,
    read_number,
    read_object,
    read_string,
)
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode, resolve
from sgl_runtime.grammar.json_schema.strings import string_dfa
from sgl_runtime.grammar.nfa import Nfa

T = TypeVar("T")

_MAX_DEPTH = 64


def schema_to_dfa(text: str, whitespace: Whitespace, budget: Budget, fragments: FragmentCache) -> CharDfa:
    """Compile a JSON Schema, given as JSON text.

    Raises:
        GrammarError: the text is malformed, or a keyword is malformed or not supported; the message names its place.
    """
    root = _parse(text)
    return _SchemaCompiler(root, WhitespacePolicy(whitespace), budget, fragments).compile(SchemaNode(root, "#"))


def _parse(text: str) -> Any:
    def refuse_constant(name: str) -> None:
        raise GrammarError(f"json_schema: {name} is no JSON number")

    def read_float(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise GrammarError(f"json_schema: {digits} is too large for a number")
        return value

    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=read_float)
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"json_schema is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError as error:
        # An integer of more digits than Python reads.
        raise GrammarError(f"json_schema: {error}") from None


class _SchemaCompiler:
    def __init__(self, root: Any, policy: WhitespacePolicy, budget: Budget, fragments: FragmentCache) -> None:
        self._root = root
        self._policy = policy
        self._budget = budget
        self._fragments = fragments
        self._open_references: list[str] = []
        self._depth = 0
        self._add_by_type: dict[str, Callable[[Nfa, SchemaNode, int], int]] = {
            "null": self._add_null,
            "boolean": self._add_boolean,
            "integer": self._add_integer,
            "number": self._add_number,
            "string": self._add_string,
            "array": self._add_array,
            "object": self._add_object,
        }

    def compile(self, node: SchemaNode) -> CharDfa:
        """The automaton of a subschema's instances."""
        nfa = Nfa(self._budget)
        start = nfa.add_states()
        return nfa.to_dfa(start, self._add(nfa, node, start))

    def _add(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        """Lay the instances of a subschema out from a state; returns the state behind them."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise GrammarError(f"json_schema: {node.pointer} is nested more than {_MAX_DEPTH} schemas deep")
        end = self._add_schema(nfa, node, source)
        self._depth -= 1
        return end

    def _add_schema(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        if node.value is False:
            return nfa.add_states()
        if node.value is True:
            raise GrammarError(f"json_schema: {node.pointer} allows any JSON value, which is not supported")
        if not isinstance(node.value, dict):
            raise GrammarError(f"json_schema: {node.pointer} is {node.value!r}; a schema is an object or a boolean")
        keywords.check_general(node)
        if "$ref" in node.value or "allOf" in node.value:
            opened = len(self._open_references)
            end = self._add(nfa, self._flatten(node), source)
            del self._open_references[opened:]
            return end
        for keyword in ("anyOf", "oneOf"):
            if keyword in node.value:
                options = split_choices(node, keyword)
                if keyword == "oneOf":
                    self._check_exclusive(node, options)
                return self._add_options(nfa, source, options, lambda option, at: self._add(nfa, option, at))
        if "const" in node.value or "enum" in node.value:
            return self._add_listed(nfa, node, source)
        types = keywords.allowed_types(node)
        keywords.check_types(node, types)
        return self._add_options(nfa, source, types, lambda name, at: self._add_by_type[name](nfa, node, at))

    def _flatten(self, node: SchemaNode) -> SchemaNode:
        """The subschema with what it refers to, and the parts of its `allOf`, merged into it.

        Every reference that is followed stays in `_open_references`.
        """
        while isinstance(node.value, dict) and ("$ref" in node.value or "allOf" in node.value):
            keywords.check_general(node)
            own = {name: value for name, value in node.value.items() if name not in ("$ref", "allOf")}
            parts = [self._open(node)] if "$ref" in node.value else []
            parts += node.schemas("allOf") if "allOf" in node.value else []
            if len(parts) == 1 and not keywords.assertions(SchemaNode(own, node.pointer)):
                node = parts[0]
                continue
            merged = SchemaNode(own, node.pointer)
            for part in parts:
                merged = merge(merged, self._flatten(part))
            node = merged
        return node

    def _open(self, node: SchemaNode) -> SchemaNode:
        target = resolve(self._root, node)
        if target.pointer in self._open_references or target.pointer == "#":
            raise node.error(
                "$ref", f"is {node.value['$ref']!r}, which leads back to itself: recursion is not supported"
            )
        self._open_references.append(target.pointer)
        return target

    def _check_exclusive(self, node: SchemaNode, options: list[SchemaNode]) -> None:
        """Refuse `oneOf` where an output might satisfy two options."""
        opened = len(self._open_references)

        def flatten(each: SchemaNode) -> SchemaNode:
            # Each schema is looked at by itself: what one refers to is no recursion of the next.
            flat = self._flatten(each)
            del self._open_references[opened:]
            return flat

        for first in options:
            for second in options:
                if first is not second and not excludes(first, second, flatten):
                    raise node.error(
                        "oneOf", f"is not supported: its options {first.pointer} and {second.pointer} may overlap"
                    )

    def _add_options(self, nfa: Nfa, source: int, options: Sequence[T], add: Callable[[T, int], int]) -> int:
        end = nfa.add_states()
        for option in options:
            entry = nfa.add_states()
            nfa.add_epsilon(source, entry)
            nfa.add_epsilon(add(option, entry), end)
        return end

    def _add_listed(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        values = [value for value in read_listed_values(node) if keywords.has_type(value, node)]
        values = self._checked_values(node, values)
        return self._add_options(nfa, source, values, lambda value, at: add_literal(nfa, self._policy, value, at))

    def _checked_values(self, node: SchemaNode, values: list[Any]) -> list[Any]:
        """The listed values that satisfy the keywords next to `enum` or `const`."""
        types = set().union(*(type_names(value) for value in values))
        about = {keyword: keywords.types_of(keyword) for keyword in keywords.assertions(node)}
        for keyword, owners in about.items():
            if not types.isdisjoint(owners) and owners[0] not in ("string", "integer"):
                raise node.error(keyword, "is not supported next to enum or const")
        if any(types.intersection(owners) for owners in about.values()):
            shape, wanted = read_string(node), read_number(node, is_integer=False)
            strings = string_dfa(shape, self._budget) if "string" in types else None
            values = [
                value
                for value in values
                if (strings is None or not isinstance(value, str) or strings.accepts(string_text(value)))
                and (isinstance(value, bool) or not isinstance(value, int | float) or wanted.holds(value))
            ]
        return values

    def _add_null(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        return nfa.add_text(source, "null")

    def _add_boolean(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        return self._add_options(nfa, source, ("true", "false"), lambda word, at: nfa.add_text(at, word))

    def _add_integer(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        return self._add_range(nfa, read_number(node, is_integer=True), source)

    def _add_number(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        return self._add_range(nfa, read_number(node, is_integer=False), source)

    def _add_range(self, nfa: Nfa, wanted: NumberRange, source: int) -> int:
        return nfa.embed(self._fragments.get(wanted, lambda: number_dfa(wanted, self._budget)), source)

    def _add_string(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        shape = read_string(node)
        try:
            dfa = self._fragments.get(shape, lambda: string_dfa(shape, self._budget))
        except GrammarError as error:
            at_fault = next((name for name in ("pattern", "maxLength", "minLength") if name in node.value), "format")
            raise node.error(at_fault, f"cannot be enforced: {error.message}") from None
        return nfa.embed(dfa, source)

    def _add_array(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        shape = read_array(node)
        # What can never be reached need not be supported.
        prefix = shape.prefix if shape.most is None else shape.prefix[: shape.most]
        needs_rest = shape.rest is not None and (shape.most is None or shape.most > len(prefix))
        items = ArrayItems(
            [self.compile(each) for each in prefix],
            self.compile(shape.rest) if shape.rest is not None and needs_rest else None,
            shape.least,
            shape.most,
        )
        return add_array(nfa, self._policy, items, source)

    def _add_object(self, nfa: Nfa, node: SchemaNode, source: int) -> int:
        shape = read_object(node)
        properties = [
            Property(name, name in shape.required, partial(self._add_property, child))
            for name, child in shape.properties.items()
        ]
        return add_object(nfa, self._policy, properties, source)

    def _add_property(self, node: SchemaNode, nfa: Nfa, source: int) -> int:
        return self._add(nfa, node, source)

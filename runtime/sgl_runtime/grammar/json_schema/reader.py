"""Reads a JSON Schema into formulas: for each subschema, what must hold of values of each kind.

Every keyword is enforced, is an annotation, or is refused with its place; none is passed over.

Two readings.  In the *open* one a schema means what the specification says.  In the *closed* one an object that lists
properties and says nothing about others has no others: the reading for output, narrower than the specification.  Where
a schema stands under a negation (`not`, the other options of `oneOf`, `if`) only the open reading is sound.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema import keywords
from sgl_runtime.grammar.json_schema.atoms import ANYTHING, NOTHING, Child
from sgl_runtime.grammar.json_schema.formula import TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.kinds import (
    ANY_VALUE,
    ARRAY,
    NO_VALUE,
    NUMBER,
    OBJECT,
    STRING,
    ByKind,
    all_values,
    any_value,
    exactly_one_value,
    no_value,
    only,
    only_kind,
)
from sgl_runtime.grammar.json_schema.literals import check_texts
from sgl_runtime.grammar.json_schema.numbers import ANY_NUMBER, NumberValues
from sgl_runtime.grammar.json_schema.read_containers import ContainerReader
from sgl_runtime.grammar.json_schema.read_scalars import read_number, read_string
from sgl_runtime.grammar.json_schema.references import References
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode
from sgl_runtime.grammar.json_schema.strings import StringShape, StringValues

_MAX_DEPTH = 200
_TYPE_KINDS = {
    "null": (0,), "boolean": (1, 2), "integer": (NUMBER,), "number": (NUMBER,), "string": (STRING,),
    "array": (ARRAY,), "object": (OBJECT,),
}  # fmt: skip
_OF_TYPE = {name: only(kinds) for name, kinds in _TYPE_KINDS.items()}
_TYPE_ALONE = frozenset(("type", "title", "description", "default", "examples", "example", "$comment"))
# Most schemas hold none of these.
_COMBINING = frozenset((
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if",
    "dependentSchemas", "dependencies", "dependentRequired",
))  # fmt: skip

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Const:
    """A child that is one given value."""

    value: Any


class SchemaReader:
    """Formulas of the subschemas of one schema.

    Args:
        root: The whole schema, parsed.
        formulas: Where atoms and formulas are kept.
        budget: Paid for each subschema.
        is_open: Whether objects that list properties are read as open everywhere.

    Attributes:
        formulas: Where atoms and formulas are kept.
        references: Resolves references.
        root: The whole schema.
        places: Where each atom about strings was first read, for messages.
    """

    def __init__(self, root: Any, formulas: Formulas, budget: Budget, *, is_open: bool) -> None:
        self.formulas = formulas
        self._budget = budget
        self._is_open = is_open
        self.references = References(root, budget)
        self._known: dict[tuple[str, Names | None], ByKind] = {}
        # Children are read when they are asked for, so that recursion needs no care here.
        self._child_numbers: dict[tuple[str, bool], Child] = {}
        self._children: dict[Child, SchemaNode | _Const] = {}
        self._open_children: set[Child] = set()
        self._child_values: dict[Child, ByKind] = {ANYTHING: ANY_VALUE, NOTHING: NO_VALUE}
        self._being_read: set[tuple[str, Names | None]] = set()
        # How many combinations of schemas are nested in what was read, and in what is being read, so far.
        self._heights: dict[tuple[str, Names | None], int] = {}
        self._height = 0
        self._types: dict[str, ByKind] = {}
        self.root = SchemaNode(root, "#")
        self.places: dict[StringShape, SchemaNode] = {}

    def read_root(self) -> ByKind:
        """What the whole schema says.

        Raises:
            GrammarError: a keyword is malformed or not supported.
        """
        return self.read(self.root, None if self._is_open else ())

    def value_of(self, child: Child) -> ByKind:
        """What a child's schema says."""
        known = self._child_values.get(child)
        if known is None:
            known = self._child_values[child] = self._read_child(child)
        return known

    def child(self, node: SchemaNode, *, is_open: bool) -> Child:
        """A number for the schema of a value inside."""
        if node.value is True or node.value == {}:
            return ANYTHING
        if node.value is False:
            return NOTHING
        key = (node.pointer, is_open)
        known = self._child_numbers.get(key)
        if known is None:
            known = self._child_numbers[key] = self._new_child(node)
            if is_open:
                self._open_children.add(known)
        return known

    def const_child(self, value: Any) -> Child:
        """A number for the schema that only one value satisfies."""
        key = (json.dumps(value, sort_keys=True), True)
        known = self._child_numbers.get(key)
        if known is None:
            known = self._child_numbers[key] = self._new_child(_Const(value))
        return known

    def _new_child(self, content: "SchemaNode | _Const") -> Child:
        number = NOTHING + 1 + len(self._children)
        self._children[number] = content
        return number

    def _read_child(self, child: Child) -> ByKind:
        content = self._children[child]
        if isinstance(content, _Const):
            return self.const(content.value)
        return self.read(content, None if child in self._open_children else ())

    @property
    def _containers(self) -> ContainerReader:
        # Not kept: readers that refer to each other would have to wait for the garbage collector.
        return ContainerReader(self)

    def place_of(self, value: ByKind) -> str | None:
        """The pointer of a subschema that says this, for messages; None for what no subschema says by itself."""
        return next((pointer for (pointer, _), known in self._known.items() if known == value), None)

    def read(self, node: SchemaNode, allowed: Names | None) -> ByKind:
        """What a subschema says of a value.

        Args:
            node: The subschema.
            allowed: In the closed reading, names of properties that others say something about; None for the open one.
        """
        if node.value is True:
            return ANY_VALUE
        if node.value is False:
            return NO_VALUE
        if not isinstance(node.value, dict):
            raise GrammarError(f"json_schema: {node.pointer} is {node.value!r}; a schema is an object or a boolean")
        key = (node.pointer, allowed)
        known = self._known.get(key)
        if known is not None:
            if self._heights:
                self._height = max(self._height, self._heights.get(key, 0))
            return known
        name = node.value.get("type")
        if name in keywords.TYPES and node.value.keys() <= _TYPE_ALONE:
            # By far the most are of this form.
            self._budget.spend()
            if name not in self._types:
                self._types[name] = self._own(SchemaNode({"type": name}, "#"), None)
            self._known[key] = self._types[name]
            return self._types[name]
        if key in self._being_read:
            raise node.error("$ref", "leads back to itself with nothing in between, so that it says nothing")
        if len(self._being_read) > _MAX_DEPTH or self._height > _MAX_DEPTH:
            raise GrammarError(f"json_schema: {node.pointer} is nested more than {_MAX_DEPTH} schemas deep")
        self._budget.spend()
        self._being_read.add(key)
        height_outside, self._height = self._height, 0
        value = self._known[key] = self._read(node, allowed)
        self._being_read.discard(key)
        if self._height:
            self._heights[key] = self._height
        self._height = max(self._height, height_outside)
        return value

    def _read(self, node: SchemaNode, allowed: Names | None) -> ByKind:
        schema = node.value
        if "$ref" in schema and self.references.ref_stands_alone:
            return self.read(self.references.resolve(node, "$ref"), allowed)
        keywords.check_general(node)
        own = self._own(node, self._beside(node, allowed))
        if _COMBINING.isdisjoint(schema):
            return own
        value = self._combined(node, allowed, own)
        self._height += 1
        return value

    def _combined(self, node: SchemaNode, allowed: Names | None, own: ByKind) -> ByKind:
        """What a subschema says with keywords that hold further ones about the same value, and what it says besides."""
        schema = node.value
        parts = [own]
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                target = self.references.resolve(node, keyword)
                parts.append(self.read(target, self._beside(node, allowed, target)))
        if "allOf" in schema:
            parts += [self.read(each, self._beside(node, allowed, each)) for each in node.schemas("allOf")]
        if "anyOf" in schema:
            options = node.schemas("anyOf")
            beside = self._beside(node, allowed, *options)
            parts.append(any_value(self.formulas, [self.read(each, beside) for each in options]))
        if "oneOf" in schema:
            options = node.schemas("oneOf")
            parts.append(self._one_of(options, self._beside(node, allowed, *options)))
        if "not" in schema:
            parts.append(no_value(self.read(node.child("not"), None)))
        if "if" in schema:
            parts.append(self._if_then_else(node, allowed))
        for keyword in ("dependentSchemas", "dependencies", "dependentRequired"):
            if keyword in schema:
                parts += self._containers.dependencies(node, keyword, self._beside(node, allowed))
        return all_values(self.formulas, parts)

    def _beside(self, node: SchemaNode, allowed: Names | None, *without: SchemaNode) -> Names | None:
        """In the closed reading, names that others beside a schema speak of; the schemas `without` are no others."""
        if allowed is None:
            return None
        names = self.references.names_at(node, without=tuple(each.pointer for each in without))
        return tuple(dict.fromkeys((*allowed, *names)))

    def _one_of(self, options: list[SchemaNode], allowed: Names | None) -> ByKind:
        as_said = [self.read(each, None) for each in options]
        if allowed is None:
            return exactly_one_value(self.formulas, as_said)
        made = [self.read(each, allowed) for each in options]
        alternatives = []
        for index, option in enumerate(made):
            others = [no_value(each) for at, each in enumerate(as_said) if at != index]
            alternatives.append(all_values(self.formulas, [option, *others]))
        return any_value(self.formulas, alternatives)

    def _if_then_else(self, node: SchemaNode, allowed: Names | None) -> ByKind:
        condition = self.read(node.child("if"), None)
        branches = [node.child(keyword) for keyword in ("then", "else") if keyword in node.value]
        beside = self._beside(node, allowed, *branches)
        then = self.read(node.child("then"), beside) if "then" in node.value else ANY_VALUE
        otherwise = self.read(node.child("else"), beside) if "else" in node.value else ANY_VALUE
        return any_value(
            self.formulas,
            [
                all_values(self.formulas, [condition, then]),
                all_values(self.formulas, [no_value(condition), otherwise]),
            ],
        )

    def _own(self, node: SchemaNode, allowed: Names | None) -> ByKind:
        """What the keywords of the subschema say that are about types, listed values and single kinds of values."""
        schema = node.value
        types = keywords.named_types(node)
        is_integer = types is not None and "integer" in types and "number" not in types
        value = list(ANY_VALUE if types is None else any_value(self.formulas, [_OF_TYPE[name] for name in types]))
        if value[NUMBER] == TRUE:
            value[NUMBER] = self._number(node, is_integer=is_integer)
        if value[STRING] == TRUE:
            value[STRING] = self._string(node)
        if value[ARRAY] == TRUE:
            value[ARRAY] = self._containers.array(node, allowed)
        if value[OBJECT] == TRUE:
            value[OBJECT] = self._containers.object(node, allowed)
        own = tuple(value)
        for keyword in ("enum", "const"):
            if keyword in schema:
                own = all_values(self.formulas, [own, self._listed(node, keyword)])
        return own

    def _number(self, node: SchemaNode, *, is_integer: bool) -> Formula:
        wanted = read_number(node, is_integer=is_integer)
        return TRUE if wanted == ANY_NUMBER else self.formulas.atom(wanted)

    def _string(self, node: SchemaNode) -> Formula:
        shapes = read_string(node)
        for shape in shapes:
            self.places.setdefault(shape, node)
        return self.formulas.all_of([self.formulas.atom(shape) for shape in shapes])

    def _listed(self, node: SchemaNode, keyword: str) -> ByKind:
        if keyword == "const":
            return self.const(node.value["const"], node)
        values = node.value["enum"]
        if not isinstance(values, list) or not values:
            raise node.error("enum", f"is {values!r}; it must be a list with at least one value")
        strings = frozenset([value for value in values if isinstance(value, str)])
        others = [value for value in values if not isinstance(value, str)]
        numbers = frozenset([_decimal(value) for value in others if _is_number(value)])
        parts = [self.const(value, node) for value in others if not _is_number(value)]
        check_texts(strings)
        if strings:
            parts.append(only_kind(STRING, self.formulas.atom(StringValues(strings))))
        if numbers:
            parts.append(only_kind(NUMBER, self.formulas.atom(NumberValues(numbers))))
        return any_value(self.formulas, parts)

    def const(self, value: Any, node: SchemaNode | None = None) -> ByKind:
        """What makes a value equal to a given one."""
        if value is None or isinstance(value, bool):
            return only([0 if value is None else 1 + value])
        result = list(NO_VALUE)
        if isinstance(value, str):
            check_texts([value])
            result[STRING] = self.formulas.atom(StringValues(frozenset([value])))
        elif isinstance(value, int | float):
            result[NUMBER] = self.formulas.atom(NumberValues(frozenset([_decimal(value)])))
        elif isinstance(value, list):
            result[ARRAY] = self._containers.equal_array(value)
        else:
            result[OBJECT] = self._containers.equal_object(value)
        return tuple(result)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(value: int | float) -> Decimal:
    return Decimal(str(value))

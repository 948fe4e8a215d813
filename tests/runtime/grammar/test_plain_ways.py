"""The short ways of plain arrays and objects make the automata that the formulas make, state by state."""

import json
from functools import cache

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import AutomatonCompiler
from sgl_runtime.grammar.json_schema.array_rules import ArrayRules
from sgl_runtime.grammar.json_schema.object_rules import ObjectRules

_NAMED = {"a": {"type": "integer"}, "ab": {"type": "string"}, "b": {"type": "boolean"}}

ARRAYS = [
    {"type": "array"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "minItems": 3},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 5},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 0},
    {"type": "array", "items": False},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": {"type": "boolean"}},
    {"type": "array", "prefixItems": [{"type": "null"}, False], "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": False, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "string"}, "minItems": 4},
    {"allOf": [{"type": "array", "items": {"minimum": 3}, "minItems": 1}, {"items": {"maximum": 7}, "maxItems": 2}]},
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4},
    {"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True},
    {"type": "array", "items": {"type": "object", "properties": _NAMED, "required": ["b"]}, "minItems": 1},
]
OBJECTS = [
    {"type": "object", "properties": _NAMED},
    {"type": "object", "properties": _NAMED, "required": ["ab", "new"]},
    {"type": "object", "properties": _NAMED, "anyOf": [{"required": ["a"]}, {"required": ["ab", "b"]}]},
    {"type": "object", "properties": _NAMED, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "properties": _NAMED, "not": {"required": ["a", "b"]}, "minProperties": 1},
    {"type": "object", "properties": _NAMED, "dependentRequired": {"a": ["b"]}, "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2, "maxProperties": 3},
    {"type": "object", "properties": _NAMED, "patternProperties": {"^x": {"type": "null"}}, "minProperties": 2},
    {"type": "object", "properties": {"a": False, "b": {}}, "required": ["b"], "additionalProperties": False},
    {"allOf": [{"properties": {"b": {"minimum": 1}, "a": {}}}, {"properties": _NAMED, "required": ["ab"]}]},
]


@cache
def compiler_of(reading: str) -> AutomatonCompiler:
    return AutomatonCompiler(GrammarConfig(json_additional_properties=reading))


def automaton_of(schema: dict, reading: str) -> ByteAutomaton:
    return compiler_of(reading).compile(GrammarSpec("json_schema", json.dumps(schema)))


@pytest.mark.parametrize("reading", ["open", "closed"])
@pytest.mark.parametrize("schema", [*ARRAYS, *OBJECTS], ids=json.dumps)
def test_short_ways_make_what_formulas_make(schema: dict, reading: str, monkeypatch: pytest.MonkeyPatch):
    short = automaton_of(schema, reading)
    monkeypatch.setattr(ArrayRules, "plain", lambda self, formula: None)
    monkeypatch.setattr(ObjectRules, "plain_needs", lambda self, formulas: None)
    full = automaton_of(schema, reading)
    assert np.array_equal(short.table[:, short.byte_classes], full.table[:, full.byte_classes])
    assert np.array_equal(short.accepting, full.accepting)
    assert np.array_equal(short.edge_target, full.edge_target)
    assert np.array_equal(short.edge_argument, full.edge_argument)
    assert np.array_equal(short.returns, full.returns)
    assert short.distinct == full.distinct


def test_which_arrays_and_objects_are_plain(monkeypatch: pytest.MonkeyPatch):
    found = []
    plain, plain_needs = ArrayRules.plain, ObjectRules.plain_needs

    def noted_plain(self: ArrayRules, formula: int):
        found.append(plain(self, formula))
        return found[-1]

    def noted_needs(self: ObjectRules, formulas: tuple[int, ...]):
        found.append(plain_needs(self, formulas))
        return found[-1]

    monkeypatch.setattr(ArrayRules, "plain", noted_plain)
    monkeypatch.setattr(ObjectRules, "plain_needs", noted_needs)

    def is_plain(schema: dict) -> bool:
        found.clear()
        automaton_of(schema, "open")
        return found[0] is not None

    assert all(is_plain(schema) for schema in OBJECTS)
    assert not is_plain({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}, {"required": ["b"]}]})
    assert not is_plain({"type": "object", "propertyNames": {"maxLength": 3}})
    assert is_plain({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4})
    # These remember which values have come, or what they still lack.
    assert not is_plain({"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True})
    assert not is_plain({"type": "array", "contains": {"type": "null"}})


@pytest.mark.parametrize(
    "names",
    [
        ["a", "ab", "abc", "b"],
        ["abc", "ab", "a"],
        ["a b", "a", "a!", 'a"'],
        ["\u00e9", "\u00e9t\u00e9", "e"],
        ["x\\y", "x", "x\n"],
        [""],
        ["", "a"],
    ],
)
def test_names_beside_free_keys_have_their_own_schemas(names: list[str]):
    schema = {
        "type": "object",
        "properties": {name: {"const": index} for index, name in enumerate(names)},
        "additionalProperties": {"const": "other"},
    }
    automaton = automaton_of(schema, "open")
    for index, name in enumerate(names):
        key = json.dumps(name, ensure_ascii=False)
        assert automaton.accepts(f"{{{key}: {index}}}".encode())
        assert not automaton.accepts(f"{{{key}: {index + 1}}}".encode())
        assert not automaton.accepts(f'{{{key}: "other"}}'.encode())
    others = {name[:-1] for name in names} | {name + "z" for name in names}
    for name in others - set(names):
        key = json.dumps(name, ensure_ascii=False)
        assert automaton.accepts(f'{{{key}: "other"}}'.encode())
        assert not automaton.accepts(f"{{{key}: 0}}".encode())

"""Keywords that reach beyond one conjunction of closed objects: open objects, negation, conditions, references."""

import json
from typing import Any

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [1, None, {"a": [{}]}], []),
    ({}, [[], {"a": {"b": [1, "x"]}}, "s"], []),
    ({"type": "object", "properties": {"a": {}}}, [{}, {"a": [1]}], [{"b": 1}]),
    ({"type": "object"}, [{}, {"a": {"b": 1}}], [[]]),
    ({"type": "array"}, [[], [1, [2]]], [{}]),
    ({"type": "string", "format": "uri"}, ["https://a.b/c"], ["a b"]),
    ({"type": "string", "format": "any-thing"}, ["x"], [1]),
    ({"properties": {"a": {"type": "null"}}, "additionalProperties": True, "type": "object"}, [{"b": 1, "a": None}], [{"a": 1}]),
    (
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
        [{"a": None, "b": 1, "ab": 2}, {"b": 1, "a": None}],
        [{"a": 1}, {"b": None}, {"a": None, "a ": None}],
    ),
    (
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}},
        [{"a": 1, "ab": 3, "b": 4, "c": "x"}],
        [{"a": "x"}, {"ab": 1}, {"b": 2}],
    ),
    ({"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False}, [{"a": 1, "aa": 2}], [{"b": 1}]),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, [{"b": 3}, {"b": 1, "a": None}], [{}]),
    ({"type": "object", "minProperties": 1, "maxProperties": 2}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": 1, "b": 2, "c": 3}]),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, [{}, {"ab": 1}], [{"abc": 1}]),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    ({"type": "object", "dependencies": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    (
        {"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}, "required": ["b"]}}},
        [{"b": 1}, {"a": 1, "b": None}],
        [{"a": 1}, {"a": 1, "b": 1}],
    ),
    ({"type": "array", "items": {"enum": [1, 2, "a"]}, "uniqueItems": True}, [[], [1, "a", 2]], [[1, 1], [2, "a", 2]]),
    (
        {"type": "array", "items": {"type": "integer", "minimum": -1, "exclusiveMaximum": 5}, "uniqueItems": True},
        [[], [-1, 4], [3, 2, 1, 0]],
        [[0, 0], [5], [1, 2, 1]],
    ),
    (
        {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 3},
         "uniqueItems": True},
        [[0, 9, 6, 3]],
        [[3, 3], [1], [9, 0, 9]],
    ),
    (
        {"type": "array", "items": {"type": ["integer", "null"]}, "maxItems": 1, "uniqueItems": True},
        [[], [12345], [None]],
        [[1, 2]],
    ),
    ({"type": "array", "contains": {"const": 1}}, [[1], [0, 1, "x"]], [[], [0]]),
    (
        {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 2},
        [[1, 1], [0, 1, 1]],
        [[1], [1, 1, 1]],
    ),
    ({"type": "number", "multipleOf": 0.01}, [1.25, 3], [1.255]),
    ({"not": {"type": "null"}}, [1, "a", {}], [None]),
    ({"type": "string", "not": {"pattern": "^a"}}, ["", "b"], ["a", "ab"]),
    (
        {"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}},
        [{}, {"a": 1}, {"b": 1}],
        [{"a": 1, "b": 1}],
    ),
    (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "b"]}, "x": {}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["x"]},
            "else": {"properties": {"x": {"type": "null"}}},
        },
        [{"kind": "a", "x": 1}, {"kind": "b"}, {"kind": "b", "x": None}],
        [{"kind": "a"}, {"kind": "b", "x": 1}],
    ),
    ({"enum": [{"a": 1}, {"a": "x"}], "properties": {"a": {"type": "integer"}}}, [{"a": 1}], [{"a": "x"}]),
    ({"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 5}]}, [1, 6], [2, 5]),
    ({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}, ["ab", "ba"], ["a", "b"]),
    (
        {"type": "array", "allOf": [{"prefixItems": [{"minimum": 3}], "items": {}}], "items": {"type": "integer"}},
        [[3, 1]],
        [[2], [3, "a"]],
    ),
    (
        {"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        [{}, {"next": {"next": {}}}],
        [{"next": 1}],
    ),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$anchor": "b", "type": "null"}}, "title": "t"}, [None], [1]),
    ({"$ref": "#b", "$defs": {"a": {"$anchor": "b", "type": "null"}}}, [None], [1]),
    (
        {"$id": "http://e.org/root", "$ref": "item", "$defs": {"a": {"$id": "item", "type": "null"}}},
        [None],
        [1],
    ),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 5,
         "definitions": {"a": {"type": "integer"}}},
        [1],
        ["a"],
    ),
    ({"type": "string", "patern": "a"}, ["x"], []),
    ({"type": "string", "maxLength": 10**6}, ["x" * 100], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), CASES)
def test_accepts_instances_only(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    for value in (*valid, *invalid):
        assert automaton.accepts(json.dumps(value, ensure_ascii=False).encode()) == (value in valid), value


UNEVALUATED: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "array", "prefixItems": [{}, {"type": "null"}], "unevaluatedItems": False}, [[], [1, None]], [[1, None, 2]]),
    (
        {"type": "array", "allOf": [{"prefixItems": [{"const": 1}]}], "unevaluatedItems": {"type": "string"}},
        [[], [1], [1, "a", "b"]],
        [["a"], [1, 2]],
    ),
    ({"type": "array", "items": {"type": "null"}, "unevaluatedItems": False}, [[], [None, None]], [[1]]),
    (
        {
            "type": "object",
            "properties": {"a": {}},
            "allOf": [{"$ref": "#/$defs/b"}, {"patternProperties": {"^x": {"type": "null"}}}],
            "$defs": {"b": {"properties": {"b": {"type": "integer"}}}},
            "unevaluatedProperties": False,
        },
        [{}, {"a": 1}, {"b": 1}, {"xy": None}, {"a": 1, "b": 2, "x": None}],
        [{"c": 1}, {"b": "s"}, {"xy": 1}, {"a": 1, "ab": 1}],
    ),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"properties": {"a": {"const": "x"}}}],
            "unevaluatedProperties": {"type": "null"},
        },
        [{"a": "y"}, {}, {"b": None}],
        [{"b": 1}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), UNEVALUATED)
def test_what_is_not_evaluated_is_found(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    config = GrammarConfig(json_additional_properties="open")
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), config)
    for value in (*valid, *invalid):
        assert automaton.accepts(json.dumps(value).encode()) == (value in valid), value


def test_keys_that_are_not_evaluated_are_told_from_those_of_references() -> None:
    schema = {
        "type": "object",
        "allOf": [{"$ref": "#/$defs/a"}, {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}],
        "$defs": {"a": {"properties": {"a": {}, "b": {}}}},
        "unevaluatedProperties": False,
    }
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    assert automaton.accepts(b'{"a": 1}')
    assert not automaton.accepts(b'{"a": 1, "b": 2}')
    assert not automaton.accepts(b'{"a": 1, "c": 2}')


def test_required_properties_come_in_the_order_of_either_list() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    schema = {"type": "object", "properties": properties, "required": ["b", "a"]}
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    for keys, is_accepted in (("ab", True), ("ba", True), ("bac", True), ("abc", True), ("acb", False), ("bca", False)):
        text = json.dumps(dict.fromkeys(keys, 1))
        assert automaton.accepts(text.encode()) is is_accepted, text
    schema["required"] = ["a", "b"]
    automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    assert not automaton.accepts(b'{"b": 1, "a": 1}')

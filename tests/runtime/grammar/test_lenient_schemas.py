"""Lenient reading: what cannot be enforced is left out and named, and everything valid stays allowed."""

import copy
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import AutomatonCompiler, MadeAutomaton

OPEN = AutomatonCompiler(GrammarConfig(json_additional_properties="open"))
DOUBLED: dict[str, Any] = {"type": "string", "pattern": "^(.)\\1$"}
VALUES: list[Any] = [
    None,
    1,
    "x",
    "xx",
    [],
    ["x"],
    ["x", "xx"],
    {},
    {"a": "x"},
    {"a": "xx"},
    {"b": ["x"]},
    {"a/b~c": "xx"},
]


def lenient(schema: Any) -> MadeAutomaton:
    before = copy.deepcopy(schema)
    made = OPEN.make(GrammarSpec("json_schema", json.dumps(schema), lenient=True), OPEN.budget())
    assert schema == before
    return made


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ({"type": "string"}, []),
        (DOUBLED, ["#/pattern"]),
        ({"properties": {"a": DOUBLED, "b": {"items": DOUBLED}}}, ["#/properties/a", "#/properties/b/items"]),
        ({"properties": {"a": {"extends": {}}}, "disallow": "null"}, ["#/disallow", "#/properties/a/extends"]),
        ({"$ref": "https://example.com/other"}, ["#/$ref"]),
        ({"properties": {"a/b~c": DOUBLED}}, ["#/properties/a~1b~0c"]),
        ({"type": "string", "pattern": "(a)\\1"}, ["#/pattern"]),
        ({"not": {"properties": {"a": DOUBLED}}}, ["#/not"]),
        ({"anyOf": [{"not": DOUBLED}, {"type": "null"}]}, ["#/anyOf/0/not"]),
        ({"if": DOUBLED, "then": {"maxItems": 3}, "else": {"type": "null"}}, ["#/if"]),
        ({"if": {"type": "string"}, "then": DOUBLED}, ["#/then"]),
        ({"oneOf": [DOUBLED, {"type": "null"}]}, ["#/oneOf", "#/oneOf/0"]),
        ({"oneOf": [DOUBLED, {"type": "null"}], "anyOf": [{}, {"type": "null"}]}, ["#/oneOf", "#/oneOf/0"]),
        ({"$defs": {"u": DOUBLED}, "not": {"$ref": "#/$defs/u"}}, ["#/not"]),
        ({"$defs": {"u": DOUBLED, "v": {"items": {"$ref": "#/$defs/u"}}}, "not": {"$ref": "#/$defs/v"}}, ["#/not"]),
        ({"$defs": {"u": DOUBLED}, "items": {"$ref": "#/$defs/u"}}, ["#/$defs/u"]),
        ({"contains": DOUBLED, "maxContains": 1}, ["#/maxContains", "#/contains"]),
        ({"properties": {"not": DOUBLED}}, ["#/properties/not"]),
        ({"const": {"pattern": 1}, "items": DOUBLED}, []),
        ({"unevaluatedItems": False, "type": "array", "contains": {}}, ["#/unevaluatedItems"]),
    ],
)
def test_keywords_that_cannot_be_enforced_are_named(schema: dict[str, Any], paths: list[str]) -> None:
    made = lenient(schema)
    found = [
        each.path if each.path in ("#/pattern", *paths) else each.path.removesuffix("/pattern") for each in made.relaxed
    ]
    assert sorted(found) == sorted(paths)
    assert all(each.reason for each in made.relaxed)
    # Nothing that is valid is lost, where the validator can tell.
    if "extends" not in str(schema) and "example.com" not in str(schema):
        validator = Draft202012Validator(schema)
        for value in VALUES:
            assert made.automaton.accepts(json.dumps(value).encode()) or not validator.is_valid(value), value


def test_what_can_be_enforced_still_is() -> None:
    made = lenient({"properties": {"a": DOUBLED, "n": {"type": "integer", "minimum": 3}}, "required": ["n"]})
    assert made.automaton.accepts(b'{"a": "xy", "n": 3}')
    assert not made.automaton.accepts(b'{"a": "xy", "n": 2}')
    assert not made.automaton.accepts(b'{"a": 1, "n": 3}')
    assert not made.automaton.accepts(b'{"a": "xx"}')


@pytest.mark.parametrize(
    "schema", [{"type": "strange"}, {"uniqueItems": 3}, {"minimum": "x"}, {"$ref": "#/nowhere"}, {"enum": []}]
)
def test_what_is_malformed_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="json_schema: #/"):
        lenient(schema)


def test_without_being_asked_nothing_is_left_out() -> None:
    with pytest.raises(GrammarError, match="#/pattern"):
        OPEN.compile(GrammarSpec("json_schema", json.dumps(DOUBLED)))

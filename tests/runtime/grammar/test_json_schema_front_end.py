import enum
import json
from typing import Any, Literal

import pydantic
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}


def compiled(schema: Any, **config: Any) -> ByteAutomaton:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return compile_automaton(GrammarSpec("json_schema", text), GrammarConfig(**config))


def accepts(schema: Any, *values: Any, **config: Any) -> list[bool]:
    automaton = compiled(schema, **config)
    return [automaton.accepts(json.dumps(value, ensure_ascii=False).encode()) for value in values]


ACCEPTED: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "null"}, [None], [0, ""]),
    ({"type": "boolean"}, [True, False], [0, None]),
    ({"type": "integer"}, [0, -1, 120], [1.5, "1", True]),
    ({"type": "number"}, [0, -1.5, 1e30, 1e-7, -0.0], ["1", None]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"type": ["integer", "number"]}, [1, 1.5], ["1"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "日本語", "😀😀", 'a"', "\\\\\\"], ["a", "abcd", "😀"]),
    ({"type": "string", "minLength": 2}, ["ab", "abcdef"], ["", "a"]),
    ({"type": "string", "maxLength": 0}, [""], ["a"]),
    ({"type": "string", "pattern": "^a+$"}, ["a", "aa"], ["", "b", "aab", "a\n"]),
    ({"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
    ({"type": "string", "pattern": '^["\\\\\n\x01]+$'}, ['"', "\\", "\n", "\x01", '"\n'], ["a"]),
    ({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd", "AB"]),
    ({"type": "string", "pattern": "^(?!bad)[a-z]{3}$"}, ["abc"], ["bad"]),
    (
        {"type": "string", "format": "date"},
        ["2024-02-29", "1999-12-31"],
        ["2023-02-29", "2024-13-01", "2024-04-31", "x"],
    ),
    ({"type": "string", "format": "time"}, ["23:59:59Z", "00:00:00.5+02:00"], ["24:00:00Z", "12:00:00"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-29T10:00:00Z"], ["2024-02-30T10:00:00Z", "2024-02-29"]),
    ({"type": "string", "format": "uuid"}, ["3f2b8c1e-9d4a-4e77-8a61-0c9f1e2d3b4a"], ["3f2b8c1e"]),
    ({"type": "string", "format": "ipv4"}, ["1.2.3.4", "255.255.255.255"], ["256.1.1.1", "1.2.3"]),
    (
        {"type": "string", "format": "email", "maxLength": 400},
        ["a.b@c.de", "x+y@sub.example.org"],
        ["a@b", "@c.de", "a..b@c.de"],
    ),
    (
        {"enum": ["a", 1, 1.5, None, True, [1, {"a": []}], {"k": "é"}]},
        ["a", 1, 1.5, None, True, [1, {"a": []}], {"k": "é"}],
        [2, "b", {}],
    ),
    ({"const": {"a": [1, 2]}}, [{"a": [1, 2]}], [{"a": [1]}]),
    ({"type": "string", "enum": ["a", 1, "bcd"], "maxLength": 2}, ["a"], [1, "bcd"]),
    ({"type": "integer", "enum": [1, 5, 9], "minimum": 2, "exclusiveMaximum": 9}, [5], [1, 9]),
    ({"enum": [1, 2], "const": 2}, [2], [1]),
    (POINT, [{"x": 1}, {"x": -1, "y": 2}], [{}, {"y": 2}, {"y": 1, "x": 1}, {"x": 1, "z": 1}, {"x": "1"}]),
    ({"type": "object", "properties": {}}, [{}], [{"a": 1}]),
    ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    ({"properties": {"a": {"type": "null"}}}, [{}, {"a": None}], [{"b": None}]),
    ({"type": "object", "properties": {"a": False, "b": POINT}}, [{}, {"b": {"x": 1}}], [{"a": 1}]),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1], [1, 2, 3]], [["a"], 1]),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
        [[1, 2], [1, 2, 3]],
        [[], [1], [1, 2, 3, 4]],
    ),
    ({"type": "array", "items": {"type": "null"}, "minItems": 2}, [[None] * 2, [None] * 5], [[], [None]]),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1},
        [[1], [1, "a"]],
        [[], ["a"], [1, "a", 2]],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}},
        [[], [1], [1, None, None]],
        [[None], [1, 1]],
    ),
    ({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, [[1, None]], [[1, 1]]),
    ({"type": "array", "items": False}, [[]], [[1]]),
    (
        {"type": "array", "items": {"type": "array", "items": {"enum": ["a"]}, "maxItems": 1}, "maxItems": 2},
        [[], [[]], [["a"], []]],
        [[["a", "a"]], [[], [], []]],
    ),
    ({"anyOf": [{"type": "integer"}, POINT, False]}, [1, {"x": 1}], ["a"]),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [{"a": None}, {"b": None}, {"a": None, "b": None}],
        [{}],
    ),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None]),
    (
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, kind: {"type": "null"}},
                    "required": ["kind"],
                }
                for kind in "ab"
            ]
        },
        [{"kind": "a", "a": None}, {"kind": "b"}],
        [{"kind": "c"}, {"kind": "a", "b": None}],
    ),
    (
        {"allOf": [POINT, {"properties": {"z": {"type": "null"}}, "required": ["z"]}]},
        [{"x": 1, "z": None}],
        [{"x": 1}, {"z": None}],
    ),
    ({"allOf": [{"type": "integer", "minimum": 3}, {"type": "number", "maximum": 5, "multipleOf": 2}]}, [4], [3, 5, 2]),
    ({"$ref": "#/$defs/p", "$defs": {"p": POINT}}, [{"x": 1}], [1]),
    (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/a~1b"}, "b": {"$ref": "#/definitions/a~1b"}},
            "definitions": {"a/b": {"type": "null"}},
        },
        [{}, {"a": None, "b": None}],
        [{"a": 1}],
    ),
    ({"$ref": "#/$defs/s", "minLength": 2, "$defs": {"s": {"type": "string", "title": "S"}}}, ["ab"], ["a", 1]),
    (
        {
            "type": "string",
            "title": "t",
            "description": "d",
            "default": "x",
            "examples": [1],
            "$schema": "s",
            "$id": "i",
            "$comment": "c",
            "deprecated": True,
            "readOnly": True,
            "writeOnly": False,
            "x-order": 1,
            "widget": "text",
        },
        ["a"],
        [1],
    ),
    ({"type": "string", "minimum": 3, "properties": {}, "uniqueItems": True}, ["a"], [5]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), ACCEPTED)
def test_accepts_instances_only(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    assert accepts(schema, *valid) == [True] * len(valid)
    assert accepts(schema, *invalid) == [False] * len(invalid)


REFUSED: list[tuple[Any, str]] = [
    ("{", r"not JSON: .* at line 1, column 2"),
    ('{"const": NaN}', "NaN is no JSON number"),
    ('{"const": 1e999}', "1e999 is too large"),
    ('{"const": ' + "9" * 5000 + "}", "digits"),
    ('{"const": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep"),
    ("3", "# is 3; a schema is an object or a boolean"),
    ({"type": "text"}, "#/type is 'text'; it must be one of null, boolean"),
    ({"type": []}, "#/type is"),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": "a"}, "#/required is 'a'; it must be a list"),
    ({"type": "array", "uniqueItems": 1}, "#/uniqueItems is 1; it must be true or false"),
    (
        {"type": "array", "items": {"type": "null"}, "minItems": -1},
        "#/minItems is -1; it must be a non-negative integer",
    ),
    ({"type": "string", "maxLength": "3"}, "#/maxLength is '3'; it must be a non-negative integer"),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "a("}}}, r"#/properties/a/pattern .*position 1"),
    ({"type": "string", "pattern": 3}, "#/pattern is 3; it must be a string"),
    ({"type": "string", "minLength": 10**6}, "max_grammar_states"),
    ({"type": "array", "items": {}, "minItems": 10**9}, "max_grammar_states"),
    ({"type": "integer", "minimum": "1"}, "#/minimum is '1'; it must be a number"),
    ({"type": "integer", "multipleOf": 0}, "#/multipleOf is 0; it must be above 0"),
    ({"enum": []}, "#/enum is .*; it must be a list with at least one value"),
    ({"anyOf": {}}, "#/anyOf must be a list"),
    ({"disallow": "string"}, "#/disallow is a keyword that is not supported"),
    (
        {"properties": {"x": {"unevaluatedItems": False, "contains": {"type": "null"}}}, "type": "object"},
        "#/properties/x/unevaluatedItems is not supported beside 'contains'",
    ),
    (
        {"unevaluatedItems": False, "anyOf": [{"prefixItems": [{}]}, {"type": "object"}]},
        "#/unevaluatedItems is not supported beside 'anyOf'",
    ),
    (
        {"unevaluatedProperties": False, "allOf": [{"anyOf": [{}, {"properties": {"a": {}}}]}]},
        "#/unevaluatedProperties is not supported beside 'anyOf'",
    ),
    (
        {"unevaluatedProperties": False, "if": {"properties": {"a": {"type": "null"}}}},
        "#/unevaluatedProperties is not supported beside 'if'",
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": {"type": "array", "minItems": i}}} for i in range(1, 12)]},
        "#/anyOf/0/properties/a, #/anyOf/1/properties/a, .* and others are 11 alternatives",
    ),
    ({"$ref": "#/$defs/x"}, "#/[$]ref is '#/[$]defs/x', which names nothing"),
    ({"$ref": "http://example.com/s"}, "only references inside the schema"),
    ({"$ref": "#"}, "leads back to itself"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "leads back to itself"),
    (
        {"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}},
         "$ref": "#/$defs/n"},
        "no output at all",
    ),
    ({"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 2}, "no output at all"),
    ({"type": "string", "const": 1}, "no output at all"),
    # What is closed for one option has no property that the other, open by the specification, forbids.
    (
        {"oneOf": [{"type": "object", "properties": {name: {"type": "null"}}} for name in "ab"]},
        "no output at all",
    ),
    ({"const": "\ud800"}, "lone surrogate"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "complaint"), REFUSED)
def test_refuses_by_name_and_place(schema: Any, complaint: str) -> None:
    with pytest.raises(GrammarError, match=complaint):
        compiled(schema)


def test_free_strings_accept_every_spelling_and_count_characters() -> None:
    free, two = compiled({"type": "string"}), compiled({"type": "string", "minLength": 2, "maxLength": 2})
    for spelling in (rb'"\"\\\/\b\f\n\r\t"', rb'"\u00e9\uD83D\uDE00"', '"é😀"'.encode(), rb'"\ud7ff\uE000"'):
        assert free.accepts(spelling), spelling
    for spelling in (
        rb'"\ud83d"',
        rb'"\ude00"',
        rb'"\ud83d\ud83d"',
        b'"\n"',
        b'"\x1f"',
        rb'"\x"',
        rb'"\u12"',
        b'"a',
        b'"\xc3"',
    ):
        assert not free.accepts(spelling), spelling
    for spelling in (rb'"\u00e9\uD83D\uDE00"', '"é😀"'.encode(), rb'"\\a"'):
        assert two.accepts(spelling), spelling
    for spelling in (rb'"\uD83D\uDE00"', '"😀"'.encode(), rb'"\\"', rb'"abc"'):
        assert not two.accepts(spelling), spelling


def test_whitespace_policies() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"enum": [1, {"k": 2}]}}, "b": {"type": "null"}},
    }
    value = {"a": [1, {"k": 2}], "b": None}
    compact, spaced = json.dumps(value, separators=(",", ":")), json.dumps(value)
    indented = [json.dumps(value, indent=width) for width in (0, 2, 4)]

    def accepted(whitespace: str, *texts: str) -> list[bool]:
        automaton = compiled(schema, json_whitespace=whitespace)
        return [automaton.accepts(text.encode()) for text in texts]

    assert accepted("compact", compact, spaced, *indented) == [True, False, False, False, False]
    assert accepted("single_space", compact, spaced, *indented) == [False, True, False, False, False]
    assert accepted("flexible", compact, spaced, *indented) == [True] * 5
    assert accepted(
        "flexible", "{}", '{"a":[]}', "{\n}", '{"a": [\n\n1]}', '{"a" : []}', "{" + "\n" + " " * 21 + "}"
    ) == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_keys_that_begin_alike_and_many_optional_ones() -> None:
    names = [f"{'prefix' * (number % 3)}{number}" for number in range(120)]
    schema = {"type": "object", "properties": {name: {"type": "boolean"} for name in names}, "required": [names[50]]}
    automaton = compiled(schema)
    assert automaton.num_states < 4 * sum(len(name) + 12 for name in names)
    assert accepts(schema, {names[50]: True}, {names[3]: False, names[50]: True, names[119]: True}) == [True, True]
    assert accepts(schema, {}, {names[51]: True}, {names[50]: True, names[3]: True}) == [False] * 3


def test_pydantic_models() -> None:
    class Color(enum.Enum):
        RED = "red"
        GREEN = "green"

    class Address(pydantic.BaseModel):
        street: str = pydantic.Field(max_length=20)
        zip: str = pydantic.Field(pattern=r"^\d{5}$")

    class Cat(pydantic.BaseModel):
        kind: Literal["cat"]
        lives: int = pydantic.Field(ge=1, le=9)

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]

    class Person(pydantic.BaseModel):
        """A person."""

        name: str
        age: int | None = None
        color: Color = Color.RED
        addresses: list[Address] = pydantic.Field(min_length=1, max_length=3)
        pair: tuple[int, str]
        pet: Cat | Dog = pydantic.Field(discriminator="kind")
        score: float = pydantic.Field(gt=0, lt=1)

    person = Person(
        name="Zoë",
        age=3,
        addresses=[Address(street="Main", zip="12345")],
        pair=(1, "a"),
        pet=Dog(kind="dog"),
        score=0.25,
    )
    automaton = compiled(Person.model_json_schema())
    assert automaton.accepts(json.dumps(person.model_dump(mode="json"), ensure_ascii=False).encode())
    wrong = person.model_dump(mode="json") | {"pet": {"kind": "cat", "lives": 10}}
    assert not automaton.accepts(json.dumps(wrong).encode())


def test_one_of_looks_at_what_open_options_let_through() -> None:
    open_point = {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]}
    either = {"oneOf": [open_point, {"type": "object", "properties": {"x": {}, "y": {}}}]}
    assert accepts(either, {"x": None}, {"y": 1}, {"x": 1}, {}) == [False, True, True, True]
    other = {"type": "object", "properties": {"y": {"type": "null"}}, "required": ["y"]}
    assert accepts({"oneOf": [open_point, other]}, {"x": None}, {"y": None}, {"x": None, "y": None}) == [
        True,
        True,
        False,
    ]


def test_one_of_reads_options_together_with_what_stands_next_to_them() -> None:
    flag = {"type": "object", "properties": {"y": {"type": "null"}}, "required": ["y"]}
    # Made for the first option, an object may have a `y` from next to the inner `anyOf`.
    mixed = {
        "properties": {"y": {"type": "null"}},
        "anyOf": [{"properties": {"x": {"type": "null"}}}],
        "type": "object",
    }
    assert accepts({"oneOf": [mixed, flag]}, {"x": None}, {"x": None, "y": None}, {"y": None}) == [True, False, False]

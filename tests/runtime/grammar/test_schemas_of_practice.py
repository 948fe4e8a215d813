"""Schemas as generators and catalogues write them, that once needed too large an automaton or were not told apart."""

import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compiler import AutomatonCompiler, compile_automaton


def compiled(schema: Any, **config: Any) -> ByteAutomaton:
    return compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig(**config))


def accepts(automaton: ByteAutomaton, value: Any) -> bool:
    return automaton.accepts(json.dumps(value, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("tag", "value", "required"),
    [
        (lambda number: {"const": f"t{number}"}, "t3", ["data", "tag"]),
        (lambda number: {"const": f"t{number}"}, "t3", ["data"]),
        (
            lambda number: {"type": "object", "properties": {"k": {"const": number}}, "required": ["k"]},
            {"k": 3},
            ["data", "tag"],
        ),
    ],
)
def test_a_tag_that_is_listed_last_comes_first_where_it_must(tag: Any, value: Any, required: list[str]) -> None:
    data = [{"properties": {f"f{number}": {"type": "null"}}, "required": [f"f{number}"]} for number in range(14)]
    schema = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"data": {**each, "type": "object"}, "tag": tag(number)},
                "required": required,
            }
            for number, each in enumerate(data)
        ]
    }
    automaton = compiled(schema, json_additional_properties="open")
    assert accepts(automaton, {"tag": value, "data": {"f3": None}})
    assert accepts(automaton, {"tag": value, "data": {"f1": 1, "f3": None}})
    assert not accepts(automaton, {"tag": value, "data": {"f4": None}})
    assert not accepts(automaton, {"data": {"f4": None}, "tag": value})


def test_what_is_decided_is_not_asked_about() -> None:
    methods = [
        {
            "type": "object",
            "properties": {"method": {"const": f"m{number}"}, "params": {"type": "object", "required": [f"p{number}"]}},
            "required": ["method"],
        }
        for number in range(20)
    ]
    automaton = compiled({"anyOf": methods}, json_additional_properties="open")
    assert accepts(automaton, {"method": "m7", "params": {"p7": 1}})
    assert not accepts(automaton, {"method": "m7", "params": {"p8": 1}})
    assert automaton.num_states < 5_000


@pytest.mark.parametrize("reading", ["open", "closed"])
def test_many_names_beside_patterns_share_what_reads_keys(reading: Any) -> None:
    rng = np.random.default_rng(7)
    names = [f"{'AB'[number % 2]}lign{number}" for number in range(60)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "patternProperties": {"^x-": {"type": "null"}, "^A.*1$": {"minimum": 5}},
        **({"additionalProperties": False} if reading == "closed" else {}),
    }
    automaton = compiled(schema, json_additional_properties=reading)
    validator = jsonschema.Draft202012Validator(schema)
    assert automaton.num_states < 12_000
    for _ in range(60):
        chosen = sorted(rng.choice(len(names), 3, replace=False).tolist())
        value: dict[str, Any] = {names[index]: int(rng.integers(0, 9)) for index in chosen}
        value.update({("x-a", "x-", "y", "Align")[int(rng.integers(4))]: None} if rng.random() < 0.5 else {})
        assert accepts(automaton, value) == validator.is_valid(value), value
        # In another order, a name that was passed over does not come back.
        assert not accepts(automaton, dict(reversed(value.items())))


def test_a_pattern_that_is_found_anywhere_says_nothing() -> None:
    free = compiled({"type": "string", "maxLength": 9000})
    for pattern in (".*", "([A-Z]+)?", "a*|^b$", "(?:x{0,3}y?)*"):
        assert compiled({"type": "string", "maxLength": 9000, "pattern": pattern}).num_states == free.num_states
    assert not accepts(compiled({"type": "string", "pattern": "^a*$"}), "b")
    with pytest.raises(GrammarError, match="no output at all"):
        compiled({"type": "string", "not": {"pattern": ".*"}})


def test_lengths_past_what_an_automaton_can_count_are_shortened() -> None:
    address = compiled(
        {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}, max_grammar_states=50_000
    )
    assert accepts(address, "https://a.b/".ljust(120, "c"))
    assert not accepts(address, "https://a.b/".ljust(2084, "c"))
    # A first try with less makes no other automaton.
    compiler = AutomatonCompiler(GrammarConfig(max_grammar_states=50_000))
    spec = GrammarSpec("json_schema", json.dumps({"type": "string", "pattern": "^(ab)*$", "maxLength": 3000}))
    with pytest.raises(BudgetError):
        compiler.make(spec, compiler.budget(max_states=2_000))
    assert accepts(compiler.compile(spec), "ab" * 1500)
    # What no string of a format is longer than needs no counting.
    assert compiled({"type": "string", "format": "email", "maxLength": 10**9}).num_states < 1000
    # Under a negation the number is used as it stands.
    with pytest.raises(GrammarError, match="max_grammar_states"):
        compiled({"type": "string", "not": {"pattern": "^[ab]*$", "maxLength": 300_000}})


def test_values_may_be_nested_as_deep_as_references_lead() -> None:
    links = {
        f"d{n}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}, "required": ["x"]}
        for n in range(1000)
    }
    automaton = compiled({"$ref": "#/$defs/d0", "$defs": {**links, "d1000": {"type": "null"}}})
    inside = '{"x": ' * 999
    assert automaton.accepts(f'{inside}{{"x": null}}{"}" * 999}'.encode())
    assert not automaton.accepts(f"{inside}null{'}' * 999}".encode())


def test_a_condition_may_stand_in_a_condition() -> None:
    """Each formula holds the one before twice, so that a look at all of its parts would never end."""
    schema: Any = {"minimum": 0}
    for number in range(1, 41):
        schema = {"if": schema, "then": {"minimum": -number}, "else": {"multipleOf": 2}}
    automaton = compiled({"type": "integer", **schema})
    for value in (-41, -40, -39, -3, -2, 0, 7):
        assert accepts(automaton, value) == jsonschema.Draft202012Validator(schema).is_valid(value), value


def test_how_deep_schemas_about_one_value_are_nested_does_not_depend_on_where_one_begins() -> None:
    defs: Any = {"d0": {"type": "integer"}}
    for number in range(1, 300):
        defs[f"d{number}"] = {"anyOf": [{"$ref": f"#/$defs/d{number - 1}"}, {"const": f"v{number}"}]}
    for first in ({"$ref": "#/$defs/d299"}, {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in defs}}):
        with pytest.raises(GrammarError, match="nested more than 200 schemas deep"):
            compiled({**first, "$defs": defs})

"""Unions of more alternatives than all combinations could be looked at of: told apart by a tag, wherever it is listed."""

import json
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton

relaxed = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

WORDS = [f"w{number}" for number in range(12)]
TAGS = {
    "const": lambda word: {"const": word},
    "enum": lambda word: {"type": "string", "enum": [word, word + "x"]},
    "pattern": lambda word: {"type": "string", "pattern": f"^{word}$"},
    "nested": lambda word: {"properties": {"k": {"const": word}}, "required": ["k"], "type": "object"},
    "tuple": lambda word: {"type": "array", "items": [{"const": word}], "minItems": 1},
}
payloads = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        {"type": "object", "properties": {"n": {"type": "string"}}},
        {"type": "object", "properties": {"m": {"type": "null"}}, "required": ["m"]},
        {"type": "object", "properties": {"m": {"type": "null"}, "n": {}}, "required": ["m", "n"]},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "minItems": 1},
        {"type": "array", "items": {"type": "string"}, "maxItems": 1},
        {"enum": [1, "a", None]},
        {},
    ]
)
contents = st.sampled_from([1, "a", None, {}, {"n": 1}, {"n": "a"}, {"m": None}, {"m": None, "n": 1}, [], [1], ["a"]])


@st.composite
def unions(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(list(TAGS)))
    alternatives = []
    for word in WORDS[: draw(st.integers(9, 12))]:
        properties = {name: draw(payloads) for name in draw(st.lists(st.sampled_from("ab"), unique=True))}
        names = list(properties)
        names.insert(draw(st.integers(0, len(names))), "tag")
        alternatives.append(
            {
                "type": "object",
                "properties": {name: TAGS[kind](word) if name == "tag" else properties[name] for name in names},
                "required": draw(st.sampled_from([names, ["tag"], ["tag"], names[-1:]])),
                **draw(st.sampled_from([{}, {"additionalProperties": False}])),
            }
        )
    return {draw(st.sampled_from(["anyOf", "oneOf"])): alternatives}


@st.composite
def instances(draw: st.DrawFn) -> dict[str, Any]:
    word = draw(st.sampled_from([*WORDS, "w0x", "other"]))
    tag = draw(st.sampled_from([word, {"k": word}, [word], {"k": word, "l": 1}, None]))
    rest = draw(st.dictionaries(st.sampled_from("abc"), contents, max_size=2))
    return rest if tag is None else {"tag": tag, **rest}


@relaxed
@given(schema=unions(), values=st.lists(instances(), min_size=8, max_size=8), order=st.sampled_from(["any", "schema"]))
def test_many_alternatives_are_told_apart(schema: Any, values: list[Any], order: Any) -> None:
    config = GrammarConfig(json_additional_properties="open", json_key_order=order)
    try:
        automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), config)
    except GrammarError as error:
        if "alternatives" in error.message:
            return
        raise
    validator = jsonschema.Draft7Validator(schema)
    for value in values:
        is_valid = validator.is_valid(value)
        accepted = automaton.accepts(json.dumps(value).encode())
        # The tag is first in each: the one place that no order takes from it.
        assert accepted == is_valid if order == "any" else is_valid or not accepted, value
        backwards = dict(reversed(value.items()))
        assert is_valid or not automaton.accepts(json.dumps(backwards).encode()), value

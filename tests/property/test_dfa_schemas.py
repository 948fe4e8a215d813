"""Whatever a random model says under the masks of a random schema is a valid instance; valid instances are accepted."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

LONGER = [
    b'": ',
    b'", "',
    b'{"',
    b'"}',
    b", ",
    b"null",
    b"true",
    b'\\"',
    b"\\u00",
    b"d83d\\u",
    b"-1",
    b".5",
    b"e-",
    "é".encode(),
    "😀a".encode(),
    "日本".encode()[:4],
]
VOCABULARY = GrammarVocabulary(
    (None, *(bytes([byte]) for byte in range(256)), *LONGER), frozenset({0}), 257 + len(LONGER)
)
relaxed = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

names = st.sampled_from(["a", "ab", "b", "key", 'q"', "é"])
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-99, 99),
    st.sampled_from(["", "a", 'x"\\', "é\n", "😀"]),
    st.sampled_from([0.5, -2.25]),
)
bounds = st.fixed_dictionaries(
    {},
    optional={
        "minimum": st.integers(-50, 20),
        "maximum": st.integers(21, 90),
        "exclusiveMinimum": st.integers(-60, 20),
        "exclusiveMaximum": st.sampled_from([22, 30.5]),
    },
)
leaves: st.SearchStrategy[Any] = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean", "description": "yes or no"}),
    st.just({"type": ["integer", "string"]}),
    st.builds(lambda extra: {"type": "integer", **extra}, bounds),
    st.builds(lambda extra: {"type": "number", **extra}, bounds),
    st.builds(lambda divisor: {"type": "integer", "multipleOf": divisor}, st.integers(1, 12)),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    st.sampled_from(["^[ab]{1,3}$", "x|y$", '^"', "^[^\\x00]?$", r"^\d+-\d+$"]).map(
        lambda regex: {"type": "string", "pattern": regex}
    ),
    st.lists(scalars, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    scalars.map(lambda value: {"const": value}),
    st.sampled_from(["date", "time", "ipv4"]).map(lambda name: {"type": "string", "format": name}),
)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(names, inner, max_size=4)
    objects = st.tuples(properties, st.integers(0, 15)).map(
        lambda pair: {
            "type": "object",
            "properties": pair[0],
            "required": [name for index, name in enumerate(pair[0]) if pair[1] >> index & 1],
            "additionalProperties": False,
        }
    )
    arrays = st.tuples(inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))).map(
        lambda parts: {
            "type": "array",
            "items": parts[0],
            "minItems": parts[1],
            **({} if parts[2] is None else {"maxItems": parts[1] + parts[2]}),
        }
    )
    tuples = st.lists(inner, min_size=1, max_size=3).map(
        lambda items: {"type": "array", "prefixItems": items, "items": False, "minItems": 1}
    )
    unions = st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda parts: {parts[0]: parts[1]}
    )
    return st.one_of(objects, open_objects(inner), arrays, tuples, unions, conditions(inner))


def open_objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(names, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "^[^k]+$"]), inner, max_size=2),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "required": st.lists(names, max_size=2, unique=True),
            "minProperties": st.integers(0, 3),
            "maxProperties": st.integers(0, 3),
            "propertyNames": st.sampled_from([{"maxLength": 2}, {"pattern": "^[a-k]"}, {"not": {"const": "a"}}]),
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
            "dependentSchemas": st.dictionaries(names, inner, max_size=1),
        },
    )


def conditions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda schema: {"not": schema}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
        st.fixed_dictionaries(
            {"type": st.just("array"), "contains": inner},
            optional={"minContains": st.integers(0, 2), "maxContains": st.integers(0, 2), "items": inner},
        ),
        st.tuples(inner, inner).map(lambda pair: {"allOf": [pair[0]], "not": pair[1]}),
        st.just({"type": "array", "items": {"enum": [1, "a", None, True]}, "uniqueItems": True}),
        st.just({"$ref": "#/$defs/tree"}),
    )


TREE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["a"],
}
schemas = st.recursive(leaves, compound, max_leaves=6).map(lambda schema: {**schema, "$defs": {"tree": TREE}})
readings = st.sampled_from(["open", "closed"])


@pytest.fixture(scope="module")
def compilers() -> Iterator[dict[tuple[str, str], GrammarCompiler]]:
    made = {
        (policy, reading): GrammarCompiler(
            VOCABULARY,
            GrammarConfig(json_whitespace=policy, json_additional_properties=reading, max_grammar_states=20_000),
        )
        for policy in ("compact", "single_space", "flexible")
        for reading in ("open", "closed")
    }
    yield made
    for compiler in made.values():
        compiler.close()


def random_output(compiler: GrammarCompiler, schema: Any, rng: np.random.Generator) -> bytes | None:
    """What a random model with a bias towards structure and the end says; None when it comes to no end."""
    state = compiler.compile(GrammarSpec("json_schema", json.dumps(schema))).new_state()
    row = np.zeros(VOCABULARY.num_mask_words, dtype=np.int32)
    output = b""
    for _ in range(400):
        state.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        closing = [token for token in (0, 1 + ord('"'), 1 + ord("}"), 1 + ord("]")) if token in allowed]
        choice = closing[0] if closing and rng.random() < 0.4 else int(rng.choice(allowed))
        assert state.advance(choice)
        if choice == 0:
            return output
        output += VOCABULARY.token_bytes[choice] or b""
    return None


@relaxed
@given(
    schema=schemas,
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["compact", "single_space", "flexible"]),
    reading=readings,
)
def test_random_outputs_are_valid(
    compilers: dict[tuple[str, str], GrammarCompiler], schema: Any, seed: int, policy: str, reading: str
) -> None:
    try:
        output = random_output(compilers[policy, reading], schema, np.random.default_rng(seed))
    except GrammarError as error:
        if any(words in error.message for words in ("no output at all", "max_grammar_states", "alternatives")):
            return
        raise
    if output is not None:
        jsonschema.Draft202012Validator(schema).validate(json.loads(output))


@relaxed
@given(
    schema=schemas,
    value=st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
        max_leaves=5,
    ),
    reading=readings,
)
def test_acceptance_agrees_with_jsonschema(schema: Any, value: Any, reading: Any) -> None:
    config = GrammarConfig(json_additional_properties=reading, json_key_order="any")
    try:
        automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), config)
    except GrammarError:
        return
    accepted = automaton.accepts(json.dumps(value, ensure_ascii=False).encode())
    is_valid = jsonschema.Draft202012Validator(schema, format_checker=None).is_valid(value)
    # Formats are enforced here, and closed objects are narrower; everything else is exact.
    is_exact = reading == "open" and "format" not in json.dumps(schema)
    assert accepted == is_valid if is_exact else is_valid or not accepted, (schema, value)

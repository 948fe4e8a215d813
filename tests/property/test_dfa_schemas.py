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
from sgl_runtime.grammar.compiler import GrammarCompiler, compile_automaton

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
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
    return st.one_of(objects, arrays, tuples, unions)


schemas = st.recursive(leaves, compound, max_leaves=6)


@pytest.fixture(scope="module")
def compilers() -> Iterator[dict[str, GrammarCompiler]]:
    made = {
        policy: GrammarCompiler(VOCABULARY, GrammarConfig(json_whitespace=policy, max_grammar_states=20_000))
        for policy in ("compact", "single_space", "flexible")
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
@given(schema=schemas, seed=st.integers(0, 2**32), policy=st.sampled_from(["compact", "single_space", "flexible"]))
def test_random_outputs_are_valid(compilers: dict[str, GrammarCompiler], schema: Any, seed: int, policy: str) -> None:
    try:
        output = random_output(compilers[policy], schema, np.random.default_rng(seed))
    except GrammarError as error:
        if "no output at all" in error.message or "max_grammar_states" in error.message:
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
)
def test_acceptance_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    try:
        automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
    except GrammarError:
        return
    accepted = automaton.accepts(json.dumps(value, ensure_ascii=False).encode())
    is_valid = jsonschema.Draft202012Validator(schema, format_checker=None).is_valid(value)
    assert is_valid or not accepted, (schema, value)

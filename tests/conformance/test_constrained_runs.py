"""Constrained runs of the small real model: what comes out matches, judged by other libraries than ours."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import regex

from sgl_runtime.composition import ModelHost
from sgl_runtime.config import GrammarConfig, ModelSection, RuntimeConfig
from sgl_runtime.engine import Engine
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton

pytestmark = pytest.mark.model

SHARED = Path(__file__).parents[3] / "shared"
REGEXES_FILE = SHARED / "regexes" / "dev.json"
SCHEMAS_FILE = SHARED / "maskbench" / "dev.jsonl.gz"

OWN_REGEXES = {
    "date": r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    "yes-no": r"(yes|no)",
    "sentence": r"[A-Z][a-z]{1,9}( [a-z]{1,9}){2,6}\.",
    "key-values": r"([a-z]{1,6}=\d{1,3};){1,4}",
    "greek": r"[α-ω]{3,8}",
    "not-numbers": r"(?!\d)\w{4,12}",
}
OWN_SCHEMAS: dict[str, Any] = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "colours": {"type": "array", "items": {"enum": ["red", "green", 3, None]}, "minItems": 1, "maxItems": 4},
    "address": {
        "type": "object",
        "properties": {
            "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            "place": {"$ref": "#/$defs/place"},
            "former": {"type": "array", "items": {"$ref": "#/$defs/place"}, "maxItems": 2},
        },
        "required": ["zip", "place"],
        "additionalProperties": False,
        "$defs": {"place": {"type": "string", "minLength": 2, "maxLength": 15}},
    },
    "either": {
        "anyOf": [
            {"type": "integer", "multipleOf": 5, "minimum": -50, "maximum": 50},
            {"const": "none"},
            {"type": "null"},
        ]
    },
    "ratio": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "flags": {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in ("on", "fast", "safe")},
        "required": ["fast"],
        "additionalProperties": False,
    },
}
# Anchor cases whose every object says that it is closed, drawn so that each keyword comes up in several of them.
SHARED_SCHEMAS = [
    "Github_easy---o81575",
    "Snowplow---sp_84_Normalized",
    "Github_medium---o46250",
    "Github_trivial---o26952",
    "Github_medium---o82298",
    "Snowplow---sp_241_Normalized",
    "Github_medium---o6247",
    "Github_easy---o9806",
    "Github_easy---o6379",
    "Github_medium---o65706",
    "JsonSchemaStore---factorial-drupal-breakpoints-css-0.2.0",
    "Snowplow---sp_212_Normalized",
    "Github_easy---o90404",
    "Github_medium---o78400",
    "Github_easy---o19359",
    "Github_trivial---o6376",
    "Github_trivial---o26950",
    "Snowplow---sp_44_Normalized",
    "Github_easy---o28268",
    "Github_medium---o63937",
    "Github_medium---o8482",
    "Github_medium---o90285",
    "Github_easy---o5474",
    "Github_medium---o27827",
    "Snowplow---sp_211_Normalized",
    "Github_trivial---o70294",
    "Github_medium---o90384",
    "BFCL_parallel_multiple_26",
    "Github_medium---o6378",
    "Github_medium---o37096",
]

CHAT = "<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Case:
    """A constraint, and how its results are judged without our code."""

    name: str
    spec: GrammarSpec
    oracle: Any

    def prompt(self, num_characters: int) -> str:
        what = "something in this form" if self.spec.kind == "regex" else "a JSON value for this schema"
        return CHAT.format(task=f"Write {what}, a short one: {self.spec.text[:num_characters]}")

    def check(self, text: str) -> None:
        if self.spec.kind == "regex":
            assert self.oracle.fullmatch(self.spec.text, text), (self.name, text)
        else:
            # Duplicate keys would vanish in a dict.
            value = json.loads(text, object_pairs_hook=distinct_keys)
            self.oracle.validate(value)


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def regex_case(name: str, pattern: str, oracle: Any = re) -> Case:
    return Case(name, GrammarSpec("regex", pattern), oracle)


def schema_case(name: str, schema: Any) -> Case:
    validator_class = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = validator_class(schema, format_checker=validator_class.FORMAT_CHECKER)
    return Case(name, GrammarSpec("json_schema", json.dumps(schema)), validator)


OWN_CASES = [
    *(regex_case(name, pattern) for name, pattern in OWN_REGEXES.items()),
    *(schema_case(name, schema) for name, schema in OWN_SCHEMAS.items()),
]


def shared_cases() -> list[Case]:
    if not (REGEXES_FILE.exists() and SCHEMAS_FILE.exists()):
        pytest.skip("shared/regexes and shared/maskbench are not beside this checkout")
    oracles = {"re": re, "regex": regex}
    cases = [
        regex_case(entry["id"], entry["pattern"], oracles[entry["oracle"]])
        for entry in json.loads(REGEXES_FILE.read_text(encoding="utf-8"))
    ]
    with gzip.open(SCHEMAS_FILE, "rt", encoding="utf-8") as lines:
        schemas = {entry["id"]: entry["schema"] for entry in map(json.loads, lines)}
    cases.extend(schema_case(name, schemas[name]) for name in SHARED_SCHEMAS)
    assert len(cases) == 50
    return cases


@pytest.fixture(scope="module")
def host() -> ModelHost:
    return ModelHost.open(RuntimeConfig(model=ModelSection(model_path="smollm2")))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("smollm2", max_total_tokens=24_576, max_running_requests=32) as engine:
        yield engine


class Judge:
    """Sorts replies into finished and cut, and fails on anything else."""

    def __init__(self, host: ModelHost) -> None:
        self._token_bytes = host.tokenizer.vocabulary.token_bytes
        self._eos_ids = host.eos_ids
        self._automata: dict[GrammarSpec, ByteAutomaton] = {}
        self.counts: Counter[str] = Counter()

    def judge(self, case: Case, reply: dict[str, Any]) -> None:
        ids = [token_id for token_id in reply["output_ids"] if token_id not in self._eos_ids]
        assert len(reply["output_ids"]) - len(ids) <= 1
        data = b"".join(self._token_bytes[token_id] for token_id in ids)
        assert reply["text"] == data.decode(errors="replace"), case.name
        reason = reply["meta_info"]["finish_reason"]
        self.counts[reason["type"]] += 1
        if reason["type"] == "stop":
            case.check(data.decode())
        else:
            assert reason["type"] == "length", (case.name, reason)
            assert self._automaton(case.spec).run(0, (), data)[0] >= 0, (case.name, data)

    def _automaton(self, spec: GrammarSpec) -> ByteAutomaton:
        if spec not in self._automata:
            self._automata[spec] = compile_automaton(spec, GrammarConfig())
        return self._automata[spec]


def run(engine: Engine, judge: Judge, jobs: list[tuple[Case, dict[str, Any]]], *, shown: int = 120) -> None:
    replies = engine.generate(
        [case.prompt(shown) for case, _ in jobs],
        [{case.spec.kind: case.spec.text, **sampling} for case, sampling in jobs],
    )
    for (case, _), reply in zip(jobs, replies, strict=True):
        judge.judge(case, reply)
    state = engine.get_server_info()["internal_states"][0]
    assert state["free_slots"] + state["cached_slots"] == state["total_slots"]
    assert state["num_running"] == state["num_waiting"] == 0


def draws(case: Case, count: int, max_new_tokens: int) -> list[tuple[Case, dict[str, Any]]]:
    """One greedy run, then sampled ones."""
    return [
        (case, {"temperature": min(seed, 1), "sampling_seed": seed, "max_new_tokens": max_new_tokens})
        for seed in range(count)
    ]


def test_results_match_our_own_constraints(engine: Engine, host: ModelHost) -> None:
    judge = Judge(host)
    run(engine, judge, [job for case in OWN_CASES for job in draws(case, 2, 64)])
    assert judge.counts["stop"] >= 20, judge.counts


@pytest.mark.slow
def test_one_result_of_each_shared_constraint_matches(engine: Engine, host: ModelHost) -> None:
    judge = Judge(host)
    jobs = [draws(case, 2, 32)[index % 2] for index, case in enumerate(shared_cases())]
    run(engine, judge, jobs)
    assert judge.counts["stop"] >= 20, judge.counts


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_hundred_results_match(engine: Engine, host: ModelHost) -> None:
    judge = Judge(host)
    run(engine, judge, [job for case in shared_cases() for job in draws(case, 10, 320)], shown=700)
    assert judge.counts.total() == 500
    # The rest was cut in the middle of a long string or list.
    assert judge.counts["stop"] >= 400, judge.counts


@pytest.mark.parametrize(
    ("sampling", "place"),
    [
        ({"regex": "ab(cd"}, r"position|\b[0-9]+\b"),
        ({"regex": "[z-a]"}, r"z-a|[0-9]"),
        ({"regex": r"(a)\1"}, r"\\1|[0-9]"),
        ({"json_schema": "{"}, "JSON"),
        ({"json_schema": {"type": "strange"}}, "#"),
        (
            {"json_schema": {"properties": {"a": {"items": {"type": "integer", "minimum": "x"}}}}},
            "#/properties/a/items",
        ),
        ({"json_schema": {"properties": {"a": {"$ref": "#/$defs/none"}}}}, "#/properties/a"),
        (
            {"json_schema": {"properties": {"a": {"$dynamicRef": "#x"}}}},
            r"#/properties/a.*dynamicRef|dynamicRef.*#/properties/a",
        ),
        ({"json_schema": {"properties": {"a": {"type": "string", "pattern": "(a"}}}}, "#/properties/a"),
        ({"json_schema": False}, "no output|false|nothing"),
    ],
)
def test_malformed_constraint_names_the_place_and_runs_nothing(
    engine: Engine, sampling: dict[str, Any], place: str
) -> None:
    before = engine.get_server_info()["internal_states"][0]
    with pytest.raises(GrammarError) as caught:
        engine.generate("Hello", {**sampling, "max_new_tokens": 4})
    assert re.search(place, caught.value.message), caught.value.message
    assert caught.value.status == 400
    after = engine.get_server_info()["internal_states"][0]
    for counter in ("generation_tokens_total", "prompt_tokens_total", "free_slots", "num_running", "num_waiting"):
        assert after[counter] == before[counter]
    good = engine.generate("Hello", {"regex": "[ab]", "max_new_tokens": 4})
    assert re.fullmatch("[ab]", good["text"])


def test_a_bad_constraint_in_a_batch_stops_the_whole_call(engine: Engine) -> None:
    with pytest.raises(GrammarError):
        engine.generate(["a", "b"], [{"regex": "x", "max_new_tokens": 2}, {"regex": "(", "max_new_tokens": 2}])
    assert engine.generate("a", {"regex": "x", "max_new_tokens": 2})["text"] == "x"

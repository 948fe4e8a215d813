"""The shared JSON schemas with their valid and invalid instances."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import AutomatonCompiler

SHARED = Path(__file__).parents[3] / "shared"
CASES_FILE = SHARED / "maskbench" / "dev.jsonl.gz"
SUITE = SHARED / "json_schema_test_suite" / "tests" / "draft2020-12"
LIMITS = GrammarConfig(max_grammar_states=20_000, grammar_compile_timeout=5)
needs_cases = pytest.mark.skipif(not CASES_FILE.exists(), reason="shared/maskbench is not beside this checkout")


@cache
def compiled_cases(*, every: int) -> list[tuple[dict[str, Any], ByteAutomaton]]:
    return list(_compiled_cases(every))


def _compiled_cases(every: int) -> Iterator[tuple[dict[str, Any], ByteAutomaton]]:
    compiler = AutomatonCompiler(LIMITS)
    with gzip.open(CASES_FILE, "rt", encoding="utf-8") as lines:
        for index, line in enumerate(lines):
            if index % every:
                continue
            case = json.loads(line)
            try:
                automaton = compiler.compile(GrammarSpec("json_schema", json.dumps(case["schema"])))
            except GrammarError as error:
                # Only what is out of scope or too large may be refused, and never without a place or a limit.
                if not any(word in error.message for word in ("#", "max_grammar_states", "took longer")):
                    raise
                continue
            yield case, automaton


def accepts(automaton: ByteAutomaton, value: Any) -> bool:
    return automaton.accepts(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def is_closed(schema: Any) -> bool:
    """Whether every object of a schema says that it is closed, so that our reading is the specification's."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    is_open = "properties" in schema and schema.get("additionalProperties") is not False
    return not is_open and all(map(is_closed, schema.values()))


def in_order(schema: Any, value: Any) -> bool:
    """Whether an object's keys come as the schema's properties do, at the top."""
    listed = list(schema.get("properties", {}))
    keys = [key for key in value if key in listed] if isinstance(value, dict) else []
    return keys == sorted(keys, key=listed.index)


@needs_cases
def test_no_invalid_instance_is_accepted() -> None:
    num_schemas = 0
    for case, automaton in compiled_cases(every=15):
        num_schemas += 1
        for test in case.get("tests") or []:
            assert test["valid"] or not accepts(automaton, test["data"]), (case["id"], test["data"])
    assert num_schemas > 40


@needs_cases
def test_valid_instances_of_closed_schemas_are_accepted() -> None:
    num_schemas = 0
    for case, automaton in compiled_cases(every=15):
        if not is_closed(case["schema"]):
            continue
        num_schemas += 1
        for test in case.get("tests") or []:
            if test["valid"] and in_order(case["schema"], test["data"]):
                assert accepts(automaton, test["data"]), (case["id"], test["data"])
    assert num_schemas >= 10


@pytest.mark.skipif(not SUITE.exists(), reason="shared/json_schema_test_suite is not beside this checkout")
def test_the_official_suite_shows_no_invalid_instance_accepted() -> None:
    num_compiled = 0
    compiler = AutomatonCompiler(LIMITS)
    for path in sorted(SUITE.rglob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            try:
                automaton = compiler.compile(GrammarSpec("json_schema", json.dumps(group["schema"])))
            except GrammarError:
                continue
            num_compiled += 1
            for test in group["tests"]:
                place = (path.name, group["description"], test["description"])
                assert test["valid"] or not accepts(automaton, test["data"]), place
    assert num_compiled > 100

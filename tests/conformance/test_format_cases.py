"""The formats of the official test suite, and the patterns of the shared schemas."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.formats import FORMATS, format_dfa
from sgl_runtime.grammar.regex import search_to_dfa
from sgl_runtime.grammar.regex_tree import Reader

SHARED = Path(__file__).parents[3] / "shared"
FORMAT_CASES = SHARED / "json_schema_test_suite" / "tests" / "draft2020-12" / "optional" / "format"
SCHEMAS_FILE = SHARED / "maskbench" / "dev.jsonl.gz"

# Valid for the suite and refused here: Punycode, letters with conditions on what is around them, leap seconds that are
# not written in UTC, and what only ECMAScript reads as a regex.
MOST_REFUSED = {
    "time": 4,
    "date-time": 1,
    "hostname": 15,
    "idn-hostname": 19,
    "idn-email": 2,
    "regex": 6,
}


def budget() -> Budget:
    return Budget(max_states=100_000, timeout_s=30)


def format_cases() -> Iterator[tuple[str, str, bool]]:
    for path in sorted(FORMAT_CASES.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            for test in group["tests"]:
                if isinstance(test["data"], str) and group["schema"]["format"] in FORMATS:
                    yield group["schema"]["format"], test["data"], test["valid"]


@pytest.mark.skipif(not FORMAT_CASES.exists(), reason="shared/json_schema_test_suite is not beside this checkout")
def test_formats() -> None:
    narrow = {name: format_dfa(name, budget()) for name in FORMATS}
    wide = {name: format_dfa(name, budget(), wide=True) for name in FORMATS}
    refused = dict.fromkeys(FORMATS, 0)
    for name, text, is_valid in format_cases():
        if is_valid:
            assert wide[name].accepts(text), (name, text)
            refused[name] += not narrow[name].accepts(text)
        else:
            assert not narrow[name].accepts(text), (name, text)
    assert all(count <= MOST_REFUSED.get(name, 0) for name, count in refused.items()), refused


def patterns_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from patterns_in(each)
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for each in schema.values():
            yield from patterns_in(each)


@pytest.mark.slow
@pytest.mark.skipif(not SCHEMAS_FILE.exists(), reason="shared/maskbench is not beside this checkout")
def test_every_pattern_of_the_shared_schemas_compiles() -> None:
    with gzip.open(SCHEMAS_FILE, "rt", encoding="utf-8") as lines:
        patterns = {pattern for line in lines for pattern in patterns_in(json.loads(line)["schema"])}
    assert len(patterns) > 400
    texts = ["", "a", "abc", "ABC-1", "1.2.3", "x@y.z", "/a/b", "https://example.org/x.yaml", "é", "a b\n", "main"]
    for pattern in sorted(patterns):
        dfa = search_to_dfa(pattern, budget(), Reader.PYTHON)
        # `regex` has the categories that `re` has not; here it is enough to look at the others.
        if r"\p" not in pattern:
            for text in texts:
                assert dfa.accepts(text) == (re.search(pattern, text) is not None), (pattern, text)

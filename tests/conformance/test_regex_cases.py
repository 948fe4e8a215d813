"""The shared regexes with their positive and negative strings."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import compile_automaton

CASES_FILE = Path(__file__).parents[3] / "shared" / "regexes" / "dev.json"
CASES: list[dict[str, Any]] = json.loads(CASES_FILE.read_text()) if CASES_FILE.exists() else []


@pytest.mark.skipif(not CASES, reason="shared/regexes is not beside this checkout")
def test_shared_regexes() -> None:
    for case in CASES:
        automaton = compile_automaton(GrammarSpec("regex", case["pattern"]), GrammarConfig())
        for text in case["positive"]:
            assert automaton.accepts(text.encode()), (case["id"], text)
        for text in case["negative"]:
            assert not automaton.accepts(text.encode()), (case["id"], text)

"""Random and hostile constraints: each ends within its limit, as a grammar or as a GrammarError, in bounded memory.

A few hundred run by default; all 10,000 are marked slow.
"""

import random
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from fakes.hostile_constraints import known_specs, random_spec
from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256)), b"ab", b'{"', b'": '), frozenset({0}), 260)
TIMEOUT_S = 0.4
# How much longer than its limit a compilation may take on a busy machine: a start of a process, its grace, its end.
SLACK_S = 20.0
MAX_GROWTH_BYTES = 600 * 2**20
CONFIG = GrammarConfig(grammar_compile_timeout=TIMEOUT_S, grammar_compile_memory=512, max_grammar_states=8_000)


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(BYTES, CONFIG)
    yield made
    made.close()


def compile_all(compiler: GrammarCompiler, specs: list[GrammarSpec]) -> int:
    """Compile one after the other, and make a first mask; how many were enforced."""
    row = np.zeros(BYTES.num_mask_words, dtype=np.int32)
    process = psutil.Process()
    before = process.memory_info().rss
    num_enforced = 0
    for spec in specs:
        start = time.monotonic()
        future = compiler.submit(spec)
        failure = future.exception(timeout=TIMEOUT_S + SLACK_S)
        assert failure is None or isinstance(failure, GrammarError), (spec.kind, spec.text[:300], failure)
        if failure is None:
            num_enforced += 1
            future.result().grammar.new_state().fill_mask(row)
        else:
            assert failure.message.isprintable()
            assert len(failure.message) < 600
        assert time.monotonic() - start < TIMEOUT_S + SLACK_S, spec.text[:300]
        growth = process.memory_info().rss - before
        assert growth < MAX_GROWTH_BYTES, (growth, spec.text[:300])
    return num_enforced


@pytest.mark.parametrize(
    "part", [0, pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_known_hostile_constraints_end_quickly(compiler: GrammarCompiler, part: int) -> None:
    specs = known_specs()
    assert len(specs) > 120
    compile_all(compiler, specs[part::4])


def test_some_random_constraints_end_quickly(compiler: GrammarCompiler) -> None:
    rng = random.Random(2)
    assert compile_all(compiler, [random_spec(rng) for _ in range(170)]) > 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_random_constraints_end_quickly(compiler: GrammarCompiler, seed: int) -> None:
    rng = random.Random(100 + seed)
    assert compile_all(compiler, [random_spec(rng) for _ in range(1000)]) > 300

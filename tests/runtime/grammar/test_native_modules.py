"""Compiled modules make what their sources make, survive what is nested deep, and give way to sources that changed."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import pytest

from fakes.hostile_constraints import SCHEMAS, TEXTS, deep_schemas, random_spec
from sgl_runtime import native_modules
from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar import builder
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import AutomatonCompiler

CONFIG = GrammarConfig(json_additional_properties="open", max_grammar_states=8_000, grammar_compile_timeout=1.0)
TESTS = Path(__file__).resolve().parents[2]
needs_compiled = pytest.mark.skipif(
    builder.__file__.endswith(".py"), reason="no compiled modules that fit the sources: see native_build.py"
)


def outcomes(specs: Sequence[GrammarSpec]) -> list[str]:
    """What each spec becomes: a hash of its automaton, or the message of its error."""
    compiler = AutomatonCompiler(CONFIG)
    return [outcome(compiler, spec) for spec in specs]


def outcome(compiler: AutomatonCompiler, spec: GrammarSpec) -> str:
    try:
        made = compiler.compile(spec)
    except GrammarError as error:
        return error.message
    found = hashlib.sha256(made.table[:, made.byte_classes].tobytes())
    for each in (made.accepting, made.edge_target, made.edge_argument, made.returns):
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()


def deep_specs() -> list[GrammarSpec]:
    return [GrammarSpec("json_schema", json.dumps(schema)) for schema in deep_schemas(5000)]


def run_in_a_process(program: str, limit: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that knows the names of this module."""
    done = subprocess.run(
        ["sh", "-c", f'{limit}exec "$0" -c "$1"', sys.executable, f"from {__name__} import *; {program}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def some_specs() -> list[GrammarSpec]:
    rng = random.Random(5)
    return [spec for _ in range(500) if (spec := random_spec(rng)).kind == "json_schema"]


def many_specs() -> list[GrammarSpec]:
    rng = random.Random(6)
    specs = [GrammarSpec("json_schema", json.dumps(schema)) for schema in SCHEMAS]
    specs += [GrammarSpec("json_schema", text) for text in TEXTS]
    return specs + [spec for _ in range(4000) if (spec := random_spec(rng)).kind == "json_schema"]


@needs_compiled
@pytest.mark.parametrize("which", ["some_specs", pytest.param("many_specs", marks=pytest.mark.slow)])
def test_compiled_modules_make_what_their_sources_make(which: str) -> None:
    """The same automata, array by array, or the same messages."""
    done = run_in_a_process(f"print(json.dumps([builder.__file__, outcomes({which}())]))", SGL_NATIVE="0")
    file, of_sources = json.loads(done.stdout)
    assert file.endswith(".py")
    of_compiled = outcomes(globals()[which]())
    pairs = list(zip(of_compiled, of_sources, strict=True))
    # Sources may run out of time, or of frames, where compiled modules do not.
    sooner = ("took longer than", "nested too deep")
    comparable = [pair for pair in pairs if not any(word in text for word in sooner for text in pair)]
    assert [(one, other) for one, other in comparable if one != other] == []
    assert len(comparable) > 0.9 * len(pairs) > 100
    assert sum(len(each) == 64 for each, _ in comparable) > 0.2 * len(pairs)


@needs_compiled
def test_nothing_that_is_nested_deep_needs_much_of_the_stack() -> None:
    done = run_in_a_process("print(len(outcomes(deep_specs())))", limit="ulimit -s 2048 && ")
    assert done.stdout.strip() == str(len(deep_specs()))


def test_sources_that_changed_are_not_hidden(tmp_path: Path) -> None:
    source, folder = tmp_path / "grammar.py", tmp_path / "_native"
    source.write_text("one = 1")
    assert not native_modules.fits(tmp_path, folder)
    folder.mkdir()
    made_of = {"suffix": EXTENSION_SUFFIXES[0], "sources": {"grammar.py": native_modules.hash_of(source)}}
    (folder / native_modules.MADE_OF).write_text(json.dumps({**made_of, "suffix": ".cpython-27-other.so"}))
    assert not native_modules.fits(tmp_path, folder)
    (folder / native_modules.MADE_OF).write_text(json.dumps(made_of))
    assert native_modules.fits(tmp_path, folder)
    source.write_text("one = 2")
    assert not native_modules.fits(tmp_path, folder)
    source.unlink()
    assert not native_modules.fits(tmp_path, folder)


def test_the_environment_turns_compiled_modules_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_NATIVE", "0")
    assert native_modules.native_folders("grammar") == []

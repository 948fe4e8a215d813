"""Compiled automata on disk: found again, and never a reason to fail."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.disk_cache import AutomatonKeys, DiskCache
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.grammar.packed_arrays import PackedDataError, pack, unpack

BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256))), frozenset({0}), 257)
# Takes longer than what is not worth keeping, and is small.
SPEC = GrammarSpec("regex", "[ab]*a[ab]{12}")
ARRAYS = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.array([True]), "c": np.zeros(0, dtype=np.uint8)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "grammars"


@pytest.fixture
def cache(folder: Path) -> DiskCache:
    return DiskCache(folder, max_bytes=40_000)


def test_packed_data_come_back_as_they_were() -> None:
    facts, arrays = unpack(pack({"x": [1, "é"]}, ARRAYS))
    assert facts == {"x": [1, "é"]}
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert [arrays[name].dtype for name in ARRAYS] == [np.int32, np.bool_, np.uint8]


def test_any_damage_is_seen() -> None:
    data = pack({"x": 1}, ARRAYS)
    rng = np.random.default_rng(3)
    damaged = [data[: int(rng.integers(len(data)))] for _ in range(20)]
    for _ in range(100):
        changed = bytearray(data)
        changed[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(changed))
    for each in [*damaged, b"", data + b"x"]:
        with pytest.raises(PackedDataError):
            unpack(each)


def test_a_record_is_found_by_its_key_alone(cache: DiskCache) -> None:
    assert cache.get("k") is None
    cache.put("k", {"x": 1}, ARRAYS)
    record = cache.get("k")
    assert record is not None
    assert record[0] == {"x": 1}
    assert cache.get("other") is None


def test_a_damaged_file_is_removed(cache: DiskCache, folder: Path) -> None:
    cache.put("k", {}, ARRAYS)
    (path,) = list(folder.iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("k") is None
    assert list(folder.iterdir()) == []


def test_the_folder_is_bounded_and_keeps_what_was_used(cache: DiskCache, folder: Path) -> None:
    for number in range(30):
        cache.put(f"k{number}", {}, {"a": np.zeros(4000, dtype=np.uint8)})
        assert cache.get("k0") is not None
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 40_000
    assert cache.get("k1") is None
    assert cache.get("k29") is not None
    # What would take too much of it is not kept at all.
    cache.put("large", {}, {"a": np.zeros(20_000, dtype=np.uint8)})
    assert cache.get("large") is None


def test_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    def write(number: int) -> None:
        cache = DiskCache(tmp_path, max_bytes=10**6)
        for _ in range(30):
            cache.put("k", {"by": number}, ARRAYS)
            record = cache.get("k")
            assert record is None or np.array_equal(record[1]["a"], ARRAYS["a"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["k.grammar"]


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "grammars")
    cache.put("k", {}, ARRAYS)
    assert cache.get("k") is None


def test_a_key_names_all_that_an_automaton_depends_on() -> None:
    config = GrammarConfig()
    usable = np.ones(256, dtype=bool)
    fewer = usable.copy()
    fewer[7] = False
    schema = GrammarSpec("json_schema", "{}")
    keys = {
        AutomatonKeys(config, usable).key(schema),
        AutomatonKeys(config, usable).key(replace(schema, lenient=True)),
        AutomatonKeys(config, usable).key(GrammarSpec("regex", "{}")),
        AutomatonKeys(config, fewer).key(schema),
        AutomatonKeys(replace(config, json_whitespace="compact"), usable).key(schema),
        AutomatonKeys(replace(config, json_key_order="any"), usable).key(schema),
        AutomatonKeys(replace(config, json_additional_properties="open"), usable).key(schema),
    }
    assert len(keys) == 7
    other_limits = replace(config, grammar_compile_timeout=1.0, grammar_cache_size=3)
    assert AutomatonKeys(other_limits, usable).key(schema) in keys


def test_a_new_start_finds_what_an_earlier_one_compiled(folder: Path) -> None:
    grammars = []
    for _ in range(2):
        compiler = GrammarCompiler(BYTES, GrammarConfig(), cache_folder=folder)
        grammars.append(compiler.compile(SPEC))
        compiler.close()
    (path,) = folder.iterdir()
    first, again = (grammar.automaton for grammar in grammars)
    assert np.array_equal(first.table, again.table)
    rows = [np.zeros(9, dtype=np.int32) for _ in grammars]
    for grammar, row in zip(grammars, rows, strict=True):
        grammar.new_state().fill_mask(row)
    assert np.array_equal(*rows)
    path.write_bytes(b"nonsense")
    compiler = GrammarCompiler(BYTES, GrammarConfig(), cache_folder=folder)
    assert np.array_equal(compiler.compile(SPEC).automaton.table, first.table)
    compiler.close()


def test_small_ones_are_not_kept(folder: Path) -> None:
    compiler = GrammarCompiler(BYTES, GrammarConfig(), cache_folder=folder)
    compiler.compile(GrammarSpec("regex", "a|b"))
    compiler.compile(GrammarSpec("regex", "a|b|c"))
    compiler.close()
    assert not folder.exists() or len(list(folder.iterdir())) < 2

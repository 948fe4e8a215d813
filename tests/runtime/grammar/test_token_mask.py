import gc
import json
import random
import threading
from typing import Any, cast

import numpy as np

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.automaton_backend import AutomatonBackend
from sgl_runtime.grammar.backend_tools import BackendTools
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compile_workers import CompileWorkers
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.token_mask import TokenMaskCache, compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder


def automaton_of(regex: str) -> ByteAutomaton:
    return compile_automaton(GrammarSpec("regex", regex), GrammarConfig())


def bits(row: np.ndarray, size: int) -> list[int]:
    return [index for index in range(size) if int(row[index // 32]) >> (index % 32) & 1]


def brute_force(automaton: ByteAutomaton, state: int, vocabulary: GrammarVocabulary) -> list[int]:
    return [
        token_id
        for token_id, data in enumerate(vocabulary.token_bytes)
        if data and token_id not in vocabulary.eos_ids and automaton.run(state, (), data)[0] >= 0
    ]


def test_masks_equal_brute_force(byte_level_vocabulary: GrammarVocabulary) -> None:
    order = VocabularyOrder.of(byte_level_vocabulary)
    for regex in (r"[^\n]*", "日本|日月|語{2}", r'\{"name": "[^"\\]{2,9}"\}', "x", r"(caf[é]|😀)+", r"\d+(-\d+)*"):
        automaton = automaton_of(regex)
        for state in range(min(automaton.num_states, 40)):
            row = compute_mask(automaton, state, (), order)
            assert row.dtype == np.int32
            assert row.shape == (byte_level_vocabulary.num_mask_words,)
            assert bits(row, byte_level_vocabulary.size) == brute_force(automaton, state, byte_level_vocabulary)


def test_tokens_may_cut_through_characters() -> None:
    euro = "€".encode()
    vocabulary = GrammarVocabulary(
        (None, euro[:1], euro[:2], euro[1:], euro[2:], euro, b"a" + euro[:1], b"\xff"), frozenset({0}), 8
    )
    order = VocabularyOrder.of(vocabulary)
    automaton = automaton_of("a?€{2}")
    assert bits(compute_mask(automaton, 0, (), order), 8) == [1, 2, 5, 6]
    assert bits(compute_mask(automaton, *automaton.run(0, (), euro[:1]), order), 8) == [3]
    assert bits(compute_mask(automaton, *automaton.run(0, (), euro[:2]), order), 8) == [4]


def test_usable_bytes() -> None:
    whole = GrammarVocabulary((None, b"a", b"b", b"ab"), frozenset({0}), 4)
    assert np.flatnonzero(VocabularyOrder.of(whole).usable_bytes).tolist() == [97, 98]
    words = GrammarVocabulary((b"</s>", b"yes", b"no", b"n"), frozenset({0}), 4)
    assert bytes(np.flatnonzero(VocabularyOrder.of(words).usable_bytes).astype(np.uint8).tolist()) == b"enosy"
    assert not VocabularyOrder.of(GrammarVocabulary((None,), frozenset({0}), 1)).levels


def test_ids_past_the_number_of_logits_are_left_out() -> None:
    vocabulary = GrammarVocabulary((b"a", b"b", b"a"), frozenset(), 2)
    assert bits(compute_mask(automaton_of("a"), 0, (), VocabularyOrder.of(vocabulary)), 32) == [0]


def test_cache_forgets_the_rows_not_used_for_longest(byte_level_vocabulary: GrammarVocabulary) -> None:
    automaton = automaton_of("abcdef")
    # Three fourths are for masks of automata, the rest for parts that they share.
    cache = TokenMaskCache(
        VocabularyOrder.of(byte_level_vocabulary), max_bytes=4 * 4 * byte_level_vocabulary.num_mask_words
    )
    rows = [cache.row(automaton, 0, state, ()) for state in range(3)]
    assert cache.row(automaton, 0, 0, ()) is rows[0]
    cache.row(automaton, 1, 0, ())
    assert cache.row(automaton, 0, 0, ()) is rows[0]
    assert cache.row(automaton, 0, 2, ()) is rows[2]
    again = cache.row(automaton, 0, 1, ())
    assert again is not rows[1]
    assert np.array_equal(again, rows[1])


def test_masks_of_many_automata_stay_within_the_limit_and_go_with_the_last_user(
    byte_level_vocabulary: GrammarVocabulary,
) -> None:
    order = VocabularyOrder.of(byte_level_vocabulary)
    tokens = byte_level_vocabulary.token_bytes
    limit = 250_000
    cache = TokenMaskCache(order, max_bytes=limit)
    rng = random.Random(3)
    peak = 0
    for number in range(16):
        schema = {"type": "object", "properties": {f"k{number}": {"type": "string"}, "list": {"type": "array"}}}
        automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())
        state, stack = 0, ()
        for _ in range(25):
            row = cache.row(automaton, number, state, stack)
            np.testing.assert_array_equal(row, compute_mask(automaton, state, stack, order))
            peak = max(peak, cache.num_bytes)
            allowed = bits(row, byte_level_vocabulary.size)
            if not allowed:
                break
            state, stack = automaton.run(state, stack, tokens[rng.choice(allowed)] or b"")
    assert limit // 2 < peak <= limit
    for number in range(16):
        cache.release(number)
    last = compile_automaton(GrammarSpec("regex", "x{30}"), GrammarConfig())
    left = []
    for state in range(30):
        cache.row(last, 16, state, ())
        left.append(cache.num_bytes)
    # The others go one after another; what is left is of the last automaton, and of parts that may come to be shared.
    assert left[0] > left[1] > left[-1]
    assert left[-1] <= limit // 4 + 30 * 4 * byte_level_vocabulary.num_mask_words


def test_a_grammar_that_nobody_holds_takes_its_masks_along(byte_level_vocabulary: GrammarVocabulary) -> None:
    order = VocabularyOrder.of(byte_level_vocabulary)
    # Small constraints are compiled at once: no worker is asked.
    tools = BackendTools(workers=cast(CompileWorkers, None), disk_cache=None, order=order, stop=threading.Event())
    backend = AutomatonBackend(byte_level_vocabulary, GrammarConfig(), tools)
    row = np.zeros(byte_level_vocabulary.num_mask_words, dtype=np.int32)
    sizes = []
    for number in range(4):
        made = backend.compile_at_once(GrammarSpec("regex", f"[a-z]{{{number + 1}}}-{number}"))
        assert made is not None
        made.grammar.new_state().fill_mask(row)
        del made
        gc.collect()
        sizes.append(backend.masks.num_bytes)
    assert max(sizes) == min(sizes) > 0


def test_looking_at_whole_levels_finds_what_looking_at_single_prefixes_does(
    byte_level_vocabulary: GrammarVocabulary,
) -> None:
    order = VocabularyOrder.of(byte_level_vocabulary)
    tokens = byte_level_vocabulary.token_bytes
    rng = random.Random(5)
    schemas: list[Any] = [
        {},
        {"type": "array", "items": {"type": "string", "maxLength": 30}},
        {"properties": {"ab": {"type": "string"}}, "patternProperties": {"^x": {"type": "null"}}},
    ]
    for schema in schemas:
        config = GrammarConfig(json_additional_properties="open")
        automaton = compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), config)
        state, stack = 0, ()
        for _ in range(60):
            row = compute_mask(automaton, state, stack, order)
            # A limit that is far away makes the walk look at single prefixes.
            np.testing.assert_array_equal(row, compute_mask(automaton, state, stack, order, max_depth=10_000))
            allowed = bits(row, byte_level_vocabulary.size)
            if not allowed:
                break
            state, stack = automaton.run(state, stack, tokens[rng.choice(allowed)] or b"")

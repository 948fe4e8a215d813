"""The mask kernels beside the host's automata; on a CPU they run in Triton's interpreter."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from sgl_runtime.config import GrammarConfig
from sgl_runtime.device.mask_tables import ArenaSizes, AutomatonArrays, BatchMasks, MaskTables
from sgl_runtime.device.mask_vocabulary import DeviceVocabulary
from sgl_runtime.device.segments import Segments
from sgl_runtime.grammar.automaton import ByteAutomaton, Stack
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.token_mask import compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PIECES = [
    '{"name": "', '"}', '"}]', '", "', "[[", "[[[[", "[]", "}}", '": ', "null}", "]]", '"age": 1', "12", "-0.", "true, ",
    "é", "\\n", "a", "ab", "\\u00",
]  # fmt: skip
TOKENS: list[bytes | None] = [None, *(bytes([byte]) for byte in range(256)), *(each.encode() for each in PIECES), None]
END = len(TOKENS) - 1
SCHEMAS: list[Any] = [
    {},
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name"],
    },
    {"type": "object", "additionalProperties": {"type": "integer"}},
]
MAX_DEPTH = 32
SIZES = ArenaSizes(entries=1 << 17, edges=1 << 12, returns=1 << 12, automata=8, slots=1024, list_entries=1 << 18)


def arrays_of(automaton: ByteAutomaton) -> AutomatonArrays:
    return AutomatonArrays(
        automaton.byte_classes,
        automaton.table,
        automaton.accepting,
        automaton.edge_target,
        automaton.edge_argument,
        automaton.returns,
        automaton.needed_depth,
        automaton.needed_behind,
    )


def allowed_on_host(automaton: ByteAutomaton, state: int, stack: Stack) -> list[int]:
    allowed = [index for index, data in enumerate(TOKENS) if data and automaton.run(state, stack, data)[0] >= 0]
    return allowed + ([END] if automaton.accepting[state] and not stack else [])


def tokens_of(row: Any) -> list[int]:
    return [int(index) for index in np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))]


@pytest.fixture(scope="module")
def automata() -> list[ByteAutomaton]:
    compiled = [compile_automaton(GrammarSpec("json_schema", json.dumps(each)), GrammarConfig()) for each in SCHEMAS]
    return [*compiled, compile_automaton(GrammarSpec("regex", "(ab|a[0-9]{2})*é"), GrammarConfig())]


@pytest.mark.parametrize("precompute", [False, True])
def test_masks_and_moves_are_those_of_the_host(automata: list[ByteAutomaton], precompute: bool) -> None:
    rng = random.Random(precompute)
    vocabulary = DeviceVocabulary(TOKENS, end_ids=frozenset([END]), size=len(TOKENS), device=DEVICE)
    tables = MaskTables(vocabulary, DEVICE, SIZES)
    on_device = [
        tables.add(arrays_of(each), precompute=np.arange(min(each.num_states, 4)) if precompute else None)
        for each in automata
    ]
    batch = BatchMasks(tables, max_rows=len(automata) + 1, max_depth=MAX_DEPTH, device=DEVICE)
    for row, each in enumerate(on_device):
        batch.start(row, each)
    places: list[tuple[int, Stack]] = [(0, ())] * len(automata)
    for _ in range(3):
        masks = batch.make(len(automata) + 1).cpu().numpy()
        assert (masks[-1] == -1).all()
        chosen = []
        for row, automaton in enumerate(automata):
            allowed = allowed_on_host(automaton, *places[row])
            assert tokens_of(masks[row]) == allowed
            going_on = [token for token in allowed if token != END]
            token = rng.choice(going_on) if going_on else -1
            chosen.append(token)
            data = TOKENS[token] if token >= 0 else None
            places[row] = automaton.run(*places[row], data) if data else places[row]
        batch.advance(torch.tensor([*chosen, 5], dtype=torch.int32, device=DEVICE))


def test_a_token_that_would_go_too_deep_is_left_out(automata: list[ByteAutomaton]) -> None:
    vocabulary = DeviceVocabulary(TOKENS, end_ids=frozenset([END]), size=len(TOKENS), device=DEVICE)
    tables = MaskTables(vocabulary, DEVICE, SIZES)
    batch = BatchMasks(tables, max_rows=1, max_depth=2, device=DEVICE)
    batch.start(0, tables.add(arrays_of(automata[0])))
    allowed = tokens_of(batch.make(1).cpu().numpy()[0])
    assert TOKENS.index(b"[[") in allowed
    assert TOKENS.index(b"[[[[") not in allowed
    assert TOKENS.index(b"[]") in allowed


def test_a_token_that_leaves_its_stack_touches_no_other_row(automata: list[ByteAutomaton]) -> None:
    vocabulary = DeviceVocabulary(TOKENS, end_ids=frozenset([END]), size=len(TOKENS), device=DEVICE)
    tables = MaskTables(vocabulary, DEVICE, SIZES)
    batch = BatchMasks(tables, max_rows=3, max_depth=2, device=DEVICE)
    value = tables.add(arrays_of(automata[0]))
    for row in range(3):
        batch.start(row, value)

    def advance(*tokens: bytes | None) -> None:
        ids = [-1 if each is None else TOKENS.index(each) for each in tokens]
        batch.advance(torch.tensor(ids, dtype=torch.int32, device=DEVICE))

    for byte in b'{"a": {':
        advance(None, bytes([byte]), None)
    # Neither is allowed: the first goes two levels too deep, the last leaves what it never entered.
    advance(b"[[[[", None, b"]]")
    advance(None, b"}", None)
    allowed = [TOKENS[index] for index in tokens_of(batch.make(3).cpu().numpy()[1])]
    assert b"}" in allowed
    assert b"]" not in allowed


@pytest.mark.parametrize("precompute", [False, True])
def test_near_the_limit_on_levels_masks_are_those_of_the_host(precompute: bool) -> None:
    schemas = [
        {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        {
            "properties": {"a": {"type": ["string", "integer"]}, "b": {"$ref": "#/$defs/deep"}},
            "anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a", "b"]}, {"required": ["a"]}],
            "$defs": {"deep": {"type": "array", "items": {"type": "array", "items": {}, "minItems": 1}, "minItems": 1}},
        },
        {"properties": {"name": {}}, "required": ["name"]},
    ]
    compiled = [compile_automaton(GrammarSpec("json_schema", json.dumps(each)), GrammarConfig()) for each in schemas]
    vocabulary = DeviceVocabulary(TOKENS, end_ids=frozenset([END]), size=len(TOKENS), device=DEVICE)
    order = VocabularyOrder.of(GrammarVocabulary(tuple(TOKENS), frozenset([END]), len(TOKENS)))
    tables = MaskTables(vocabulary, DEVICE, SIZES)
    on_device = [
        tables.add(arrays_of(each), precompute=np.arange(min(each.num_states, 4)) if precompute else None)
        for each in compiled
    ]
    limit = 4
    batch = BatchMasks(tables, max_rows=len(compiled), max_depth=limit, device=DEVICE)
    for row, each in enumerate(on_device):
        batch.start(row, each)
    rng = random.Random(precompute)
    places: list[tuple[int, Stack]] = [(0, ())] * len(compiled)
    for _ in range(4):
        masks = batch.make(len(compiled)).cpu().numpy()
        chosen = []
        for row, automaton in enumerate(compiled):
            state, stack = places[row]
            expected = tokens_of(compute_mask(automaton, state, stack, order, max_depth=limit))
            assert [token for token in tokens_of(masks[row]) if token != END] == expected
            assert expected or automaton.accepting[state]
            opening = [token for token in expected if any(byte in b'["{' for byte in TOKENS[token] or b"")]
            chosen.append(rng.choice(opening or expected) if expected else -1)
            data = TOKENS[chosen[-1]] if expected else None
            places[row] = automaton.run(state, stack, data) if data else places[row]
        batch.advance(torch.tensor(chosen, dtype=torch.int32, device=DEVICE))


def test_what_nobody_holds_makes_room(automata: list[ByteAutomaton]) -> None:
    vocabulary = DeviceVocabulary(TOKENS, end_ids=frozenset([END]), size=len(TOKENS), device=DEVICE)
    tables = MaskTables(vocabulary, DEVICE, replace(SIZES, automata=2))
    first, second = (tables.add(arrays_of(automata[index]), precompute=np.arange(4)) for index in (0, 3))
    with pytest.raises(MemoryError, match="no room for 256 classes of an automaton: 0 of 512 are free"):
        tables.add(arrays_of(automata[1]))
    tables.let_go(first)
    assert tables.is_resident(first)
    third = tables.add(arrays_of(automata[1]), precompute=np.arange(12))
    assert not tables.is_resident(first)
    assert tables.num_resident == 2
    # Both lie there whole: in the place of the first, and beside it.
    batch = BatchMasks(tables, max_rows=2, max_depth=MAX_DEPTH, device=DEVICE)
    for row, (resident, automaton) in enumerate(((second, automata[3]), (third, automata[1]))):
        batch.start(row, resident)
        assert tokens_of(batch.make(2).cpu().numpy()[row]) == allowed_on_host(automaton, 0, ())
    tables.hold(third)
    tables.let_go(third)
    with pytest.raises(MemoryError):
        tables.add(arrays_of(automata[2]))


def test_segments_are_lost_nowhere() -> None:
    rng = random.Random(3)
    room = Segments(200)
    taken: list[tuple[int, int]] = []
    for _ in range(3000):
        count = rng.randrange(0, 40)
        start = room.take(count) if rng.random() < 0.55 else None
        if start is not None:
            assert all(start + count <= other or other + length <= start for other, length in taken if count and length)
            taken.append((start, count))
        elif taken:
            room.give_back(*taken.pop(rng.randrange(len(taken))))
        assert room.num_free == 200 - sum(length for _, length in taken)
    for run in taken:
        room.give_back(*run)
    assert room.take(200) == 0

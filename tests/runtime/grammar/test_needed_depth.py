import json
from typing import Any

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton import FIRST_SPECIAL, ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.token_mask import compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]}
DEEP = {
    "properties": {"a": {"type": ["string", "integer"]}, "b": {"items": {"items": {}, "minItems": 1}, "minItems": 1}},
    "anyOf": [{"properties": {"a": {"type": "string"}, "b": {"type": "array"}}, "required": ["a", "b"]}, {"maxProperties": 1}],
    "type": "object",
}  # fmt: skip
SCHEMAS: list[Any] = [{}, TREE, DEEP, {"type": "string", "minLength": 3}, {"items": {"minItems": 1}, "minItems": 2}]


def compiled(schema: Any) -> ByteAutomaton:
    return compile_automaton(GrammarSpec("json_schema", json.dumps(schema)), GrammarConfig())


def by_repetition(automaton: ByteAutomaton) -> list[int]:
    """The same, state by state until nothing changes."""
    table, unknown = automaton.table.tolist(), automaton.num_states
    needed = [0 if accepts else unknown for accepts in automaton.accepting.tolist()]
    starts = sorted({int(place) for place in automaton.edge_argument[automaton.edge_target >= 0]})
    ends = dict(zip(starts, [*starts[1:], len(automaton.returns)], strict=True))
    while True:
        before = list(needed)
        for state, row in enumerate(table):
            for entry in {entry for entry in row if entry != -1}:
                if entry >= 0:
                    found = needed[entry]
                else:
                    edge = FIRST_SPECIAL - entry
                    callee, place = int(automaton.edge_target[edge]), int(automaton.edge_argument[edge])
                    if callee < 0:
                        found = 0
                    else:
                        behind = [needed[each] for each in automaton.returns[place : ends[place]].tolist() if each >= 0]
                        found = max(needed[callee] + 1, min(behind))
                needed[state] = min(needed[state], found)
        if needed == before:
            return needed


@pytest.mark.parametrize("schema", SCHEMAS)
def test_needed_depth_is_what_repetition_finds(schema: Any) -> None:
    automaton = compiled(schema)
    assert automaton.needed_depth.tolist() == by_repetition(automaton)


@pytest.mark.parametrize("limit", [2, 3, 4])
@pytest.mark.parametrize("schema", [{}, TREE, DEEP])
def test_near_the_limit_no_place_is_without_a_way_on(schema: Any, limit: int) -> None:
    automaton = compiled(schema)
    if automaton.needed_depth[0] > limit:
        return
    tokens = [
        *(bytes([byte]) for byte in range(32, 127)),
        b'": ',
        b'{"',
        b'["',
        b"[[",
        b'", "',
        b"]]",
        b'{"a": "',
        b'{"kids": [',
    ]
    order = VocabularyOrder.of(GrammarVocabulary(tuple(tokens), frozenset(), len(tokens)))
    pending: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    seen = set(pending)
    while pending and len(seen) < 1500:
        state, stack = pending.pop()
        row = compute_mask(automaton, state, stack, order, max_depth=limit)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert len(allowed) or automaton.accepting[state]
        for token in allowed.tolist():
            place = automaton.run(state, stack, tokens[token])
            assert len(place[1]) <= limit
            if place not in seen:
                seen.add(place)
                pending.append(place)

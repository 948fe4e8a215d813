"""The short ways of plain arrays and objects make the automata that the formulas make, state by state."""

import json

import numpy as np
import pytest

from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.json_schema.callees import Callee
from sgl_runtime.grammar.json_schema.formula import Formulas
from sgl_runtime.grammar.json_schema.layout import Layout
from sgl_runtime.grammar.json_schema.object_rules import ObjectRules
from sgl_runtime.grammar.json_schema.questions import Question
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.value_graph import ValueGraph

_NAMED = {"a": {"type": "integer"}, "ab": {"type": "string"}, "b": {"type": "boolean"}}

ARRAYS = [
    {"type": "array"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "minItems": 3},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 5},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 0},
    {"type": "array", "items": False},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": {"type": "boolean"}},
    {"type": "array", "prefixItems": [{"type": "null"}, False], "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": False, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "string"}, "minItems": 4},
    {"allOf": [{"type": "array", "items": {"minimum": 3}, "minItems": 1}, {"items": {"maximum": 7}, "maxItems": 2}]},
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4},
    {"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True},
    {"type": "array", "items": {"type": "object", "properties": _NAMED, "required": ["b"]}, "minItems": 1},
]
OBJECTS = [
    {"type": "object", "properties": _NAMED},
    {"type": "object", "properties": _NAMED, "required": ["ab", "new"]},
    {"type": "object", "properties": _NAMED, "anyOf": [{"required": ["a"]}, {"required": ["ab", "b"]}]},
    {"type": "object", "properties": _NAMED, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "properties": _NAMED, "not": {"required": ["a", "b"]}, "minProperties": 1},
    {"type": "object", "properties": _NAMED, "dependentRequired": {"a": ["b"]}, "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2, "maxProperties": 3},
    {"type": "object", "properties": _NAMED, "patternProperties": {"^x": {"type": "null"}}, "minProperties": 2},
    {"type": "object", "properties": {"a": False, "b": {}}, "required": ["b"], "additionalProperties": False},
    {"allOf": [{"properties": {"b": {"minimum": 1}, "a": {}}}, {"properties": _NAMED, "required": ["ab"]}]},
]


SCALARS = Scalars(np.ones(256, dtype=bool))


def graph_of(schema: dict, reading: str, *, short_ways: bool = True) -> tuple[ValueGraph, Question]:
    budget = Budget(max_states=10_000, timeout_s=60.0)
    reader = SchemaReader(schema, Formulas(), budget, is_open=reading == "open")
    graph = ValueGraph(reader, SCALARS, budget, any_order=False, short_ways=short_ways)
    return graph, graph.questions.satisfies(reader.read_root())


def automaton_of(schema: dict, reading: str, *, short_ways: bool = True) -> ByteAutomaton:
    graph, question = graph_of(schema, reading, short_ways=short_ways)
    assert graph.explore(question)
    budget = Budget(max_states=10_000, timeout_s=60.0)
    builder = AutomatonBuilder(budget)
    end = builder.new_state()
    builder.accept(end)
    layout = Layout(builder, graph, SCALARS, budget, whitespace="single_space")
    builder.merge(0, layout.value(question, (end,)))
    layout.finish()
    return builder.build()


@pytest.mark.parametrize("reading", ["open", "closed"])
@pytest.mark.parametrize("schema", [*ARRAYS, *OBJECTS], ids=json.dumps)
def test_short_ways_make_what_formulas_make(schema: dict, reading: str):
    short, full = automaton_of(schema, reading), automaton_of(schema, reading, short_ways=False)
    assert np.array_equal(short.table[:, short.byte_classes], full.table[:, full.byte_classes])
    assert np.array_equal(short.accepting, full.accepting)
    assert np.array_equal(short.edge_target, full.edge_target)
    assert np.array_equal(short.edge_argument, full.edge_argument)
    assert np.array_equal(short.returns, full.returns)
    assert short.distinct == full.distinct


def is_plain(schema: dict) -> bool:
    graph, question = graph_of(schema, "open")
    callees = [graph.callees[number] for number in graph.answers(question).callees]
    # Without a formula anything goes, with which the short ways have nothing to do.
    return all(is_plain_callee(graph, callee) for callee in callees if callee.states[0].formulas)


def is_plain_callee(graph: ValueGraph, callee: Callee) -> bool:
    formulas = callee.states[0].formulas
    if isinstance(callee.rules, ObjectRules):
        return callee.rules.plain_needs(formulas) is not None
    return graph.array_rules.plain(formulas[0]) is not None


def test_which_arrays_and_objects_are_plain():
    assert all(is_plain(schema) for schema in OBJECTS)
    assert not is_plain({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}, {"required": ["b"]}]})
    assert not is_plain({"type": "object", "propertyNames": {"maxLength": 3}})
    assert is_plain({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4})
    # These remember which values have come, or what they still lack.
    assert not is_plain({"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True})
    assert not is_plain({"type": "array", "contains": {"type": "null"}})


@pytest.mark.parametrize(
    "names",
    [
        ["a", "ab", "abc", "b"],
        ["abc", "ab", "a"],
        ["a b", "a", "a!", 'a"'],
        ["\u00e9", "\u00e9t\u00e9", "e"],
        ["x\\y", "x", "x\n"],
        [""],
        ["", "a"],
    ],
)
def test_names_beside_free_keys_have_their_own_schemas(names: list[str]):
    schema = {
        "type": "object",
        "properties": {name: {"const": index} for index, name in enumerate(names)},
        "additionalProperties": {"const": "other"},
    }
    automaton = automaton_of(schema, "open")
    for index, name in enumerate(names):
        key = json.dumps(name, ensure_ascii=False)
        assert automaton.accepts(f"{{{key}: {index}}}".encode())
        assert not automaton.accepts(f"{{{key}: {index + 1}}}".encode())
        assert not automaton.accepts(f'{{{key}: "other"}}'.encode())
    others = {name[:-1] for name in names} | {name + "z" for name in names}
    for name in others - set(names):
        key = json.dumps(name, ensure_ascii=False)
        assert automaton.accepts(f'{{{key}: "other"}}'.encode())
        assert not automaton.accepts(f"{{{key}: 0}}".encode())

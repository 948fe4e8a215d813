"""A compiled automaton as arrays and facts, for the disk cache and for the way from a worker process."""

import hashlib
from dataclasses import astuple
from typing import Any

from sgl_runtime.grammar.automaton import ByteAutomaton, CountingStates, SharedPart, TwinStates
from sgl_runtime.grammar.base import RelaxedKeyword
from sgl_runtime.grammar.compiler import MadeAutomaton
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.packed_arrays import Arrays

Record = tuple[dict[str, Any], Arrays]
"""Facts, which JSON can express, and arrays."""


def to_record(made: MadeAutomaton) -> Record:
    """The record of an automaton.

    Shared parts that are fragments are named by their content; others lose their name, and only the sharing of masks.
    """
    automaton = made.automaton
    arrays: Arrays = {
        "byte_classes": automaton.byte_classes,
        "table": automaton.table,
        "accepting": automaton.accepting,
        "edge_target": automaton.edge_target,
        "edge_argument": automaton.edge_argument,
        "returns": automaton.returns,
    }
    parts = [
        [_digest(part.key), part.first_state, part.num_states]
        for part in automaton.parts
        if isinstance(part.key, ByteFragment)
    ]
    facts = {
        "parts": parts,
        "counting": [astuple(each) for each in automaton.counting],
        "twins": [[each.first_state, list(each.originals)] for each in automaton.twins],
        "distinct": sorted(automaton.distinct),
        "relaxed": [[each.path, each.reason] for each in made.relaxed],
    }
    return facts, arrays


def from_record(record: Record) -> MadeAutomaton:
    """The automaton that a record is of."""
    facts, arrays = record
    parts = tuple(SharedPart(key, first, count) for key, first, count in facts["parts"])
    relaxed = tuple(RelaxedKeyword(path, reason) for path, reason in facts["relaxed"])
    automaton = ByteAutomaton(
        byte_classes=arrays["byte_classes"],
        table=arrays["table"],
        accepting=arrays["accepting"],
        edge_target=arrays["edge_target"],
        edge_argument=arrays["edge_argument"],
        returns=arrays["returns"],
        parts=parts,
        counting=tuple(CountingStates(*each) for each in facts["counting"]),
        twins=tuple(TwinStates(first, originals) for first, originals in facts["twins"]),
        distinct=frozenset(facts["distinct"]),
    )
    return MadeAutomaton(automaton, relaxed)


def _digest(fragment: ByteFragment) -> str:
    digest = hashlib.sha256(fragment.class_table.tobytes())
    digest.update(fragment.byte_classes.tobytes())
    digest.update(fragment.labels.tobytes())
    return digest.hexdigest()

"""A compiled automaton as arrays and facts, for the disk cache and for the way from a worker process."""

import hashlib
from typing import Any

from sgl_runtime.grammar.automaton import ByteAutomaton, SharedPart
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
    return {"parts": parts, "relaxed": [[each.path, each.reason] for each in made.relaxed]}, arrays


def from_record(record: Record) -> MadeAutomaton:
    """The automaton that a record is of."""
    facts, arrays = record
    parts = tuple(SharedPart(key, first, count) for key, first, count in facts["parts"])
    relaxed = tuple(RelaxedKeyword(path, reason) for path, reason in facts["relaxed"])
    return MadeAutomaton(ByteAutomaton(**arrays, parts=parts), relaxed)


def _digest(fragment: ByteFragment) -> str:
    digest = hashlib.sha256(fragment.table.tobytes())
    digest.update(fragment.labels.tobytes())
    return digest.hexdigest()

"""Builds an index of outlines-core, in a worker process, and turns it into arrays.

An index cannot be stopped while it is built, which may take minutes; hence the process.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from outlines_core import Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton_record import Record
from sgl_runtime.grammar.base import GrammarSpec, one_line
from sgl_runtime.grammar.choices import parse_choices
from sgl_runtime.grammar.json_schema.front_end import parse_schema
from sgl_runtime.grammar.json_schema.keywords import ENFORCED
from sgl_runtime.grammar.json_schema.relaxing import places_of
from sgl_runtime.grammar.neutral_regex import neutral_regex, neutral_text
from sgl_runtime.grammar.packed_arrays import Arrays
from sgl_runtime.grammar.regex import whole_tree
from sgl_runtime.grammar.worker_setup import Task, WorkerSetup

# Other keywords are passed over in silence there; `oneOf` is read as `anyOf`, `allOf` as one after the other.
_READ = frozenset({
    "type", "enum", "const", "anyOf", "$ref", "properties", "required", "additionalProperties",
    "items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
})  # fmt: skip


def index_task(setup: WorkerSetup) -> Task:
    """Compiles regexes, choices and JSON Schemas to the transitions between token boundaries."""
    eos_ids = frozenset(setup.arrays["eos_ids"].tolist())
    # The index knows one token that ends an output: one of its own, behind all others.
    end_id = len(setup.arrays["token_lengths"])
    vocabulary = _vocabulary(setup.arrays, eos_ids, end_id)

    def run(spec: GrammarSpec) -> Record:
        regex, relaxed = _regex(spec, setup.config)
        try:
            index = Index(regex, vocabulary)
        # What a build raises is up to the Rust library behind it.
        except Exception as error:
            raise GrammarError(one_line(f"{spec.kind}: outlines-core: {error}")) from None
        return {"relaxed": relaxed}, _arrays(index, end_id)

    return run


def _regex(spec: GrammarSpec, config: GrammarConfig) -> tuple[str, list[str]]:
    """The regex of a spec, and the places of keywords that it does not enforce."""
    if spec.kind == "choices":
        return "|".join(map(neutral_text, parse_choices(spec.text))), []
    if spec.kind == "regex":
        return neutral_regex(whole_tree(spec.text)), []
    if spec.kind != "json_schema":
        raise GrammarError(f"outlines cannot enforce {spec.kind}; the grammar backend auto can")
    passed_over = places_of(parse_schema(spec.text), sorted(ENFORCED - _READ))
    if passed_over and not spec.lenient:
        raise GrammarError(one_line(f"json_schema: {passed_over[0]} is a keyword that outlines does not enforce"))
    space = "" if config.json_whitespace == "compact" else None
    try:
        return build_regex_from_schema(spec.text, space), passed_over
    except Exception as error:
        raise GrammarError(one_line(f"json_schema: outlines-core: {error}".partition("\n")[0])) from None


def _vocabulary(arrays: Arrays, eos_ids: frozenset[int], end_id: int) -> Vocabulary:
    ids: dict[bytes, list[int]] = defaultdict(list)
    joined, start = arrays["token_bytes"].tobytes(), 0
    for token_id, length in enumerate(arrays["token_lengths"].tolist()):
        data = joined[start : start + max(length, 0)]
        start += max(length, 0)
        if data and token_id not in eos_ids and token_id < int(arrays["vocabulary_size"][0]):
            ids[data].append(token_id)
    return Vocabulary(end_id, dict(ids))


def _arrays(index: Any, end_id: int) -> Arrays:
    """Tokens and next states of each state, state by state; state 0 is the start."""
    transitions: dict[int, dict[int, int]] = index.get_transitions()
    finals: set[int] = index.get_final_states()
    start: int = index.get_initial_state()
    others = (transitions.keys() | finals | {target for row in transitions.values() for target in row.values()}) - {
        start
    }
    numbers = {state: number for number, state in enumerate([start, *sorted(others)])}
    tokens: list[int] = []
    targets: list[int] = []
    ends = []
    for state in numbers:
        row = sorted((token, target) for token, target in transitions.get(state, {}).items() if token != end_id)
        tokens += [token for token, _ in row]
        targets += [numbers[target] for _, target in row]
        ends.append(len(tokens))
    return {
        "ends": np.array(ends, dtype=np.int64),
        "tokens": np.array(tokens, dtype=np.int32),
        "targets": np.array(targets, dtype=np.int32),
        "is_final": np.array([state in finals for state in numbers], dtype=bool),
    }

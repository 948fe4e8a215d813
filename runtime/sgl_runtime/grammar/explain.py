"""What becomes of a constraint: the report behind `sgl grammar explain`."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary, RelaxedKeyword
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compiler import AutomatonCompiler
from sgl_runtime.grammar.json_schema.front_end import parse_schema
from sgl_runtime.grammar.json_schema.keywords import ANNOTATIONS, ENFORCED, REFUSED, likely_meant
from sgl_runtime.grammar.json_schema.relaxing import schema_places
from sgl_runtime.grammar.neutral_regex import neutral_regex
from sgl_runtime.grammar.regex import whole_tree
from sgl_runtime.grammar.token_mask import TokenMaskCache
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder
from sgl_runtime.native_modules import native_folders
from sgl_runtime.sampling_params import GrammarKind

_MAX_MASKED_STATES = 2000
_MASK_CACHE_BYTES = 2**30


@dataclass(frozen=True)
class MaskFigures:
    """Masks of the states of an automaton over a vocabulary.

    Attributes:
        num_tokens: V.
        num_states: How many states were visited, at most 2,000.
        num_distinct: How many different masks they have, as far as these do not depend on the stack.
        median_us, longest_us: Microseconds of a first visit.
    """

    num_tokens: int
    num_states: int
    num_distinct: int
    median_us: float
    longest_us: float


@dataclass(frozen=True)
class UnknownWord:
    """A word of a schema that is no keyword: an annotation.

    Attributes:
        path: Its JSON pointer.
        meant: The keyword that it resembles, None if it resembles none.
    """

    path: str
    meant: str | None


@dataclass
class Explanation:
    """What becomes of a constraint.

    Attributes:
        kind: Which front end read it.
        tier: What enforces it under the grammar backend `auto`; None where nothing does.
        note: Why it is no automaton, where something else enforces it.
        problems: Why it is refused, with places.
        relaxed: Keywords among these that a lenient reading leaves out.
        compile_ms: Milliseconds, with nothing remembered from before.
        automaton: What it became; None where there is none.
        annotations: Words of the schema without effect that drafts define.
        unknown: Words of the schema that no draft defines.
        masks: Over a vocabulary, where one was given.
    """

    kind: GrammarKind
    tier: str | None = None
    note: str | None = None
    problems: list[str] = field(default_factory=list)
    relaxed: list[RelaxedKeyword] = field(default_factory=list)
    compile_ms: float = 0.0
    automaton: ByteAutomaton | None = None
    annotations: list[str] = field(default_factory=list)
    unknown: list[UnknownWord] = field(default_factory=list)
    masks: MaskFigures | None = None


def explain(spec: GrammarSpec, config: GrammarConfig, vocabulary: GrammarVocabulary | None = None) -> Explanation:
    """Compile a constraint, and tell what came of it.

    Args:
        spec: The constraint.
        config: Limits and policies.
        vocabulary: To measure masks with.
    """
    found = Explanation(spec.kind)
    if spec.kind == "ebnf":
        explain_parser(found, spec, config)
        return found
    order = None if vocabulary is None else VocabularyOrder.of(vocabulary)
    compiler = AutomatonCompiler(config, None if order is None else order.usable_bytes)
    begin = time.perf_counter()
    try:
        # A lenient reading goes on behind the first keyword that cannot be enforced.
        made = compiler.make(replace(spec, lenient=spec.kind == "json_schema"), compiler.budget())
        found.relaxed = list(made.relaxed)
        found.problems += [_problem(each) for each in made.relaxed]
        found.automaton = made.automaton
        found.tier = "fsm" if not made.relaxed else None
    except BudgetError as error:
        found.tier = "llguidance" if spec.kind == "choices" or _is_neutral(spec) else None
        if found.tier:
            found.note = error.message
        else:
            found.problems.append(error.message)
    except GrammarError as error:
        found.problems.append(error.message)
    found.compile_ms = (time.perf_counter() - begin) * 1000
    if spec.kind == "json_schema":
        _explain_words(found, spec.text)
    if order is not None and found.automaton is not None:
        found.masks = _measure(found.automaton, order)
    return found


def kind_of(text: str) -> GrammarKind:
    """What a text looks like: JSON is a schema, a structural tag or a list of choices; rules are a grammar."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        is_schema = text.lstrip().startswith("{") and ":" in text
        is_grammar = "::=" in text or any(line.split(":")[0].strip() == "start" for line in text.splitlines())
        return "ebnf" if is_grammar else "json_schema" if is_schema else "regex"
    if isinstance(value, dict) and "structures" in value and "triggers" in value:
        return "structural_tag"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "choices"
    return "json_schema" if isinstance(value, dict | bool) else "regex"


def forced_share(automaton: ByteAutomaton) -> float:
    """The share of states that leave no choice: one byte can come, and the output may not end."""
    sizes = np.bincount(automaton.byte_classes, minlength=automaton.table.shape[1])
    num_ways = (automaton.table != -1) @ sizes
    return float(np.mean((num_ways == 1) & ~automaton.accepting))


def lines_of(found: Explanation) -> list[str]:
    """The report, line by line."""
    tiers = {"fsm": "fsm: an automaton, masks on the device", "llguidance": "llguidance: a parser on the host"}
    if found.automaton is not None and found.automaton.distinct:
        tiers["fsm"] = "fsm: an automaton, masks on the host, which compares the items that must differ"
    rows = [("kind", found.kind), ("tier", tiers[found.tier] if found.tier else "none: it is refused")]
    rows += [("note", found.note)] if found.note else []
    is_slower = found.kind == "json_schema" and not native_folders("grammar")
    rows.append(("compiled in", f"{found.compile_ms:.1f} ms{' (in Python)' if is_slower else ''}"))
    if found.automaton is not None:
        rows += _automaton_rows(found.automaton)
    if found.masks is not None:
        rows.append(("masks", _masks_text(found.masks)))
    if found.annotations:
        rows.append(("annotations", f"{', '.join(found.annotations)} (without effect)"))
    for word in found.unknown:
        hint = f"; did you mean {word.meant}?" if word.meant else ""
        rows.append(("unknown word", f"{word.path} (without effect{hint})"))
    rows += [("problem", problem) for problem in found.problems]
    return [f"{name:<14}{value}" for name, value in rows]


def _masks_text(masks: MaskFigures) -> str:
    return (
        f"{masks.num_distinct:,} different ones in {masks.num_states:,} states over {masks.num_tokens:,} tokens;"
        f" first visits take {masks.median_us:.0f} us at the median, {masks.longest_us:.0f} us at most"
    )


def _automaton_rows(automaton: ByteAutomaton) -> Iterator[tuple[str, str]]:
    num_pushes = int((automaton.edge_target >= 0).sum())
    num_pops = len(automaton.edge_target) - num_pushes
    yield "states", f"{automaton.num_states:,}"
    yield "callees", f"{automaton.num_callees:,} ({num_pushes:,} kinds of push, {num_pops:,} of pop)"
    yield "byte classes", str(automaton.table.shape[1])
    yield "tables", f"{automaton.size_bytes:,} bytes"
    yield "forced", f"{forced_share(automaton):.0%} of the states have one way out"


def explain_parser(found: Explanation, spec: GrammarSpec, config: GrammarConfig) -> None:
    """Tell whether llguidance takes a constraint, and how long that takes to find out."""
    # Imported where it is needed: the library is large, and only grammars need it.
    from llguidance import LLMatcher, LLTokenizer

    from sgl_runtime.grammar.llguidance_grammar import LIMITS, check_matcher, lark_of

    begin = time.perf_counter()
    try:
        check_matcher(LLMatcher(LLTokenizer("byte"), lark_of(spec, config), log_level=0, limits=LIMITS), spec.kind)
        found.tier = "llguidance"
    except GrammarError as error:
        found.problems.append(error.message)
    found.compile_ms = (time.perf_counter() - begin) * 1000


def _explain_words(found: Explanation, text: str) -> None:
    try:
        schema: Any = parse_schema(text)
    except (GrammarError, RecursionError):
        return
    annotations: set[str] = set()
    for pointer, node in schema_places(schema):
        annotations |= ANNOTATIONS & node.keys()
        for name in node.keys() - ANNOTATIONS - ENFORCED - REFUSED:
            path = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            found.unknown.append(UnknownWord(path, likely_meant(name)))
    found.annotations = sorted(annotations)
    found.unknown.sort(key=lambda word: word.path)


def _problem(relaxed: RelaxedKeyword) -> str:
    return f"{relaxed.path} {relaxed.reason}"


def _is_neutral(spec: GrammarSpec) -> bool:
    if spec.kind != "regex":
        return False
    try:
        neutral_regex(whole_tree(spec.text))
    except GrammarError:
        return False
    return True


def _measure(automaton: ByteAutomaton, order: VocabularyOrder) -> MaskFigures:
    cache = TokenMaskCache(order, max_bytes=_MASK_CACHE_BYTES)
    seconds, rows = [], set()
    for state in range(min(automaton.num_states, _MAX_MASKED_STATES)):
        begin = time.perf_counter()
        row = cache.row(automaton, 0, state, ())
        seconds.append(time.perf_counter() - begin)
        rows.add(row.tobytes())
    return MaskFigures(
        order.size, len(seconds), len(rows), float(np.median(seconds)) * 1e6, float(np.max(seconds)) * 1e6
    )

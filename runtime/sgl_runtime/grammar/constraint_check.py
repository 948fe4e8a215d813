"""Whether a constraint would be enforced, and if not, what is wrong where: for who is still writing it."""

import re
from typing import Any

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.explain import Explanation, explain, explain_parser
from sgl_runtime.grammar.worker_setup import Task, WorkerSetup

# The ways in which messages of this package and of the parser name a place.
_POINTER = re.compile(r"#(?:/[^\s'\",;:]*)?(?= |$)")
_POSITION = re.compile(r"\(at position (\d+)")
_LINE = re.compile(r"at line (\d+)(?:, column (\d+))?")
_LINE_IN_BRACKETS = re.compile(r"at (\d+)\((\d+)\)")


def check_task(setup: WorkerSetup) -> Task:
    """Checks constraints in a worker process; see `check`."""
    return lambda spec: (check(spec, setup.config), {})


def check(spec: GrammarSpec, config: GrammarConfig) -> dict[str, Any]:
    """What would become of a constraint, as `/validate_grammar` shows it.

    Args:
        spec: The constraint.
        config: The backend, limits and policies.
    """
    found = Explanation(spec.kind)
    if config.grammar_backend == "llguidance":
        explain_parser(found, spec, config)
    else:
        found = explain(spec, config)
    problems, tier = _verdict(found, spec, config)
    automaton = found.automaton
    return {
        "valid": not problems,
        "message": problems[0] if problems else None,
        "place": place_of(problems[0]) if problems else None,
        "problems": [{"message": problem, "place": place_of(problem)} for problem in problems],
        "backend": None if problems else tier,
        "note": found.note,
        "states": None if automaton is None else automaton.num_states,
        "seconds": found.compile_ms / 1000,
        "relaxed": [{"path": each.path, "reason": each.reason} for each in found.relaxed],
        "unknown": [{"path": word.path, "meant": word.meant} for word in found.unknown],
    }


def place_of(message: str) -> dict[str, Any]:
    """Where in the constraint a message says that something is wrong.

    Returns:
        Some of `path` (a JSON pointer), `position` (characters from the beginning), `line` and `column` (from 1 on).
        A position behind a path counts from the beginning of what stands there.
    """
    place: dict[str, Any] = {}
    pointer, position = _POINTER.search(message), _POSITION.search(message)
    line = _LINE.search(message) or _LINE_IN_BRACKETS.search(message)
    if pointer is not None:
        place["path"] = pointer.group()
    if position is not None:
        place["position"] = int(position.group(1))
    if line is not None:
        place["line"] = int(line.group(1))
        if line.group(2) is not None:
            place["column"] = int(line.group(2))
    return place


def _verdict(found: Explanation, spec: GrammarSpec, config: GrammarConfig) -> tuple[list[str], str | None]:
    """What is wrong, and what enforces it, under the backend of the configuration."""
    problems = list(found.problems)
    if spec.lenient and found.automaton is not None:
        # What is left out is named beside it, and is no reason to refuse.
        return [], "fsm"
    if config.grammar_backend == "fsm" and found.tier == "llguidance" and not problems:
        problems.append(found.note or f"the grammar backend fsm takes no {spec.kind}; auto and llguidance do")
    if config.grammar_backend == "outlines":
        found.note = "the grammar backend outlines may refuse more than this check does"
        return problems, "outlines"
    return problems, found.tier

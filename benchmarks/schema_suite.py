"""The JSON-Schema-Test-Suite against our grammars: groups that pass, are refused, or go wrong.

    python benchmarks/schema_suite.py SUITE/tests/draft2020-12 [--details]

A group is a schema with valid and invalid instances.  It passes when every valid instance is accepted and no invalid
one is; a schema that nothing satisfies passes when it is refused and has no valid instance.  Objects are read as open,
as the specification says.  Instances are spelled as `json.dumps` does; schemas of formats get `type: string`, since
there a format is an assertion.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compiler import AutomatonCompiler


@dataclass
class Tally:
    """Counts of groups."""

    groups: int = 0
    passed: int = 0
    refused: int = 0
    valid_refused: int = 0
    invalid_accepted: int = 0
    reasons: list[str] = field(default_factory=list)


def judge(compiler: AutomatonCompiler, group: dict[str, Any], *, is_format: bool, tally: Tally) -> None:
    """Count one group."""
    schema = group["schema"]
    if is_format and isinstance(schema, dict):
        schema = {**schema, "type": "string"}
    cases = [case for case in group["tests"] if not is_format or isinstance(case["data"], str)]
    tally.groups += 1
    try:
        automaton = compiler.compile(GrammarSpec("json_schema", json.dumps(schema)))
    except GrammarError as error:
        if "no output at all" in error.message and not any(case["valid"] for case in cases):
            tally.passed += 1
        else:
            tally.refused += 1
            tally.reasons.append(error.message)
        return
    accepted = {
        case["valid"]: [
            automaton.accepts(json.dumps(each["data"], ensure_ascii=False).encode("utf-8", "surrogatepass"))
            for each in cases
            if each["valid"] == case["valid"]
        ]
        for case in cases
    }
    if any(accepted.get(False, [])):
        tally.invalid_accepted += 1
        tally.reasons.append(f"invalid accepted: {group['description']}")
    elif not all(accepted.get(True, [])):
        tally.valid_refused += 1
        tally.reasons.append(f"valid refused: {group['description']}")
    else:
        tally.passed += 1


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--details", action="store_true", help="say why each group does not pass")
    options = parser.parse_args()
    compiler = AutomatonCompiler(GrammarConfig(json_additional_properties="open"))
    tallies: dict[str, Tally] = defaultdict(Tally)
    for path in sorted(options.suite.rglob("*.json")):
        relative = path.relative_to(options.suite)
        for group in json.loads(path.read_text(encoding="utf-8")):
            judge(compiler, group, is_format=relative.parent.name == "format", tally=tallies[str(relative)])
    print(f"{'file':<40}{'groups':>8}{'passed':>8}{'refused':>9}{'valid refused':>15}{'invalid accepted':>18}")
    for name in ("required", "optional"):
        total = Tally()
        for file, tally in tallies.items():
            if file.startswith("optional") != (name == "optional"):
                continue
            if tally.passed < tally.groups or options.details:
                print_line(file, tally)
            for reason in tally.reasons if options.details else ():
                print(f"    {reason}")
            for count in ("groups", "passed", "refused", "valid_refused", "invalid_accepted"):
                setattr(total, count, getattr(total, count) + getattr(tally, count))
        print_line(f"all {name} files", total)


def print_line(name: str, tally: Tally) -> None:
    """One line of the table."""
    counts = f"{tally.groups:>8}{tally.passed:>8}{tally.refused:>9}{tally.valid_refused:>15}"
    print(f"{name:<40}{counts}{tally.invalid_accepted:>18}")


if __name__ == "__main__":
    main()

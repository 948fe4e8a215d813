"""The command `sgl grammar explain`: what becomes of a schema or a regex, and a drawing of it."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args, get_type_hints

from sgl_runtime.composition import ModelHost, constrained_vocabulary
from sgl_runtime.config import GrammarConfig, ModelSection, RuntimeConfig
from sgl_runtime.docstring_attributes import read_attributes
from sgl_runtime.errors import ConfigError, SglRuntimeError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.drawing import draw, to_dot
from sgl_runtime.grammar.drawing_svg import to_svg
from sgl_runtime.grammar.explain import explain, kind_of, lines_of
from sgl_runtime.sampling_params import GRAMMAR_KINDS

_POLICIES = ("json_whitespace", "json_additional_properties", "json_key_order")
_LIMITS = ("max_grammar_states", "grammar_compile_timeout")

_FILE_NAME = re.compile(r"[\w./~ -]+\.(json|lark|ebnf|gbnf|txt)")
"""What is meant as a file more likely than as a regex."""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: What follows the command's name.

    Returns:
        Exit code: 0 where the constraint is enforced, 1 where it is refused or something cannot be read or written,
        2 for wrong flags.
    """
    options = _parser().parse_args(arguments)
    try:
        return _explain(options)
    except (SglRuntimeError, OSError, UnicodeDecodeError) as error:
        print(f"sgl grammar: {error}", file=sys.stderr)
        return 1


def _explain(options: argparse.Namespace) -> int:
    text = _text(options.constraint, options.kind)
    config = GrammarConfig(**{name: vars(options)[name] for name in (*_POLICIES, *_LIMITS)})
    spec = GrammarSpec(options.kind or kind_of(text), text)
    found = explain(spec, config, _vocabulary(options.model) if options.model else None)
    print("\n".join(lines_of(found)))
    if options.dot or options.svg:
        if found.automaton is None:
            raise ConfigError("there is no automaton to draw")
        parts = draw(found.automaton)
        for path, write in ((options.dot, to_dot), (options.svg, to_svg)):
            if path:
                Path(path).write_text(write(parts), encoding="utf-8")
                print(f"{'drawing':<14}{path}")
    return 1 if found.problems else 0


def _text(constraint: str, kind: str | None) -> str:
    """What the argument names: standard input, a file, or itself.

    Raises:
        ConfigError: it names a file that is not there, and no kind says that it is meant as it stands.
    """
    if constraint == "-":
        return sys.stdin.read()
    try:
        is_file = Path(constraint).is_file()
    except (OSError, ValueError):
        # Longer than a path may be, or with a zero in it.
        is_file = False
    if is_file:
        return Path(constraint).read_text(encoding="utf-8")
    if kind is None and _FILE_NAME.fullmatch(constraint):
        raise ConfigError(f"there is no file {constraint!r}; if that is the regex itself, add --kind regex")
    return constraint


def _vocabulary(model_path: str) -> GrammarVocabulary:
    host = ModelHost.open(RuntimeConfig(model=ModelSection(model_path=model_path)))
    return constrained_vocabulary(host.tokenizer.vocabulary, eos_ids=host.eos_ids, num_logits=host.vocab_size)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sgl grammar", description="Look at constraints.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("explain", help="say what becomes of a schema, a regex or a grammar")
    command.add_argument(
        "constraint", metavar="SCHEMA_OR_REGEX", help="a file, - for standard input, or the text itself"
    )
    command.add_argument("--kind", choices=GRAMMAR_KINDS, help="what it is (default: what it looks like)")
    command.add_argument("--model", metavar="PATH", help="measure masks with this model's vocabulary")
    command.add_argument("--dot", metavar="FILE", help="write a drawing as Graphviz text")
    command.add_argument("--svg", metavar="FILE", help="write a drawing as SVG")
    defaults, types = GrammarConfig(), get_type_hints(GrammarConfig)
    helps = read_attributes(GrammarConfig.__doc__ or "")[1]
    for name in (*_POLICIES, *_LIMITS):
        default = vars(defaults)[name]
        accepted = {"choices": get_args(types[name])} if name in _POLICIES else {"type": types[name], "metavar": "N"}
        command.add_argument(_flag(name), default=default, help=f"{helps[name]} (default: {default})", **accepted)
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

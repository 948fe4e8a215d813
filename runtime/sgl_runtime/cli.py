"""The command `sgl`: finds the subcommand in a table and hands it the rest of the line."""

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from sgl_runtime.version import distribution_version

# Name -> (import path of a function that takes the arguments and returns the exit code, one line of help).
COMMANDS = {
    "batch": ("sgl_runtime.batch_command.command:main", "answer the requests of a file"),
    "bench": ("sgl_runtime.load_test.command:main", "measure a running server"),
    "chat": ("sgl_runtime.chat_client.command:main", "chat with a served model"),
    "demo": ("sgl_runtime.demo.command:main", "run three example programs on a small real model"),
    "grammar": ("sgl_runtime.grammar_command:main", "explain what becomes of a JSON Schema, a regex or a grammar"),
    "replay": ("sgl_runtime.replay_command:main", "send the requests of a server's dump again"),
    "serve": ("sgl_runtime.serving.launch:main", "serve a model over HTTP"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        arguments: Without the program's name; those of this process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"sgl {distribution_version()}")
        return 0
    if words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], list(COMMANDS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
        print(f"sgl: {words[0]} is not a command; {hint} (see sgl --help)", file=sys.stderr)
        return 2
    module, _, attribute = COMMANDS[words[0]][0].partition(":")
    run: Callable[[Sequence[str]], int] = getattr(import_module(module), attribute)
    return run(words[1:])


def _help() -> str:
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: sgl COMMAND [FLAGS]",
            "",
            "commands:",
            *lines,
            "",
            "sgl COMMAND --help lists its flags; sgl --version.",
        ]
    )

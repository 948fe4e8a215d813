"""The command `sgl demo`: three programs on a small real model, in this process."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.text import Text

import sgl
from sgl_runtime.demo.example_programs import EXAMPLES, examples_folder, load_example
from sgl_runtime.demo.loading import load_engine
from sgl_runtime.demo.usage import Usage, usage_table
from sgl_runtime.errors import SglRuntimeError

if TYPE_CHECKING:
    from sgl_runtime.engine import Engine

_PIPED_WIDTH = 100


def main(arguments: Sequence[str]) -> int:
    """Load the model, run the programs, show what they cost.

    Args:
        arguments: What follows the command's name.

    Returns:
        Exit code: 0, or 1 with one sentence when the model cannot be loaded or a program fails.
    """
    parser = argparse.ArgumentParser(prog="sgl demo", description="Run three example programs on a small real model.")
    parser.add_argument("--model-path", default="smollm2", help="as for sgl serve (default: smollm2)")
    options = parser.parse_args(arguments)
    # A terminal has a width of its own; what is piped is usually read in a window at least this wide.
    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    try:
        _run(options.model_path, console)
    except (SglRuntimeError, sgl.SglError) as error:
        print(f"sgl demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(model_path: str, console: Console) -> None:
    folder = examples_folder()
    with load_engine(model_path, console) as engine:
        since_start_s = time.time() - psutil.Process().create_time()
        console.print(f"Ready {since_start_s:.1f} s after the command.  The programs: {folder}\n", highlight=False)
        sgl.set_default_backend(engine)
        rows = {}
        start, begin = _counters(engine), time.monotonic()
        for number, example in enumerate(EXAMPLES, 1):
            console.rule(Text(f"{number}. {example.title} ({example.name}.py)", style="bold"), align="left")
            console.print(f"{example.lesson}\n", highlight=False)
            before, program_begin = _counters(engine), time.monotonic()
            load_example(folder, example.name).run(console)
            elapsed_s = time.monotonic() - program_begin
            rows[example.title] = Usage.between(before, _counters(engine), elapsed_s=elapsed_s)
            console.print()
        total = Usage.between(start, _counters(engine), elapsed_s=time.monotonic() - begin)
        console.rule(Text("Summary", style="bold"), align="left")
        console.print(usage_table(rows, total))


def _counters(engine: "Engine") -> dict[str, Any]:
    counters: dict[str, Any] = engine.get_server_info()["internal_states"][0]
    return counters

"""Jump-forward on the CPU engine: forced text appended at once, beside the same engine drawing it token by token.

    python benchmarks/jump_forward.py [--model PATH] [--runs 5] [--batch 1 64]

Both sides write the same texts (checked).  The schema is a tool call's: much of the output is forced.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from sgl_runtime.engine import Engine
from sgl_runtime.version import distribution_version

_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "function_name": {"enum": ["get_current_weather", "search_documents", "send_notification"]},
            "arguments": {
                "type": "object",
                "properties": {
                    "destination_city": {"type": "string", "maxLength": 12},
                    "number_of_results": {"type": "integer", "minimum": 1, "maximum": 99},
                    "include_metadata": {"type": "boolean"},
                },
                "required": ["destination_city", "number_of_results", "include_metadata"],
            },
            "requires_confirmation": {"type": "boolean"},
        },
        "required": ["function_name", "arguments", "requires_confirmation"],
    }
)


def prompts(count: int) -> list[str]:
    """Different prompts of one length."""
    question = "what is to be done? Answer with a function call in JSON."
    return [f"Question {index:03d}: {question}\n" for index in range(count)]


@dataclass(frozen=True)
class Measured:
    """One batch: seconds, texts, tokens, and how many of these were forced."""

    seconds: float
    texts: list[str]
    num_tokens: int
    num_forced: int


def measure(engine: Engine, count: int) -> Measured:
    """Generate one batch."""
    begin = time.perf_counter()
    settings = {"temperature": 0, "max_new_tokens": 120, "json_schema": _SCHEMA}
    replies: list[dict[str, Any]] = engine.generate(prompts(count), sampling_params=settings)
    seconds = time.perf_counter() - begin
    counts = [reply["meta_info"] for reply in replies]
    return Measured(
        seconds,
        [reply["text"] for reply in replies],
        sum(each["completion_tokens"] for each in counts),
        sum(each["forced_tokens"] for each in counts),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    options = parser.parse_args()
    print(f"python {platform.python_version()}, sgl {distribution_version()}, medians of {options.runs}, sides in turn")
    print(f"{'batch':>5}{'forced tokens':>15}{'of all':>8}{'with s':>10}{'without s':>11}{'ratio':>8}")
    engines = {
        jump: Engine(options.model, disable_jump_forward=not jump, max_total_tokens=16384, random_seed=0)
        for jump in (True, False)
    }
    for count in options.batch:
        times: dict[bool, list[float]] = {True: [], False: []}
        measured: dict[bool, Measured] = {}
        for turn in range(options.runs + 1):
            for jump, engine in engines.items():
                engine.flush_cache()
                measured[jump] = measure(engine, count)
                # The first turn warms up.
                times[jump] += [measured[jump].seconds] if turn else []
        if measured[True].texts != measured[False].texts:
            sys.exit("the two sides differ")
        ahead, plain = statistics.median(times[True]), statistics.median(times[False])
        forced, total = measured[True].num_forced, measured[True].num_tokens
        print(f"{count:>5}{forced:>15}{forced / total:>8.0%}{ahead:>10.2f}{plain:>11.2f}{plain / ahead:>8.2f}")
    for engine in engines.values():
        engine.shutdown()


if __name__ == "__main__":
    main()

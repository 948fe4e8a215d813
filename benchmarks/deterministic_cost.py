"""What deterministic inference costs on this CPU: the same work with and without it, taking turns.

    python benchmarks/deterministic_cost.py --turns 3

Printed: CPU seconds of one thread, the least of the turns, and their ratio.
"""

import argparse
import time
from typing import Any

import torch

from sgl_runtime.engine import Engine

# Name, sequences, tokens in, tokens out.
WORK = [
    ("prefill of 512", 1, 512, 1),
    ("1 x 64 out", 1, 64, 64),
    ("8 x 32 out", 8, 64, 32),
    ("8 x 500 in, 8 out", 8, 500, 8),
]
FLAGS: dict[str, Any] = {"max_total_tokens": 8192, "disable_radix_cache": True, "num_threads": 1}


def cpu_seconds(engine: Engine, count: int, num_in: int, num_out: int) -> float:
    ids = [[5 + (row * 7 + place) % 1000 for place in range(num_in)] for row in range(count)]
    sampling = {"temperature": 0, "max_new_tokens": num_out, "ignore_eos": True}
    begin = time.process_time()
    engine.generate(input_ids=ids, sampling_params=sampling)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--model", default="smollm2")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, one thread")
    with (
        Engine(arguments.model, **FLAGS) as plain,
        Engine(arguments.model, enable_deterministic_inference=True, **FLAGS) as deterministic,
    ):
        engines = (plain, deterministic)
        for engine in engines:
            cpu_seconds(engine, 1, 8, 2)
        for name, *sizes in WORK:
            turns = [[cpu_seconds(engine, *sizes) for engine in engines] for _ in range(arguments.turns)]
            least = [min(turn[side] for turn in turns) for side in range(2)]
            print(
                f"{name:<20} plain {least[0]:6.2f} s  deterministic {least[1]:6.2f} s  ratio {least[1] / least[0]:.2f}"
            )


if __name__ == "__main__":
    main()

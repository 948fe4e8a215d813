"""What a GPU holds for seconds: rates, clock and power of single kernels that are launched without a pause.

    python benchmarks/gpu_power.py [--seconds 3] [--json FILE]

A chip that reaches its power limit lowers its clock, so that a burst says little of a run that takes seconds.  Each
case is replayed from a graph for `--seconds`; the rate is the median of the second half, and clock and power are read
from `nvidia-smi` meanwhile (its power is the mean of about a second).  Cases: a large product of matrices of random
numbers and of zeros (which switch hardly a transistor), reading memory, decode attention, and a decode step's attention
and products in turn, at the shapes of Llama-3.1-8B.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_kernels import HIDDEN, INNER, LAUNCHES, captured, decode_case

QUERY = "clocks.sm,power.draw,power.limit,temperature.gpu"
REPLAYS = 4

Case = tuple[str, Callable[[int], Any], float, str, float]
"""Name, a call, what it does of a unit, the unit, and by what it is divided."""


def state_of_gpu() -> tuple[float, ...]:
    """Megahertz, watts, watts at most, degrees."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-i", "0"]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(float(part) for part in line.split(","))


def sustained(call: Callable[[int], Any], seconds: float) -> tuple[float, float, tuple[float, ...]]:
    """Seconds of a call at first and in the second half, and the state of the GPU then."""
    graph = captured(call)
    times: list[float] = []
    states: list[tuple[float, ...]] = []
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        if passed > (0.6 + 0.1 * len(states)) * seconds and len(states) < 3:
            states.append(state_of_gpu())
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(REPLAYS):
            graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / 1000 / REPLAYS / LAUNCHES)
    middle = tuple(statistics.median(values) for values in zip(*states, strict=True))
    return times[0], statistics.median(times[len(times) // 2 :]), middle


def cases() -> Iterator[Case]:
    def matrix(rows: int, columns: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * scale

    rows = 8192
    weight, out = matrix(2 * INNER, HIDDEN, 0.02), torch.empty(rows, 2 * INNER, device="cuda", dtype=torch.bfloat16)
    operations = 2 * rows * 2 * INNER * HIDDEN
    for name, x in (("random numbers", matrix(rows, HIDDEN)), ("zeros", torch.zeros_like(matrix(rows, HIDDEN)))):
        yield (
            f"product, 8,192 rows of {name}",
            lambda _, x=x: torch.mm(x, weight.t(), out=out),
            operations,
            "TFLOP/s",
            1e12,
        )
    source = torch.randn(1 << 28, device="cuda")
    yield "reading memory (a sum)", lambda _: source.sum(), source.nbytes, "TB/s", 1e12
    attend, num_bytes = decode_case(256, 560)
    yield "decode attention, 256 rows of 560", attend, num_bytes, "TB/s", 1e12
    layers = [(matrix(2 * INNER, HIDDEN, 0.02), matrix(HIDDEN, INNER, 0.02)) for _ in range(4)]
    few, inner = matrix(256, HIDDEN), matrix(256, INNER)

    def products(index: int) -> None:
        gate_up, down = layers[index % len(layers)]
        torch.mm(few, gate_up.t())
        torch.mm(inner, down.t())

    def in_turn(index: int) -> None:
        attend(index)
        products(index)

    operations = 2 * 256 * 3 * INNER * HIDDEN
    yield "products of an MLP, 256 rows", products, operations, "TFLOP/s", 1e12
    yield "that attention and these products in turn", in_turn, operations, "TFLOP/s", 1e12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    machine = [torch.cuda.get_device_name(), f"torch {torch.__version__}", f"python {platform.python_version()}"]
    print(*machine)
    print(f"{'':<46} {'at first':>9} {'held':>9} {'':<8} {'MHz':>6} {'W':>6} {'of W':>6} {'degrees':>8}")
    rows = []
    for name, call, amount, unit, divisor in cases():
        first, held, state = sustained(call, args.seconds)
        rates = [amount / each / divisor for each in (first, held)]
        print(
            f"{name:<46} {rates[0]:>9.2f} {rates[1]:>9.2f} {unit:<8}",
            *(f"{value:>6.0f}" for value in state),
            flush=True,
        )
        rows.append({"name": name, "first": rates[0], "held": rates[1], "unit": unit, "state": state})
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""A gated linear (SiLU of one half of a product times its other half) as one kernel beside the vendor's product.

    python benchmarks/gated_products.py [--seconds 1] [--json FILE]

At the shapes of Llama-3.1-8B and Qwen3-0.6B, for several numbers of rows: the vendor's product alone, with the kernel
that makes one half of its two, and ours.  Each is replayed from a graph for `--seconds`, in turn, twice; numbers are
random, so that the card is at its power limit as in serving.  The rate counts the product's operations.
"""

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_power import sustained

from sgl_runtime.device.gated_products import GatedProducts
from sgl_runtime.device.kernels.norm import silu_and_mul

SHAPES = {"8B": (4096, 28672), "0.6B": (1024, 6144)}
"""Inputs, and outputs of both halves."""

ROWS = (256, 512, 1024, 2048, 8192)
WEIGHT_BYTES = 256 << 20
"""Weights that the calls take turns over: more than the cache holds."""


def cases(inputs: int, outputs: int, rows: int, products: GatedProducts) -> dict[str, Callable[[int], Any]]:
    """What is timed, by name."""
    generator = torch.Generator("cuda").manual_seed(0)

    def matrix(height: int) -> torch.Tensor:
        return torch.randn(height, inputs, device="cuda", dtype=torch.bfloat16, generator=generator)

    x = matrix(rows)
    weights = [matrix(outputs) * inputs**-0.5 for _ in range(max(2, WEIGHT_BYTES // (2 * inputs * outputs)))]
    out = torch.empty(rows, outputs, device="cuda", dtype=torch.bfloat16)

    def product(index: int) -> torch.Tensor:
        return torch.mm(x, weights[index % len(weights)].t(), out=out)

    return {
        "product": product,
        "product, half": lambda index: silu_and_mul(product(index)),
        "one kernel": lambda index: products.run(x, weights[index % len(weights)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    products = GatedProducts(torch.device("cuda"), folder=Path(tempfile.mkdtemp()))
    hardware = torch.cuda.get_device_name()
    print(f"{hardware}, torch {torch.__version__}, python {platform.python_version()}")
    print(f"{'shape':<6}{'rows':>6}  {'what':<15}{'us':>9}{'TFLOP/s':>9}{'of product, half':>18}")
    found = []
    for name, (inputs, outputs) in SHAPES.items():
        for rows in ROWS:
            calls = cases(inputs, outputs, rows, products)
            times: dict[str, list[float]] = {each: [] for each in calls}
            for order in (list(calls), list(calls)[::-1]):
                for each in order:
                    times[each].append(sustained(calls[each], args.seconds)[1])
            medians = {each: statistics.median(values) for each, values in times.items()}
            for each, took in medians.items():
                rate = 2 * rows * inputs * outputs / took / 1e12
                share = took / medians["product, half"]
                print(f"{name:<6}{rows:>6}  {each:<15}{took * 1e6:>9.1f}{rate:>9.0f}{share:>18.3f}", flush=True)
                found.append({"shape": name, "rows": rows, "what": each, "seconds": times[each]})
    if args.json is not None:
        args.json.write_text(json.dumps({"hardware": hardware, "torch": torch.__version__, "results": found}))


if __name__ == "__main__":
    main()

"""Float32 linears of the small model's shapes on this CPU: torch's, transposed, numpy's, and packed once by oneDNN.

    python benchmarks/linear_cpu.py

Every product runs over as many copies of the weight as take 200 MB, so that weights come from memory as they do in a
decode step.  Printed: GFLOP/s, the best of seven rounds, and the ratio of the packed form to torch's own.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.device.cpu import CpuOps

SHAPES = [(960, 576), (576, 576), (3072, 576), (576, 1536), (49_152, 576)]
ROWS = [1, 2, 8, 32, 128, 1024]
BYTES = 200e6
ROUNDS = 7


def best_seconds(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure(out_size: int, in_size: int, ops: CpuOps) -> None:
    copies = max(1, min(120, int(BYTES / (out_size * in_size * 4))))
    weights = [torch.randn(out_size, in_size) for _ in range(copies)]
    arrays = [weight.numpy() for weight in weights]
    packed = [ops.pack_weight(weight) for weight in weights]
    for rows in ROWS:
        x = torch.randn(rows, in_size)
        forms: list[Callable[[Tensor], object]] = [
            lambda x: [F.linear(x, weight) for weight in weights],
            lambda x: [torch.mm(weight, x.t()) for weight in weights],
            lambda x: [x.numpy() @ array.T for array in arrays],
            lambda x: [ops.linear(x, weight) for weight in packed],
        ]
        work = 2e-9 * out_size * in_size * copies * rows
        speeds = [work / best_seconds(partial(form, x)) for form in forms]
        figures = " ".join(f"{speed:10.1f}" for speed in speeds)
        print(f"{out_size:>7}x{in_size:<6} {rows:>5} {figures} {speeds[-1] / speeds[0]:10.2f}", flush=True)


@torch.inference_mode()
def main() -> None:
    ops = CpuOps()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; GFLOP/s")
    titles = ("linear", "transposed", "numpy", "packed", "ratio")
    print(f"{'shape':>14} {'rows':>5} " + " ".join(f"{title:>10}" for title in titles))
    for shape in SHAPES:
        measure(*shape, ops)


if __name__ == "__main__":
    main()

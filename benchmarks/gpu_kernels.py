"""The kernels of the forward pass on a GPU beside their floors: bytes over bandwidth, operations over the matrix rate.

    python benchmarks/gpu_kernels.py [--tune] [--only decode,extend,draw,small,linear] [--json FILE]

Shapes are Llama-3.1-8B's, in bfloat16.  Both ceilings are measured first, in the same run: a large copy or sum, and a
large product of matrices.  Each kernel is timed as the median of many replays of a graph of several launches over
inputs larger than the cache.  `--tune` tries block sizes of the attention kernels.
"""

import argparse
import itertools
import json
import platform
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton

from sgl_runtime.attention.decode_pieces import cut, extra_pieces
from sgl_runtime.batch import SharedRange
from sgl_runtime.device.kernels import decode_attention, extend_attention, matvec, shared_attention, warp_attention
from sgl_runtime.device.kernels.norm import rms_norm, silu_and_mul
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.kernels.sampling import draw

HEADS, GROUPS, DIM, HIDDEN, INNER, VOCAB = 32, 8, 128, 4096, 14336, 131_072
REPEATS, LAUNCHES = 11, 8


def captured(call: Callable[[int], Any]) -> torch.cuda.CUDAGraph:
    """A graph of LAUNCHES calls; the argument counts up, so that calls can take turns over several inputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(3):
            call(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(LAUNCHES):
            call(index)
    return graph


def seconds(call: Callable[[int], Any]) -> float:
    """Median time of one call."""
    graph = captured(call)
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / LAUNCHES)
    return statistics.median(times)


def ceilings() -> tuple[float, float]:
    """Bytes and operations a second: of a large copy or a large sum, whichever is faster, and of a large product."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copied = 8 * source.numel() / seconds(lambda _: target.copy_(source))
    read = 4 * source.numel() / seconds(lambda _: source.sum())
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * 8192**3 / seconds(lambda _: a @ b)
    return max(copied, read), rate


class Table:
    def __init__(self, bandwidth: float, rate: float) -> None:
        self.bandwidth, self.rate = bandwidth, rate
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, took: float, *, num_bytes: float = 0, operations: float = 0) -> None:
        floor = max(num_bytes / self.bandwidth, operations / self.rate)
        self.rows.append({"name": name, "us": took * 1e6, "floor_us": floor * 1e6, "ratio": took / floor})
        print(f"{name:<58} {took * 1e6:>10.1f} {floor * 1e6:>10.1f} {took / floor:>6.2f}", flush=True)


def decode_case(
    rows: int, context: int, *, extra: int | None = None, spread: float = 0.0, shared: int = 0
) -> tuple[Callable[[int], Any], int]:
    """A call, and the bytes that it must read.

    Contexts are `context` long, in the mean where they differ by a share of `spread` up and down; the first `shared`
    positions are those of all rows.
    """
    rng = np.random.default_rng(0)
    lengths = (context * rng.uniform(1 - spread, 1 + spread, rows)).astype(np.int32)
    width, extra = -(-int(lengths.max()) // 16) * 16, extra_pieces(rows) if extra is None else extra
    num_slots = max(int(lengths.sum()), 65_536)
    keys, values = (torch.randn(num_slots, GROUPS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    slots = rng.permutation(num_slots)[: int(lengths.sum())].astype(np.int32)
    table = np.zeros((rows, width), dtype=np.int32)
    table[np.arange(width) < lengths[:, None]] = slots
    table[:, :shared] = table[0, :shared]
    members = shared_attention.members_of_tile(HEADS // GROUPS)
    ranges = (SharedRange(np.arange(rows), 0, shared),) if shared else ()
    plan = cut(lengths, extra=extra, shared=ranges, members=members)
    room = rows + extra
    places = max(room, plan.num_places)
    pieces = np.zeros((room, decode_attention.PIECE_WORDS), dtype=np.int32)
    pieces[: plan.count] = plan.pieces
    pieces[: plan.count, 1] = plan.pieces[:, 0]
    common = {
        "table": torch.from_numpy(table).cuda(),
        "partial_out": torch.empty(places, HEADS, DIM, device="cuda"),
        "partial_lse": torch.empty(places, HEADS, device="cuda"),
        "scale": DIM**-0.5,
    }
    arguments = {
        "pieces": torch.from_numpy(pieces).cuda(),
        "counts": torch.tensor([plan.count, 0], dtype=torch.int32, device="cuda"),
        "tickets": torch.zeros(rows, GROUPS, dtype=torch.int32, device="cuda"),
        "out": torch.empty(rows, HEADS, DIM, device="cuda", dtype=torch.bfloat16),
    }
    of_tiles = {
        "row_ids": torch.arange(rows, dtype=torch.int32, device="cuda"),
        "tiles": torch.from_numpy(plan.tiles).cuda(),
        "num_tiles": torch.tensor([len(plan.tiles)], dtype=torch.int32, device="cuda"),
    }
    q = torch.randn(rows, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    num_positions = int(lengths.sum()) - shared * max(0, rows - 1)

    def call(_: int) -> None:
        if shared:
            shared_attention.attend_shared(q, keys, values, **of_tiles, **common)
        decode_attention.attend_pieces(q, keys, values, **arguments, **common)

    return call, 2 * num_positions * GROUPS * DIM * 2


def measure_decode(table: Table, tune: bool) -> None:
    cases = [(1, 512), (1, 8192), (8, 2048), (64, 512), (64, 2048), (64, 8192), (256, 512), (256, 2048), (256, 8192)]
    for rows, context in cases:
        call, num_bytes = decode_case(rows, context)
        table.add(f"decode attention, {rows} rows of {context}", seconds(call), num_bytes=num_bytes)
    for rows, context in ((64, 2048), (256, 1024)):
        call, num_bytes = decode_case(rows, context, spread=0.8)
        table.add(f"the same, {rows} rows of {context} x 0.2 to 1.8", seconds(call), num_bytes=num_bytes)
    for rows, shared in ((8, 4096), (64, 4096), (256, 4096)):
        call, num_bytes = decode_case(rows, shared + 128, shared=shared)
        table.add(f"the same, {rows} rows of {shared} shared + 128", seconds(call), num_bytes=num_bytes)
    if not tune:
        return
    for elements, stages, extra in itertools.product((2048, 4096, 8192), (2, 3, 4), (None, 32, 128, 256)):
        warp_attention.BLOCK_ELEMENTS, warp_attention.STAGES = elements, stages
        for rows, context in ((1, 8192), (8, 2048), (64, 512), (64, 2048), (256, 512)):
            call, num_bytes = decode_case(rows, context, extra=extra)
            name = f"decode {rows} x {context} elements={elements} stages={stages} extra={extra}"
            try:
                table.add(name, seconds(call), num_bytes=num_bytes)
            except triton.runtime.errors.OutOfResources:
                print(f"{name}: does not fit")


def extend_case(rows: int, prefix: int, new: int) -> tuple[Callable[[int], Any], float]:
    """A call, and its operations."""
    total = rows * (prefix + new)
    keys, values = (torch.randn(total, GROUPS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    slots = np.random.default_rng(0).permutation(total).astype(np.int32).reshape(rows, -1)
    step = extend_attention.tile_tokens(HEADS // GROUPS)
    tiles = np.array([(row, at) for row in range(rows) for at in range(0, new, step)], dtype=np.int32).T

    def ints(values: Any) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32)).cuda()

    q = torch.randn(rows * new, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    arguments = {
        "table": ints(slots),
        "row_ids": ints(np.arange(rows)),
        "tiles": ints(tiles),
        "token_starts": ints(np.arange(rows) * new),
        "prefix_lens": ints(np.full(rows, prefix)),
        "extend_lens": ints(np.full(rows, new)),
        "out": torch.empty_like(q),
        "scale": DIM**-0.5,
    }
    operations = 4 * rows * HEADS * DIM * (new * prefix + new * (new + 1) / 2)
    return lambda _: extend_attention.attend_extend(q, keys, values, **arguments), operations


def measure_extend(table: Table, tune: bool) -> None:
    for rows, prefix, new in ((2, 0, 4096), (16, 0, 512), (8, 4096, 64), (1, 8192, 1024)):
        call, operations = extend_case(rows, prefix, new)
        table.add(f"extend attention, {rows} rows of {prefix} + {new}", seconds(call), operations=operations)
    if not tune:
        return
    for queries, block, stages, warps in itertools.product((64, 128), (64, 128), (2, 3, 4), (4, 8)):
        extend_attention.QUERIES, extend_attention.BLOCK = queries, block
        extend_attention.STAGES, extend_attention.WARPS = stages, warps
        call, operations = extend_case(2, 0, 4096)
        name = f"extend 2 x 4096 queries={queries} block={block} stages={stages} warps={warps}"
        try:
            table.add(name, seconds(call), operations=operations)
        except triton.runtime.errors.OutOfResources:
            print(f"{name}: does not fit")


def measure_draw(table: Table) -> None:
    for rows in (1, 64, 256):
        logits = torch.randn(rows, VOCAB, device="cuda", dtype=torch.bfloat16)
        arguments = {
            "temperatures": torch.ones(rows, device="cuda"),
            "seeds": torch.arange(rows, device="cuda"),
            "rows": torch.arange(rows, device="cuda"),
            "drawn_ids": torch.zeros(rows, dtype=torch.int64, device="cuda"),
        }
        took = seconds(lambda _, a=arguments, x=logits: draw(x, **a))
        table.add(f"draw, {rows} rows", took, num_bytes=logits.numel() * 2)
        masks = torch.full((rows, VOCAB // 32), -1, dtype=torch.int32, device="cuda")
        took = seconds(lambda _, a=arguments, x=logits, m=masks: draw(x, masks=m, **a))
        table.add(f"draw under masks, {rows} rows", took, num_bytes=logits.numel() * 2 + masks.numel() * 4)


def measure_small(table: Table) -> None:
    for rows in (1, 256, 8192):
        x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
        weight = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
        took = seconds(lambda _, x=x, w=weight: rms_norm(x, w, 1e-5))
        table.add(f"norm, {rows} rows", took, num_bytes=4 * x.numel())
        gate = torch.randn(rows, 2 * INNER, device="cuda", dtype=torch.bfloat16)
        took = seconds(lambda _, g=gate: silu_and_mul(g))
        table.add(f"SiLU and product, {rows} rows", took, num_bytes=3 * gate.numel())
        qkv = torch.randn(rows, HEADS + 2 * GROUPS, DIM, device="cuda", dtype=torch.bfloat16)
        tables = tuple(torch.randn(rows, DIM // 2, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        places = torch.randperm(8192, device="cuda", dtype=torch.int32)[:rows]
        pool = tuple(torch.empty(8192, GROUPS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        took = seconds(lambda _, q=qkv, t=tables, p=places, kv=pool: rotate_and_store(q, t, p, *kv))
        table.add(f"rotate and store, {rows} rows", took, num_bytes=4 * qkv.numel())


def measure_matvec(table: Table, tune: bool) -> None:
    shapes = {"qkv": (6144, HIDDEN), "o": (HIDDEN, HIDDEN), "gate_up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER)}
    shapes |= {
        "head": (VOCAB, HIDDEN),
        "nano qkv": (4096, 1024),
        "nano down": (1024, 3072),
        "nano gate_up": (6144, 1024),
    }
    kept = matvec.ROWS, matvec.COLUMNS, matvec.WARPS, matvec.STAGES
    settings = [kept]
    if tune:
        settings += list(itertools.product((4, 8, 16), (512, 1024), (4, 8), (3, 5)))
    for name, (width, depth) in shapes.items():
        copies = max(2, (200 << 20) // (width * depth * 2))
        weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        x = torch.randn(1, depth, device="cuda", dtype=torch.bfloat16)
        num_bytes = 2 * width * depth
        took = seconds(lambda i, x=x, w=weights: torch.nn.functional.linear(x, w[i % len(w)]))
        table.add(f"linear of one row, {name}, the library's", took, num_bytes=num_bytes)
        results = []
        for setting in settings:
            matvec.ROWS, matvec.COLUMNS, matvec.WARPS, matvec.STAGES = setting
            results.append((seconds(lambda i, x=x, w=weights: matvec.matvec(x, w[i % len(w)])), setting))
        for took, setting in sorted(results)[:3] + results[:1]:
            table.add(f"linear of one row, {name} {setting}", took, num_bytes=num_bytes)
    matvec.ROWS, matvec.COLUMNS, matvec.WARPS, matvec.STAGES = kept


def measure_linear(table: Table) -> None:
    shapes = {"qkv": (6144, HIDDEN), "o": (HIDDEN, HIDDEN), "gate_up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER)}
    shapes["head"] = (VOCAB, HIDDEN)
    for name, (width, depth) in shapes.items():
        copies = max(2, (200 << 20) // (width * depth * 2))
        weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        for rows in (1, 64, 256, 8192):
            if name == "head" and rows > 256:
                continue
            x = torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16)
            took = seconds(lambda i, x=x, w=weights: torch.nn.functional.linear(x, w[i % len(w)]))
            table.add(
                f"linear {name}, {rows} rows",
                took,
                num_bytes=2 * (width * depth + rows * (width + depth)),
                operations=2 * rows * width * depth,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--only", default="decode,extend,draw,small,matvec,linear")
    parser.add_argument("--json")
    args = parser.parse_args()
    bandwidth, rate = ceilings()
    print(
        f"{torch.cuda.get_device_name()} torch {torch.__version__} triton {triton.__version__}"
        f" {platform.python_version()}"
    )
    print(f"copy {bandwidth / 1e12:.2f} TB/s, bf16 product {rate / 1e12:.0f} TFLOP/s")
    print(f"{'':<58} {'us':>10} {'floor us':>10} {'ratio':>6}")
    table = Table(bandwidth, rate)
    only = args.only.split(",")
    if "decode" in only:
        measure_decode(table, args.tune)
    if "extend" in only:
        measure_extend(table, args.tune)
    if "draw" in only:
        measure_draw(table)
    if "small" in only:
        measure_small(table)
    if "matvec" in only:
        measure_matvec(table, args.tune)
    if "linear" in only:
        measure_linear(table)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"bandwidth": bandwidth, "rate": rate, "rows": table.rows}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Attention of a pass over prompts that share a prefix, on a GPU: our kernel alone beside cascade attention.

    python benchmarks/shared_prefill.py [--rows 128] [--shared 4096] [--new 64] [--tune] [--json FILE]

One layer of Llama-3.1-8B's shape in bfloat16, with the slots of the prefix in no order.  Needs FlashInfer with its
module compiled.  The two take turns; times are medians of one call by events on the stream.  What the host takes to
plan is given apart, and so is, by the profiler, each kernel of cascade attention.  `--tune` tries block sizes of the
kernel for what each row has of its own.
"""

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton

from sgl_runtime.attention.flashinfer_attention import CascadeAttend, FlashInferAttention
from sgl_runtime.attention.triton_attention import TritonAttention, TritonExtend
from sgl_runtime.batch import Batch, SamplingBatch, SharedRange
from sgl_runtime.device.base import select_device
from sgl_runtime.device.kernels import extend_attention
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.model_store.model_config import ModelConfig

HEADS, GROUPS, DIM = 32, 8, 128
REPEATS = 21
SHAPES = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 10,
    "hidden_size": HEADS * DIM,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "max_position_embeddings": 64,
}


def make_pass(rows: int, shared: int, new: int, num_slots: int) -> Batch:
    """All rows share their first positions; then come their new tokens."""
    slots = np.random.default_rng(0).permutation(num_slots).astype(np.int32)
    ones = np.ones(rows, dtype=np.float32)
    return Batch(
        kind="extend",
        row_ids=np.arange(rows, dtype=np.int32),
        prefix_lens=np.full(rows, shared, dtype=np.int32),
        extend_lens=np.full(rows, new, dtype=np.int32),
        input_ids=np.zeros(rows * new, dtype=np.int64),
        slot_ids=slots[shared : shared + rows * new],
        changed_slots=tuple((row, slots[:shared]) for row in range(rows)),
        samples=np.ones(rows, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=ones, top_ps=ones, top_ks=-np.ones(rows, np.int32), min_ps=0 * ones, uniforms=np.zeros(rows)
        ),
        wants_logprob=np.zeros(rows, dtype=np.bool_),
        logprob_starts=np.full(rows, -1, dtype=np.int32),
        shared_ranges=(SharedRange(np.arange(rows), 0, shared),),
    )


def microseconds(*calls: Callable[[], Any]) -> list[float]:
    """Median times on the device of calls that take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for repeat in range(REPEATS + 3):
        for index, call in enumerate(calls):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # A long wait in front: the host has launched all before the device begins.
            torch.cuda._sleep(2_000_000)
            begin.record()
            call()
            end.record()
            end.synchronize()
            if repeat >= 3:
                times[index].append(1000 * begin.elapsed_time(end))
    return [statistics.median(found) for found in times]


def kernels(call: Callable[[], Any]) -> dict[str, float]:
    """Mean time of each kernel of a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(REPEATS):
            call()
        torch.cuda.synchronize()
    times = {event.key[:60]: event.self_device_time_total / REPEATS for event in profile.key_averages()}
    return {name: took for name, took in times.items() if took > 0}


def plan_microseconds(plan: Callable[[], Any]) -> float:
    """Median time that the host takes, while the device has nothing to do."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        plan()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times)


def tune(attend: Callable[[], Callable[[], Any]]) -> dict[str, float]:
    """Times of cascade attention by block sizes of the kernel that goes on behind what is shared."""
    found = {}
    for queries, block, stages, warps in itertools.product((64, 128), (32, 64, 128), (1, 2, 3), (4, 8)):
        extend_attention.QUERIES, extend_attention.BLOCK = queries, block
        extend_attention.STAGES, extend_attention.WARPS = stages, warps
        name = f"queries={queries} block={block} stages={stages} warps={warps}"
        try:
            (found[name],) = microseconds(attend())
        except triton.runtime.errors.OutOfResources:
            print(f"{name}: does not fit")
    return dict(sorted(found.items(), key=lambda item: item[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--shared", type=int, default=4096)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    device = select_device("cuda", num_threads=None)
    num_slots = args.shared + args.rows * args.new
    config = ModelConfig.from_json(SHAPES, source="benchmark")
    pool = TokenToKVPool(config, num_slots=num_slots, dtype=torch.bfloat16, device=device.torch_device)
    for part in pool.layer(0):
        part.normal_()
    table = SlotTable(num_rows=args.rows, context_length=args.shared + args.new, device=device)
    batch = make_pass(args.rows, args.shared, args.new, num_slots)
    table.update(batch)
    forward_batch = ForwardBatch.from_batch(batch, device)
    qkv = torch.randn(args.rows * args.new, HEADS + 2 * GROUPS, DIM, device="cuda", dtype=torch.bfloat16)
    backends = [kind(pool=pool, slot_table=table, ops=device.ops) for kind in (TritonAttention, FlashInferAttention)]

    def attend(index: int) -> Callable[[], torch.Tensor]:
        attend = backends[index].prepare(forward_batch)
        assert isinstance(attend, (TritonExtend, CascadeAttend)[index]), "too small, or no compiled module"
        return lambda: attend(qkv, None, layer_id=0)

    alone, cascade = attend(0), attend(1)
    expected = alone().float()
    distance = float((cascade().float() - expected).norm() / expected.norm())
    times = microseconds(alone, cascade)
    result = {
        "alone_us": times[0],
        "cascade_us": times[1],
        "distance": distance,
        "kernels_us": kernels(cascade),
        "plan_us": plan_microseconds(lambda: attend(1)),
        "tuned_us": tune(lambda: attend(1)) if args.tune else {},
    }
    print(f"{torch.cuda.get_device_name()} torch {torch.__version__} python {platform.python_version()}")
    print(f"{args.rows} rows of {args.shared} shared + {args.new}")
    print(json.dumps(result, indent=1))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

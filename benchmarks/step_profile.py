"""Where the time of a decode step goes: what the host does, what the GPU does, and how much of each the other hides.

    python benchmarks/step_profile.py --model DIR [--tokenizer DIR] [--rows 64,256] [--context 512] [--steps 64]
        [--constraint regex] [--flags JSON] [--json FILE]

DIR holds a config.json; weights are random and made on the device.  For each number of rows as many requests with
random prompts of `--context` tokens are brought to decoding.  Then, each over `--steps` steps:

- the wall time of a step and the time that the device was in forward passes (by events on its stream): what is left is
  the host's time that nothing hides;
- what the host did meanwhile: plan, launch, sample, wait (for the tokens of the pass before), apply, the rest;
- by the profiler, in a run of its own, each kind of kernel: time and launches of a step, and the time between kernels.

Times are medians over the steps, in microseconds; those by kernel are means.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from offline import LOG_REGEX
from people_schema import PEOPLE

KINDS = {
    "matrix products": ("nvjet", "gemm", "splitK", "cutlass", "matvec", "gemv", "cublas"),
    "attention": ("attend_", "merge_pieces", "extend_kernel", "BatchDecode", "BatchPrefill"),
    "norms": ("rms_norm", "norm_heads", "layer_norm"),
    "rotary and store": ("rotate_and_store",),
    "activation": ("silu",),
    "draw": ("draw_", "best_block", "filter"),
    "masks": ("mask", "advance", "walk"),
    "copies": ("Memcpy", "Memset"),
}
PHASES = ("plan", "launch", "sample", "wait", "apply", "rest")


class Stopwatch:
    """Adds up the time that is spent in functions it wraps, by name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, method: str, name: str, *, inner: str | None = None) -> None:
        """Time a method; what `inner` took meanwhile is not counted."""
        call: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin, before = time.perf_counter(), self.spent[inner] if inner else 0.0
            try:
                return call(*args, **kwargs)
            finally:
                took = time.perf_counter() - begin
                self.spent[name] += took - (self.spent[inner] - before if inner else 0.0)

        setattr(owner, method, timed)


def open_core(model: Path, tokenizer: Path, flags: dict[str, Any]) -> tuple[Any, int]:
    from sgl_runtime.composition import ModelHost, build_scheduler
    from sgl_runtime.config_flags import build_config
    from sgl_runtime.serving.collector import spare_collector

    options = {"model_path": str(model), "tokenizer_path": str(tokenizer), "load_format": "dummy", **flags}
    config = build_config(options)
    vocab_size: int = json.loads((model / "config.json").read_text())["vocab_size"]
    scheduler = build_scheduler(config, ModelHost.open(config)).scheduler
    # As the scheduler's own process does once it has loaded what it keeps.
    spare_collector()
    return scheduler, vocab_size


def fill(scheduler: Any, *, rows: int, context: int, vocab_size: int, constraint: str, new_tokens: int) -> None:
    """Bring `rows` requests to decoding."""
    from sgl_runtime.ipc.messages import TokenizedRequest
    from sgl_runtime.sampling_params import SamplingParams

    rng = np.random.default_rng(rows)
    settings: dict[str, Any] = {"max_new_tokens": new_tokens, "temperature": 1.0, "ignore_eos": True}
    if constraint == "json":
        settings |= {"json_schema": json.dumps(PEOPLE), "ignore_eos": False}
    elif constraint == "regex":
        settings |= {"regex": LOG_REGEX, "ignore_eos": False}
    for index, ids in enumerate(rng.integers(1000, vocab_size - 1000, (rows, context)).tolist()):
        sampling = SamplingParams.from_dict(settings)
        scheduler.accept(TokenizedRequest(rid=f"{rows}-{index}", input_ids=ids, sampling=sampling))
    seen: set[str] = set()
    while len(seen) < rows:
        seen |= {delta.rid for delta in scheduler.step() if getattr(delta, "new_ids", None)}
    for _ in range(8):
        scheduler.step()


def end(scheduler: Any) -> None:
    """Let go of all requests and of the cache."""
    from sgl_runtime.ipc.messages import AbortRequest, FlushCacheRequest

    scheduler.accept(AbortRequest(request_id="profile", abort_all=True))
    while scheduler.has_work():
        scheduler.step()
    scheduler.accept(FlushCacheRequest(request_id="profile"))


def measure_host(scheduler: Any, watch: Stopwatch, steps: int) -> dict[str, float]:
    """Medians of a step, in microseconds, and the share of the wall time that no forward pass fills."""
    rows: dict[str, list[float]] = defaultdict(list)
    forward = scheduler.stats()["forward_seconds_total"]
    begin = time.perf_counter()
    for _ in range(steps):
        before = dict(watch.spent)
        start = time.perf_counter()
        scheduler.step()
        took = time.perf_counter() - start
        parts = {name: watch.spent[name] - before.get(name, 0.0) for name in PHASES[:-1]}
        for name, value in {**parts, "rest": took - sum(parts.values()), "step": took}.items():
            rows[name].append(value * 1e6)
    wall = time.perf_counter() - begin
    busy = scheduler.stats()["forward_seconds_total"] - forward
    result = {name: statistics.median(values) for name, values in rows.items()}
    return {**result, "forward": busy / steps * 1e6, "uncovered_share": max(0.0, 1 - busy / wall)}


def kind_of(name: str) -> str:
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "others")


def measure_kernels(scheduler: Any, steps: int) -> dict[str, Any]:
    """By kind of kernel: microseconds and launches of a step; and of the span, what no kernel fills."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            scheduler.step()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    names: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    busy, last = 0.0, 0.0
    for event in sorted(events, key=lambda event: event.time_range.start):
        start, stop = event.time_range.start, event.time_range.end
        for table, key in ((kinds, kind_of(event.name)), (names, event.name)):
            table[key][0] += (stop - start) / steps
            table[key][1] += 1 / steps
        busy += max(0.0, stop - max(start, last))
        last = max(last, stop)
    span = last - min(event.time_range.start for event in events)
    top = sorted(names.items(), key=lambda item: -item[1][0])[:12]
    return {"kinds": dict(kinds), "kernels": dict(top), "busy": busy / steps, "between": (span - busy) / steps}


def report(title: str, host: dict[str, float], kernels: dict[str, Any]) -> None:
    print(f"\n{title}: step {host['step']:.0f} us, forward passes {host['forward']:.0f} us,"
          f" {host['uncovered_share']:.1%} of the time outside of them")  # fmt: skip
    print("  host: " + ", ".join(f"{name} {host[name]:.0f}" for name in PHASES))
    print(f"  kernels {kernels['busy']:.0f} us, between them {kernels['between']:.0f} us (profiled)")
    for name, (took, count) in sorted(kernels["kinds"].items(), key=lambda item: -item[1][0]):
        print(f"    {name:<20} {took:>9.1f} us {count:>7.1f} launches")
    for name, (took, count) in kernels["kernels"].items():
        print(f"      {name[:70]:<70} {took:>9.1f} us {count:>7.1f} x {took / count:>7.2f}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--rows", default="64,256")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--constraint", choices=["none", "json", "regex"], default="none")
    parser.add_argument("--flags", default="{}", help="further options of the engine, as JSON")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("step_profile needs a CUDA device; this machine has none", file=sys.stderr)
        return 2
    versions = f"torch {torch.__version__} python {platform.python_version()}"
    print(f"{torch.cuda.get_device_name()} {versions} {args.model.name}")
    scheduler, vocab_size = open_core(args.model, args.tokenizer or args.model, json.loads(args.flags))
    watch = Stopwatch()
    watch.wrap(scheduler._planner, "next_pass", "plan")
    watch.wrap(scheduler._executor, "launch", "launch")
    watch.wrap(scheduler._executor, "sample", "sample")
    watch.wrap(scheduler, "_finish_pass", "apply", inner="wait")
    from sgl_runtime.executor.local import LocalTokens

    watch.wrap(LocalTokens, "wait", "wait")
    results = []
    for rows in map(int, args.rows.split(",")):
        room = 3 * args.steps + 32
        fill(scheduler, rows=rows, context=args.context, vocab_size=vocab_size, constraint=args.constraint,
             new_tokens=room)  # fmt: skip
        host = measure_host(scheduler, watch, args.steps)
        kernels = measure_kernels(scheduler, min(args.steps, 16))
        report(f"{rows} rows of {args.context}, constraint {args.constraint}", host, kernels)
        results.append({"rows": rows, "context": args.context, "constraint": args.constraint, **host, **kernels})
        end(scheduler)
    scheduler.close()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

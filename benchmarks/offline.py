"""Offline throughput of whole workloads on a GPU, the same work as in the table of docs/performance.md.

    python benchmarks/offline.py --models FOLDER [--workloads single,batch,...] [--runs 3] [--through engine]
        [--json FILE] [--profile]

FOLDER holds m8b (Llama-3.1-8B's shape, with a tokenizer of 131,072 tokens) and m06b (Qwen3-0.6B's shape).  Weights are
random and made on the device.  Prompts are uniform random ids, temperature is 1, end of sequence is ignored where
outputs are free.  `--through core` drives the scheduler itself, without tokenizer manager and detokenizer.  Prints
medians of the runs; the cache is flushed before each.
"""

import argparse
import gc
import json
import logging
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from people_schema import PEOPLE

LOG_LINE = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} (DEBUG|INFO|WARN|ERROR) [a-z]{3,12}: [^\n]{1,80}\n"
LOG_REGEX = f"({LOG_LINE}){{100}}"

Requests = list[tuple[list[int], dict[str, Any]]]
Run = Callable[[Requests], int]
"""Runs requests to their ends; how many tokens they generated."""


def prompts(count: int, length: int, vocab_size: int, rng: np.random.Generator) -> list[list[int]]:
    return rng.integers(1000, vocab_size - 1000, (count, length)).tolist()


def free(max_new: int) -> dict[str, Any]:
    return {"max_new_tokens": max_new, "temperature": 1.0, "ignore_eos": True}


def workload(name: str, vocab_size: int, rng: np.random.Generator) -> Requests:
    match name:
        case "batch":
            return [(ids, free(256)) for ids in prompts(256, 512, vocab_size, rng)]
        case "single" | "single-nano":
            return [(ids, free(256)) for ids in prompts(1, 128, vocab_size, rng)]
        case "prefix":
            (shared,) = prompts(1, 4096, vocab_size, rng)
            return [(shared + ids, free(64)) for ids in prompts(256, 64, vocab_size, rng)]
        case "prefill":
            return [(ids, free(1)) for ids in prompts(32, 4096, vocab_size, rng)]
        case "free":
            return [(ids, free(256)) for ids in prompts(256, 128, vocab_size, rng)]
        case "json":
            settings = {"max_new_tokens": 256, "temperature": 1.0, "json_schema": json.dumps(PEOPLE)}
            return [(ids, settings) for ids in prompts(256, 128, vocab_size, rng)]
        case "regex":
            settings = {"max_new_tokens": 256, "temperature": 1.0, "regex": LOG_REGEX}
            return [(ids, settings) for ids in prompts(256, 128, vocab_size, rng)]
        case "nano":
            lengths = rng.integers(100, 1025, (256, 2))
            return [(prompts(1, int(a), vocab_size, rng)[0], free(int(b))) for a, b in lengths]
    raise SystemExit(f"no workload {name!r}")


def open_engine(folder: Path, tokenizer: Path, flags: dict[str, Any]) -> tuple[Run, Callable[[], None], Any]:
    from sgl_runtime.engine import Engine

    engine = Engine(str(folder), tokenizer_path=str(tokenizer), load_format="dummy", **flags)

    def run(requests: Requests) -> int:
        replies = engine.generate(
            input_ids=[ids for ids, _ in requests], sampling_params=[settings for _, settings in requests]
        )
        return sum(reply["meta_info"]["completion_tokens"] for reply in replies)

    return run, engine.flush_cache, engine


def open_core(folder: Path, tokenizer: Path, flags: dict[str, Any]) -> tuple[Run, Callable[[], None], Any]:
    from sgl_runtime.composition import ModelHost, build_scheduler
    from sgl_runtime.config_flags import build_config
    from sgl_runtime.ipc.messages import FlushCacheRequest, TokenDelta, TokenizedRequest
    from sgl_runtime.sampling_params import SamplingParams
    from sgl_runtime.serving.collector import spare_collector

    config = build_config(
        {"model_path": str(folder), "tokenizer_path": str(tokenizer), "load_format": "dummy", **flags}
    )
    scheduler = build_scheduler(config, ModelHost.open(config)).scheduler
    # As the scheduler's own process does once it has loaded what it keeps.
    spare_collector()

    def run(requests: Requests) -> int:
        for index, (ids, settings) in enumerate(requests):
            scheduler.accept(
                TokenizedRequest(rid=str(index), input_ids=ids, sampling=SamplingParams.from_dict(settings))
            )
        total = 0
        while scheduler.has_work():
            for delta in scheduler.step():
                if isinstance(delta, TokenDelta):
                    total += len(delta.new_ids)
        return total

    def flush() -> None:
        scheduler.accept(FlushCacheRequest(request_id="x"))

    run.busy_seconds = lambda: scheduler.stats()["forward_seconds_total"]
    return run, flush, scheduler


def profile_step(run: Run, requests: Requests) -> None:
    """Where the time of some decode steps goes, by kernel and by function of the host."""
    import torch

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as profile:
        run([(ids, {**settings, "max_new_tokens": min(settings["max_new_tokens"], 16)}) for ids, settings in requests])
    print(profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60))
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=60))


def measure(name: str, run: Run, flush: Callable[[], None], vocab_size: int, runs: int) -> dict[str, Any]:
    times, counts = [], []
    for index in range(runs + 1):
        flush()
        requests = workload(name, vocab_size, np.random.default_rng(index))
        busy = getattr(run, "busy_seconds", lambda: float("nan"))
        before = busy()
        begin = time.perf_counter()
        count = run(requests)
        took = time.perf_counter() - begin
        share = (busy() - before) / took
        if index:
            # The first run warms up.
            times.append(took)
            counts.append(count)
    seconds = statistics.median(times)
    rate = statistics.median(count / took for count, took in zip(counts, times, strict=True))
    each = [round(took, 3) for took in times]
    print(f"{name:<12} {seconds:>8.3f} s {rate:>10.0f} tokens/s  {each} forward {share:.2f}", flush=True)
    return {"workload": name, "seconds": seconds, "tokens_per_second": rate, "runs": times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--workloads", default="single,batch,free,prefix,prefill,json,regex,nano,single-nano")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--through", choices=["engine", "core"], default="engine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show the engine's log, with milliseconds since start")
    parser.add_argument("--flags", default="{}", help="further options of the engine, as JSON")
    args = parser.parse_args()
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s %(message)s")
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{card} torch {torch.__version__} python {platform.python_version()}")
    results = []
    for folder in ("m8b", "m06b"):
        names = [name for name in args.workloads.split(",") if ("nano" in name) == (folder == "m06b")]
        if not names:
            continue
        begin = time.perf_counter()
        opener = open_engine if args.through == "engine" else open_core
        run, flush, owner = opener(args.models / folder, args.models / "m8b", json.loads(args.flags))
        vocab_size = json.loads((args.models / folder / "config.json").read_text())["vocab_size"]
        run([(prompts(1, 16, vocab_size, np.random.default_rng(0))[0], free(1))])
        print(f"{folder}: {time.perf_counter() - begin:.1f} s to the first token", flush=True)
        for name in names:
            try:
                results.append(measure(name, run, flush, vocab_size, args.runs))
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
            if args.profile:
                profile_step(run, workload(name, vocab_size, np.random.default_rng(9)))
        close = getattr(owner, "shutdown", None) or owner.close
        close()
        del run, flush, owner, close
        gc.collect()
        torch.cuda.empty_cache()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the language itself costs: time for each gen, threads and memory, with a scripted model in place of a real one.

Three workloads: `run_batch` of a plain program, `run_batch` of an async one, and as many async programs at once.  The
same requests are also sent to the scripted model directly: that time is the model's own, and is taken off.

    python benchmarks/language_overhead.py [--items 5000] [--programs 1000] [--runs 5]
"""

import argparse
import asyncio
import gc
import platform
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable

import sgl
from sgl.backends.base import GenRequest, Prompt
from sgl.sampling import RUN_DEFAULTS

GENS_PER_PROGRAM = 4
TARGET_US = 150.0
MAX_THREADS = 200
MEMORY_SIZES = (1000, 5000)


@sgl.function
def plain(s, number):
    s += f"Item {number}:"
    for index in range(GENS_PER_PROGRAM):
        s += " next " + sgl.gen(f"v{index}")
    return s["v0"]


@sgl.function
async def eager(s, number):
    s += f"Item {number}:"
    for index in range(GENS_PER_PROGRAM):
        s += " next " + sgl.gen(f"v{index}")
    return await s["v0"]


def scripted() -> sgl.ScriptedBackend:
    return sgl.ScriptedBackend("ok")


def model_seconds(num_programs: int) -> float:
    """Time that the scripted model takes for the requests of so many programs."""
    backend = scripted()

    async def main() -> float:
        begin = time.perf_counter()
        for number in range(num_programs):
            prompt = Prompt(pending=f"Item {number}:")
            for _ in range(GENS_PER_PROGRAM):
                request = GenRequest(prompt=prompt.append(" next "), sampling=RUN_DEFAULTS)
                generation = await backend.generate(request)
                assert generation.prompt is not None, "a whole generation has a prompt"
                prompt = generation.prompt
        return time.perf_counter() - begin

    return asyncio.run(main())


def run_plain_batch(num_programs: int) -> None:
    states = plain.run_batch([(number,) for number in range(num_programs)], backend=scripted())
    assert len(states) == num_programs


def run_async_batch(num_programs: int) -> None:
    states = eager.run_batch([(number,) for number in range(num_programs)], backend=scripted())
    assert len(states) == num_programs


def run_async_programs(num_programs: int) -> None:
    backend = scripted()

    async def main() -> None:
        await asyncio.gather(*(eager.arun(number, backend=backend) for number in range(num_programs)))

    asyncio.run(main())


class ThreadWatch:
    """Notes the most threads that were alive at once, looking every few milliseconds."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "ThreadWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            self.most = max(self.most, threading.active_count())


def measure(name: str, action: Callable[[int], None], num_programs: int, runs: int) -> bool:
    """Print the cost of a workload; whether it meets the target."""
    num_gens = num_programs * GENS_PER_PROGRAM
    action(num_programs // 10)
    totals, models = [], []
    with ThreadWatch() as threads:
        for _ in range(runs):
            gc.collect()
            begin = time.perf_counter()
            action(num_programs)
            totals.append((time.perf_counter() - begin) / num_gens * 1e6)
            gc.collect()
            models.append(model_seconds(num_programs) / num_gens * 1e6)
    total, model = statistics.median(totals), statistics.median(models)
    overhead = statistics.median(whole - own for whole, own in zip(totals, models, strict=True))
    is_met = overhead < TARGET_US and threads.most < MAX_THREADS
    print(
        f"{name:34s} {num_gens:6d} gens  total {total:6.1f} us  model {model:5.1f} us  overhead {overhead:6.1f} us "
        f"a gen (target {TARGET_US:.0f})  threads {threads.most:3d}  {'ok' if is_met else 'MISSED'}",
        flush=True,
    )
    return is_met


def memory_peak_bytes(num_items: int) -> int:
    """Most memory that a generator batch takes at once, without the list of its items and what the script keeps."""
    backend = scripted()
    items = [(number,) for number in range(num_items)]
    gc.collect()
    tracemalloc.start()
    for index, _ in enumerate(plain.run_batch(items, backend=backend, generator_style=True)):
        if index % 100 == 0:
            backend.model.calls.clear()
            sgl.flush_cache(backend)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measure_memory() -> bool:
    """Print the memory of generator batches of two sizes; whether it does not grow with the batch."""
    small, large = (memory_peak_bytes(size) for size in MEMORY_SIZES)
    is_met = large < 1.5 * small
    print(
        f"memory of a generator batch: peak {small / 2**20:.2f} MiB for {MEMORY_SIZES[0]} items, "
        f"{large / 2**20:.2f} MiB for {MEMORY_SIZES[1]}  {'ok' if is_met else 'MISSED'}"
    )
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5000, help="items of the batches (default 5000)")
    parser.add_argument("--programs", type=int, default=1000, help="async programs at once (default 1000)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each workload (default 5)")
    arguments = parser.parse_args()
    print(f"python={platform.python_version()} machine={platform.machine()} sgl={sgl.__version__}")
    met = [
        measure("run_batch, plain program", run_plain_batch, arguments.items, arguments.runs),
        measure("run_batch, async program", run_async_batch, arguments.items, arguments.runs),
        measure("async programs at once", run_async_programs, arguments.programs, arguments.runs),
        measure_memory(),
    ]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()

"""What the scheduler costs the host for each decode step, without a device: planning, launching nothing, applying.

    python benchmarks/scheduler_cost.py [--steps 300] [--rows 1,16,64,128,256,512] [--finished 0,10000] [--overlap]

The real scheduler runs over an executor that answers at once with random tokens.  Prints for each number of running
requests the median and the 99th percentile of a step, what it is for each row, and the same after many requests have
ended, which must change nothing.  Then the same for requests that all have penalties, or stop strings.
"""

import argparse
import gc
import platform
import statistics
import sys
import time

import numpy as np

from sgl_runtime.batch import Batch, LogitEdits, StepOutput
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.tokenizer.vocabulary import Vocabulary

NUM_TOKENS = 32_000
PROMPT_LEN = 128
TARGET_P50_MS, TARGET_P99_MS = 1.0, 2.0
KINDS = {
    "plain": {},
    "stop strings": {"stop": ("\n\n", "###")},
    "penalties": {"frequency_penalty": 0.1},
}


class InstantExecutor:
    """Answers at once; its own time is kept apart."""

    def __init__(self, overlap: bool) -> None:
        self.runs_beside_host = overlap
        self.seconds = 0.0
        self._random = np.random.default_rng(0)

    def launch(self, batch: Batch) -> "InstantStep":
        begin = time.perf_counter()
        ids = np.where(batch.samples, self._random.integers(1000, NUM_TOKENS, batch.size), -1)
        step = InstantStep(
            StepOutput(
                token_ids=ids,
                logprobs=np.zeros(batch.size, dtype=np.float32),
                input_logprobs=(None,) * batch.size,
            )
        )
        self.seconds += time.perf_counter() - begin
        return step

    def open_grammars(self, token_bytes: list[bytes | None], **sizes: object) -> None:
        return None

    def forward_seconds(self) -> float:
        return self.seconds


class InstantStep:
    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def sample(
        self, masks: np.ndarray | None, logit_edits: LogitEdits | None, forced_ids: np.ndarray | None = None
    ) -> "InstantStep":
        return self

    def wait(self) -> StepOutput:
        return self._output


def build(num_rows: int, overlap: bool) -> tuple[Scheduler, InstantExecutor]:
    num_slots = num_rows * 2048 + 65_536
    config = RuntimeConfig(
        model=ModelSection(model_path="none"),
        cache=CacheConfig(max_total_tokens=num_slots),
        scheduler=SchedulerConfig(
            max_running_requests=num_rows, max_prefill_tokens=65_536, chunked_prefill_size=65_536
        ),
    )
    executor = InstantExecutor(overlap)
    words = [b" w%d" % index for index in range(NUM_TOKENS)]
    scheduler = assemble_scheduler(
        config,
        executor,
        vocabulary=Vocabulary(words, frozenset()),
        eos_ids=frozenset({0}),
        num_logits=NUM_TOKENS,
        context_length=4096,
    )
    return scheduler, executor


def request(rid: str, max_new: int, sampling: dict[str, object], random: np.random.Generator) -> TokenizedRequest:
    return TokenizedRequest(
        rid=rid,
        input_ids=random.integers(1000, NUM_TOKENS, PROMPT_LEN).tolist(),
        sampling=SamplingParams(max_new_tokens=max_new, **sampling),
    )


def finish_many(scheduler: Scheduler, count: int, random: np.random.Generator) -> None:
    for index in range(count):
        scheduler.accept(request(f"old{index}", 1, {}, random))
        if index % 64 == 63:
            while scheduler.has_work():
                scheduler.step()
    while scheduler.has_work():
        scheduler.step()


def step_times(num_rows: int, steps: int, *, finished: int, sampling: dict[str, object], overlap: bool) -> list[float]:
    """Milliseconds of each decode step, without the executor's own."""
    random = np.random.default_rng(1)
    scheduler, executor = build(num_rows, overlap)
    finish_many(scheduler, finished, random)
    for index in range(num_rows):
        scheduler.accept(request(f"r{index}", steps + 200, sampling, random))
    while scheduler.stats()["num_running"] < num_rows:
        scheduler.step()
    for _ in range(20):
        scheduler.step()
    return timed_steps(scheduler, executor, steps)


def timed_steps(scheduler: Scheduler, executor: InstantExecutor, steps: int) -> list[float]:
    """Milliseconds of each of some decode steps, without the executor's own; the scheduler is closed behind them."""
    num_rows = scheduler.stats()["num_running"]
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(steps):
        before, begin = executor.seconds, time.perf_counter()
        scheduler.step()
        times.append((time.perf_counter() - begin - (executor.seconds - before)) * 1000)
    assert scheduler.stats()["num_running"] == num_rows, "all still run"
    scheduler.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", default="1,16,64,128,256,512")
    parser.add_argument("--finished", default="0,10000")
    parser.add_argument("--overlap", action="store_true")
    args = parser.parse_args()
    print(f"{platform.machine()} python {platform.python_version()} numpy {np.__version__} overlap={args.overlap}")
    print(f"{'requests':>13} {'ended':>6} {'rows':>5} {'p50 ms':>8} {'p99 ms':>8} {'us a row':>9}")
    held = True
    cases = [("plain", int(ended), int(rows)) for ended in args.finished.split(",") for rows in args.rows.split(",")]
    cases += [(kind, 0, 256) for kind in KINDS if kind != "plain"]
    for kind, ended, rows in cases:
        times = step_times(rows, args.steps, finished=ended, sampling=KINDS[kind], overlap=args.overlap)
        p50, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
        print(f"{kind:>13} {ended:>6} {rows:>5} {p50:>8.3f} {p99:>8.3f} {p50 * 1000 / rows:>9.2f}", flush=True)
        if kind == "plain" and rows == 256:
            held &= p50 < TARGET_P50_MS and p99 < TARGET_P99_MS
    print(f"256 rows under {TARGET_P50_MS} ms (p50) and {TARGET_P99_MS} ms (p99): {'held' if held else 'NOT held'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

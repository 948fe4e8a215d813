"""Replays traces on the real scheduler and cache in virtual time, to compare policies; no model and no device.

    python benchmarks/schedule_sim.py [--traces chat,agents,few-shot,tree-of-thought] [--policies lpm,fcfs]
        [--requests 3000] [--rate R] [--slots N] [--host-ratio 0] [--jobs 1] [--file TRACE] [--write FOLDER] [--json]

A pass takes, in seconds, a + b * (new tokens) + c * (context tokens, over all rows) + d * (new tokens times the context
of each) + e * (tokens copied between device and host).  The defaults stand for a model of 8 billion parameters in
bfloat16 on a GPU with 3 TB/s and 400 TFLOP/s: a reads the weights and starts the pass, b is their arithmetic, c reads
keys and values, d is attention's arithmetic, e the way to the host at 50 GB/s.  The host's own work takes no time.

The best hit rate is found offline (traces/best_order.py): of a cache of any size, and of this size when all requests
are there from the start.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
from traces.best_order import best_hit_rates
from traces.generators import TRAFFIC
from traces.trace import VOCABULARY_SIZE, TraceRequest, TraceTokens, drawn_ids, read_trace, write_trace

from sgl_runtime.batch import Batch, LogitEdits, SlotCopies, StepOutput
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.tokenizer.vocabulary import Vocabulary

CONTEXT_LENGTH = 16_384


@dataclass(frozen=True)
class CostModel:
    """Seconds of a pass; see the top of this file."""

    a: float = 6e-3
    b: float = 40e-6
    c: float = 44e-9
    d: float = 1.3e-9
    e: float = 2.6e-6

    def seconds(self, batch: Batch) -> float:
        new, context = batch.extend_lens.astype(np.float64), batch.context_lens.astype(np.float64)
        pairs = float(new @ (context - new / 2))
        copied = _num_copied(batch.stores) + _num_copied(batch.loads)
        return self.a + self.b * float(new.sum()) + self.c * float(context.sum()) + self.d * pairs + self.e * copied


def _num_copied(copies: SlotCopies | None) -> int:
    return 0 if copies is None else len(copies.device_slots)


class SimulatedExecutor:
    """Moves a clock on, and draws tokens that follow from each row's random number."""

    def __init__(self, cost: CostModel) -> None:
        self.runs_beside_host = False
        self.now = 0.0
        self.num_passes = 0
        self._cost = cost

    def launch(self, batch: Batch) -> "SimulatedStep":
        self.now += self._cost.seconds(batch)
        self.num_passes += 1
        ids = np.where(batch.samples, drawn_ids(batch.sampling.uniforms), -1)
        nothing = np.full(batch.size, np.nan, dtype=np.float32)
        return SimulatedStep(StepOutput(token_ids=ids, logprobs=nothing, input_logprobs=(None,) * batch.size))

    def open_grammars(self, token_bytes: list[bytes | None], **sizes: object) -> None:
        return None

    def forward_seconds(self) -> float:
        return self.now


@dataclass(frozen=True)
class SimulatedStep:
    output: StepOutput

    def sample(
        self, masks: np.ndarray | None, logit_edits: LogitEdits | None, forced_ids: np.ndarray | None = None
    ) -> "SimulatedStep":
        return self

    def wait(self) -> StepOutput:
        return self.output


@dataclass(frozen=True)
class Report:
    """What came of a trace under a policy."""

    trace: str
    policy: str
    hit_rate: float
    best_hit_rate: float
    best_hit_rate_this_size: float
    requests_per_s: float
    output_tokens_per_s: float
    first_token_p50_s: float
    first_token_p99_s: float
    latency_p50_s: float
    latency_p99_s: float
    num_passes: int
    num_retracted: int
    cached_tokens: int
    wall_s: float
    simulated_requests_per_wall_s: float


class Simulation:
    """One trace on one scheduler."""

    def __init__(
        self, requests: list[TraceRequest], tokens: TraceTokens, scheduler: Scheduler, clock: SimulatedExecutor
    ) -> None:
        self._requests, self._tokens = requests, tokens
        self._scheduler, self._clock = scheduler, clock
        self._followers: list[list[int]] = [[] for _ in requests]
        self._due: list[tuple[float, int]] = []
        for place, request in enumerate(requests):
            if request.after < 0:
                heappush(self._due, (request.delay_s, place))
            else:
                self._followers[request.after].append(place)
        self.arrived = np.zeros(len(requests))
        self.first_token = np.zeros(len(requests))
        self.ended = np.zeros(len(requests))
        self.num_cached = self.num_prompt = self.most_cached = 0

    def run(self) -> None:
        while self._due or self._scheduler.has_work():
            if not self._scheduler.has_work():
                self._clock.now = max(self._clock.now, self._due[0][0])
            while self._due and self._due[0][0] <= self._clock.now:
                self._send(*heappop(self._due))
            for output in self._scheduler.step():
                if isinstance(output, TokenDelta):
                    self._take(output)
        assert self.ended.all(), "every request ends"

    def _send(self, now: float, place: int) -> None:
        request = self._requests[place]
        self.arrived[place] = now
        self._scheduler.accept(
            TokenizedRequest(
                rid=str(place),
                # An array does for a list here, and is faster.
                input_ids=self._tokens.prompt(place),
                sampling=SamplingParams(
                    max_new_tokens=request.output_len, temperature=1.0, ignore_eos=True, sampling_seed=request.seed
                ),
            )
        )

    def _take(self, delta: TokenDelta) -> None:
        place = int(delta.rid)
        if not self.first_token[place]:
            self.first_token[place] = self._clock.now
            self.num_cached += delta.cached_tokens
            self.num_prompt += delta.prompt_tokens
        if delta.finish is not None:
            assert delta.finish.type == "length", delta.finish
            self.ended[place] = self._clock.now
            for follower in self._followers[place]:
                heappush(self._due, (self._clock.now + self._requests[follower].delay_s, follower))


@dataclass(frozen=True)
class Job:
    """One trace under one policy.

    Attributes:
        name: Of the trace.
        requests: The trace.
        policy: Of the waiting queue.
        slots: Tokens that the device holds.
        host_slots: Tokens that the host holds.
        page_size: Tokens of a page.
        max_running: Most requests that decode together.
    """

    name: str
    requests: list[TraceRequest]
    policy: str
    slots: int
    host_slots: int
    page_size: int
    max_running: int

    def run(self) -> Report:
        tokens = TraceTokens(self.requests)
        best, best_this_size = best_hit_rates(self.requests, tokens, capacity=self.slots)
        scheduler, clock = self._build()
        simulation = Simulation(self.requests, tokens, scheduler, clock)
        begin = time.perf_counter()
        simulation.run()
        wall = time.perf_counter() - begin
        scheduler.check()
        stats = scheduler.stats()
        waits = simulation.first_token - simulation.arrived
        latencies = simulation.ended - simulation.arrived
        return Report(
            trace=self.name,
            policy=self.policy,
            hit_rate=simulation.num_cached / simulation.num_prompt,
            best_hit_rate=best,
            best_hit_rate_this_size=best_this_size,
            requests_per_s=len(self.requests) / clock.now,
            output_tokens_per_s=sum(request.output_len for request in self.requests) / clock.now,
            first_token_p50_s=float(np.median(waits)),
            first_token_p99_s=float(np.quantile(waits, 0.99)),
            latency_p50_s=float(np.median(latencies)),
            latency_p99_s=float(np.quantile(latencies, 0.99)),
            num_passes=clock.num_passes,
            num_retracted=stats["num_retracted_total"],
            cached_tokens=stats["cached_slots"],
            wall_s=wall,
            simulated_requests_per_wall_s=len(self.requests) / wall,
        )

    def _build(self) -> tuple[Scheduler, SimulatedExecutor]:
        executor = SimulatedExecutor(CostModel())
        config = RuntimeConfig(
            model=ModelSection(model_path="none"),
            cache=CacheConfig(
                max_total_tokens=self.slots, page_size=self.page_size, enable_hierarchical_cache=self.host_slots > 0
            ),
            scheduler=SchedulerConfig(
                max_running_requests=self.max_running, chunked_prefill_size=8192, schedule_policy=self.policy
            ),
        )
        scheduler = assemble_scheduler(
            config,
            executor,
            vocabulary=Vocabulary([b" w%d" % index for index in range(VOCABULARY_SIZE)], frozenset()),
            eos_ids=frozenset(),
            num_logits=VOCABULARY_SIZE,
            context_length=CONTEXT_LENGTH,
            num_host_slots=self.host_slots,
        )
        return scheduler, executor


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default=",".join(TRAFFIC), help="kinds to generate")
    parser.add_argument("--policies", default="lpm,dfs-weight,fcfs,random")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rate", type=float, help="requests a second of virtual time; each kind has its own")
    parser.add_argument("--slots", type=int, help="tokens that the device holds; each kind has its own number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host-ratio", type=float, default=0.0, help="slots in host memory for each on the device")
    parser.add_argument("--page-size", type=int, default=1)
    parser.add_argument("--max-running", type=int, default=256)
    parser.add_argument("--file", type=Path, help="a trace to read instead")
    parser.add_argument("--write", type=Path, help="folder to write the generated traces to, and nothing else")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return parser.parse_args()


def make_jobs(options: argparse.Namespace) -> list[Job]:
    traces: list[tuple[str, list[TraceRequest], int]] = []
    if options.file is not None:
        traces.append((options.file.stem, read_trace(options.file), options.slots or 400_000))
    else:
        for name in options.traces.split(","):
            kind = TRAFFIC[name]
            requests = kind.generate(options.seed, options.requests, options.rate or kind.rate)
            traces.append((name, requests, options.slots or kind.slots))
    page_size = options.page_size
    return [
        Job(
            name,
            requests,
            policy,
            slots=slots // page_size * page_size,
            host_slots=int(slots * options.host_ratio) // page_size * page_size,
            page_size=page_size,
            max_running=options.max_running,
        )
        for name, requests, slots in traces
        for policy in options.policies.split(",")
    ]


COLUMNS = {
    "trace": ("trace", "<16"),
    "policy": ("policy", "<10"),
    "hit_rate": ("hit", ">6.3f"),
    "best_hit_rate": ("best", ">6.3f"),
    "best_hit_rate_this_size": ("sized", ">6.3f"),
    "requests_per_s": ("req/s", ">7.1f"),
    "output_tokens_per_s": ("out tok/s", ">9.0f"),
    "first_token_p50_s": ("ttft p50", ">8.3f"),
    "first_token_p99_s": ("ttft p99", ">8.3f"),
    "latency_p50_s": ("all p50", ">7.2f"),
    "latency_p99_s": ("all p99", ">7.2f"),
    "num_retracted": ("retracted", ">9"),
    "cached_tokens": ("cached", ">9"),
    "simulated_requests_per_wall_s": ("wall req/s", ">10.0f"),
}
"""Of the table: title and form of each figure."""


def print_report(report: Report, *, as_json: bool) -> None:
    values = asdict(report)
    line = " ".join(format(values[key], form) for key, (_, form) in COLUMNS.items())
    print(json.dumps(values) if as_json else line, flush=True)


def main() -> None:
    options = parse()
    jobs = make_jobs(options)
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        for job in jobs:
            write_trace(options.write / f"{job.name}.jsonl", job.requests)
        return
    if not options.json:
        print(" ".join(format(title, form.split(".")[0].rstrip("f")) for title, form in COLUMNS.values()))
    begin = time.perf_counter()
    if options.jobs == 1:
        for job in jobs:
            print_report(job.run(), as_json=options.json)
    else:
        with ProcessPoolExecutor(options.jobs) as pool:
            for report in pool.map(Job.run, jobs):
                print_report(report, as_json=options.json)
    if not options.json:
        wall = time.perf_counter() - begin
        total = sum(len(job.requests) for job in jobs)
        print(f"{total} requests in {wall:.1f} s, the search for the best order included: {total / wall:.0f} a second")


if __name__ == "__main__":
    main()

"""What constrained requests cost the host for each decode step where the device makes their masks.

    python benchmarks/constrained_cost.py [--steps 200] [--rows 256] [--runs 3] [--json FILE]

The real scheduler runs over an executor that stands for the device: it moves rows through their automata, draws bytes
that these allow, and keeps its own time apart.  A token is one byte, so that more of them are forced than with the
vocabulary of a model.  Requests start together, as those of a batch do, and so stand in the same forced text at first.
Prints the median, the 99th percentile and the longest step, in milliseconds, beside those of free requests.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from offline import LOG_REGEX
from people_schema import PEOPLE
from scheduler_cost import InstantExecutor, InstantStep, timed_steps

from sgl_runtime.batch import Batch, LogitEdits, StepOutput
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.tokenizer.vocabulary import Vocabulary

FIRST_BYTE = 1
"""Id of the token of byte 0; id 0 ends an output."""

QUOTE, QUOTE_SHARE = ord('"'), 0.1
"""How often a string ends where it may."""

KINDS: dict[str, dict[str, Any]] = {
    "free": {"ignore_eos": True},
    "json": {"json_schema": json.dumps(PEOPLE)},
    "regex": {"regex": LOG_REGEX},
}


class PlayedDevice(InstantExecutor):
    """Draws what automata allow."""

    def __init__(self) -> None:
        super().__init__(overlap=True)
        self.held: list[Any] = []
        self.places: dict[int, tuple[Any, int, tuple[int, ...]]] = {}
        self.random = np.random.default_rng(0)

    def open_grammars(self, token_bytes: list[bytes | None], **sizes: object) -> "PlayedDevice":
        return self

    def hold(self, automaton: Any) -> int:
        self.held.append(automaton)
        return len(self.held) - 1

    def let_go(self, handle: int) -> None:
        self.held[handle] = None

    def launch(self, batch: Batch) -> "PlayedStep":
        return PlayedStep(self, batch)

    def draw(self, row: int, forced: int) -> int:
        """The next token of a row."""
        place = self.places.get(row)
        if place is None:
            return FIRST_BYTE + int(self.random.integers(256))
        automaton, state, stack = place
        byte = forced - FIRST_BYTE if forced >= 0 else self._allowed(automaton, state, stack)
        after, behind = automaton.run(state, stack, bytes([byte]))
        assert after >= 0, "a token that is forced is allowed"
        self.places[row] = automaton, after, behind
        return FIRST_BYTE + byte

    def _allowed(self, automaton: Any, state: int, stack: tuple[int, ...]) -> int:
        # ASCII alone: what else strings may hold would only take longer to find.
        classes = automaton.table[state, automaton.byte_classes[:128]]
        found = np.flatnonzero(classes != -1)
        if QUOTE in found and self.random.random() < QUOTE_SHARE:
            return QUOTE
        for byte in self.random.permutation(found).tolist():
            if automaton.run(state, stack, bytes([byte]))[0] >= 0:
                return int(byte)
        raise AssertionError("nothing can follow")


class PlayedStep(InstantStep):
    def __init__(self, device: PlayedDevice, batch: Batch) -> None:
        self._device, self._batch = device, batch

    def sample(
        self, masks: np.ndarray | None, logit_edits: LogitEdits | None, forced_ids: np.ndarray | None = None
    ) -> "PlayedStep":
        begin = time.perf_counter()
        device, batch = self._device, self._batch
        if (moves := batch.grammar_moves) is not None:
            for row, handle, state, stack in zip(
                moves.rows.tolist(), moves.handles, moves.states, moves.stacks, strict=True
            ):
                device.places.pop(row, None)
                if handle is not None:
                    device.places[row] = device.held[handle], state, stack
        forced = [-1] * batch.size if forced_ids is None else forced_ids.tolist()
        drawn = [
            device.draw(row, token) if samples else -1
            for row, token, samples in zip(batch.row_ids.tolist(), forced, batch.samples.tolist(), strict=True)
        ]
        self._output = StepOutput(
            token_ids=np.array(drawn),
            logprobs=np.zeros(batch.size, dtype=np.float32),
            input_logprobs=(None,) * batch.size,
        )
        device.seconds += time.perf_counter() - begin
        return self


def step_times(kind: str, num_rows: int, steps: int) -> list[float]:
    """Milliseconds of each decode step, without the device's own."""
    device = PlayedDevice()
    scheduler = assemble_scheduler(
        RuntimeConfig(
            model=ModelSection(model_path="none"),
            cache=CacheConfig(max_total_tokens=num_rows * 1024),
            scheduler=SchedulerConfig(max_running_requests=num_rows, max_prefill_tokens=65_536),
        ),
        device,
        vocabulary=Vocabulary([b"", *(bytes([byte]) for byte in range(256))], frozenset({0})),
        eos_ids=frozenset({0}),
        num_logits=FIRST_BYTE + 256,
        context_length=4096,
        encode=lambda text: [FIRST_BYTE + byte for byte in text.encode()],
    )
    random = np.random.default_rng(1)
    for index in range(num_rows):
        sampling = SamplingParams.from_dict({"max_new_tokens": steps + 50, "temperature": 1.0, **KINDS[kind]})
        ids = random.integers(FIRST_BYTE, 256, 64).tolist()
        scheduler.accept(TokenizedRequest(rid=str(index), input_ids=ids, sampling=sampling))
    while scheduler.stats()["num_running"] < num_rows:
        scheduler.step()
    return timed_steps(scheduler, device, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{platform.machine()} python {platform.python_version()} numpy {np.__version__}, {args.rows} rows")
    print(f"{'requests':>9} {'p50 ms':>8} {'p99 ms':>8} {'longest':>8}   medians of {args.runs} runs")
    found = []
    for kind in KINDS:
        runs = [sorted(step_times(kind, args.rows, args.steps)) for _ in range(args.runs)]
        p50, p99, longest = (
            statistics.median(times[min(int(len(times) * share), len(times) - 1)] for times in runs)
            for share in (0.5, 0.99, 1.0)
        )
        print(f"{kind:>9} {p50:>8.3f} {p99:>8.3f} {longest:>8.3f}", flush=True)
        found.append({"requests": kind, "p50_ms": p50, "p99_ms": p99, "longest_ms": longest})
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

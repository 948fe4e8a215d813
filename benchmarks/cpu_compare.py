"""Beside transformers on a CPU: the small model in float32, the same weights, one process, in turn.

    python benchmarks/cpu_compare.py            # about ten minutes on two cores
    python benchmarks/cpu_compare.py --runs 1   # a quick look

Each side runs in a process of its own, greedily, with end-of-sequence ignored; transformers as it comes.  For each
workload the two take turns, and the median of the runs and of the ratios within a turn is printed; above 1 we are
faster.  Prompts are fresh random tokens in every run, so nothing comes from the prefix cache but what a workload
shares.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from sgl_runtime.config import ModelSection
from sgl_runtime.engine import Engine
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.version import distribution_version

Prompt = list[int]


@dataclass(frozen=True)
class Workload:
    """Both sides run `count` requests; the figure is `work` over seconds, or seconds where `work` is None."""

    name: str
    ours: Callable[[], None]
    theirs: Callable[[], None]
    work: int | None
    unit: str


class Peer:
    """transformers' Llama on the dequantised weights."""

    def __init__(self, source: ModelSource) -> None:
        shapes = source.config
        config = LlamaConfig(
            vocab_size=shapes.vocab_size,
            hidden_size=shapes.hidden_size,
            intermediate_size=shapes.intermediate_size,
            num_hidden_layers=shapes.num_layers,
            num_attention_heads=shapes.num_heads,
            num_key_value_heads=shapes.num_kv_heads,
            rms_norm_eps=shapes.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": shapes.rope.theta},
            max_position_embeddings=shapes.context_length,
            tie_word_embeddings=shapes.tie_embeddings,
        )
        self.model = LlamaForCausalLM(config).eval()
        self.model.load_state_dict(dict(iter_weights(source)), strict=False)
        self.model.tie_weights()

    @torch.inference_mode()
    def generate(self, prompts: list[Prompt], num_new: int, cache: DynamicCache | None = None) -> None:
        ids = torch.tensor(prompts)
        self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=2,
            past_key_values=cache,
        )

    @torch.inference_mode()
    def branches(self, prefix: Prompt, tails: list[Prompt], num_new: int) -> None:
        """The prefix once, its cache repeated for every branch, then the branches as one batch."""
        cache = self.model(torch.tensor([prefix]), past_key_values=DynamicCache(), use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(tails))
        self.generate([prefix + tail for tail in tails], num_new, cache)


def serve_peer(calls: Connection) -> None:
    """Main of the peer's process: method names and arguments in, an answer when each is done."""
    peer = Peer(ModelSource.open(ModelSection(model_path="smollm2")))
    calls.send("ready")
    while (call := calls.recv()) is not None:
        method, arguments = call
        {"generate": peer.generate, "branches": peer.branches}[method](*arguments)
        calls.send("done")


class PeerProcess:
    """`Peer` in a process of its own."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        context.Process(target=serve_peer, args=(theirs,), daemon=True).start()
        theirs.close()
        self._calls.recv()

    def generate(self, *arguments: Any) -> None:
        self._call("generate", arguments)

    def branches(self, *arguments: Any) -> None:
        self._call("branches", arguments)

    def close(self) -> None:
        self._calls.send(None)

    def _call(self, method: str, arguments: tuple[Any, ...]) -> None:
        self._calls.send((method, arguments))
        self._calls.recv()


class Ours:
    """The engine in this process."""

    def __init__(self) -> None:
        self.engine = Engine(model_path="smollm2", log_level="error")

    def generate(self, prompts: list[Prompt], num_new: int) -> None:
        params = {"max_new_tokens": num_new, "temperature": 0.0, "ignore_eos": True}
        replies = self.engine.generate(input_ids=prompts, sampling_params=params)
        assert all(len(reply["output_ids"]) == num_new for reply in replies)

    def branches(self, prefix: Prompt, tails: list[Prompt], num_new: int) -> None:
        self.engine.generate(input_ids=prefix, sampling_params={"max_new_tokens": 0})
        self.generate([prefix + tail for tail in tails], num_new)


def workloads(ours: Ours, peer: PeerProcess) -> list[Workload]:
    rng = np.random.default_rng(0)

    def fresh(count: int, length: int) -> list[Prompt]:
        return rng.integers(1000, 48_000, size=(count, length)).tolist()

    def batch(name: str, count: int, length: int, num_new: int, unit: str, work: int) -> Workload:
        return Workload(
            name,
            lambda: ours.generate(fresh(count, length), num_new),
            lambda: peer.generate(fresh(count, length), num_new),
            work,
            unit,
        )

    return [
        batch("single stream, 128 in, 128 out", 1, 128, 128, "tokens/s", 128),
        batch("8 sequences, 128 in, 64 out", 8, 128, 64, "tokens/s", 8 * 64),
        batch("32 sequences, 32 in, 64 out", 32, 32, 64, "tokens/s", 32 * 64),
        batch("prefill 1,024 tokens", 1, 1024, 1, "tokens/s", 1024),
        Workload(
            "1,000-token prefix, 8 branches of 8 in, 32 out",
            lambda: ours.branches(*fresh(1, 1000), fresh(8, 8), 32),
            lambda: peer.branches(*fresh(1, 1000), fresh(8, 8), 32),
            None,
            "s",
        ),
    ]


def seconds(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure(workload: Workload, runs: int) -> dict[str, object]:
    workload.ours(), workload.theirs()
    pairs = [(seconds(workload.ours), seconds(workload.theirs)) for _ in range(runs)]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    scale = workload.work
    return {
        "workload": workload.name,
        "unit": workload.unit,
        "ours": ours if scale is None else scale / ours,
        "transformers": theirs if scale is None else scale / theirs,
        "ratio": statistics.median(b / a for a, b in pairs),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted turns of each workload (default 5)")
    parser.add_argument("--json", help="file for the figures")
    arguments = parser.parse_args()
    print(
        f"cores={os.cpu_count()} machine={platform.machine()} torch={torch.__version__} "
        f"transformers={transformers.__version__} sgl={distribution_version()}"
    )
    # The peer begins first: what the engine sets for its own threads must not reach it.
    peer = PeerProcess()
    ours = Ours()
    rows = []
    try:
        for workload in workloads(ours, peer):
            row = measure(workload, arguments.runs)
            rows.append(row)
            print(
                f"{row['workload']:48s} ours {row['ours']:8.1f}  transformers {row['transformers']:8.1f} "
                f"{row['unit']:9s} ratio {row['ratio']:5.2f}",
                flush=True,
            )
    finally:
        ours.engine.shutdown()
        peer.close()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()

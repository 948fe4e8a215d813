"""A real scheduler around the scripted executor, with one token for every byte."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fakes.scripted_executor import ScriptedExecutor
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, GrammarConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.tokenizer.vocabulary import Vocabulary

NUM_TOKENS = 258
EOS = 256
SPECIAL = 257
VOCABULARY = Vocabulary([*(bytes([i]) for i in range(256)), b"<eos>", b"<special>"], frozenset({EOS, SPECIAL}))


@dataclass
class Bench:
    scheduler: Scheduler
    executor: ScriptedExecutor


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def build(
        *,
        num_slots: int = 512,
        max_running: int = 8,
        context: int = 128,
        drawn: int = 256,
        cached: bool = True,
        jump_forward: bool = True,
        encode: Callable[[str], list[int]] | None = None,
        compile_timeout: float = 30.0,
        overlap: bool = False,
        host_slots: int = 0,
        cache: dict[str, Any] | None = None,
        **limits: Any,
    ) -> Bench:
        config = RuntimeConfig(
            model=ModelSection(model_path="scripted"),
            cache=CacheConfig(max_total_tokens=num_slots, disable_radix_cache=not cached, **(cache or {})),
            scheduler=SchedulerConfig(max_running_requests=max_running, **limits),
            grammar=GrammarConfig(disable_jump_forward=not jump_forward, grammar_compile_timeout=compile_timeout),
        )
        executor = ScriptedExecutor(
            num_slots=num_slots,
            num_rows=max_running,
            context_length=context,
            num_tokens=drawn,
            overlap=overlap,
            num_host_slots=host_slots,
        )
        scheduler = assemble_scheduler(
            config,
            executor,
            vocabulary=VOCABULARY,
            eos_ids=frozenset({EOS}),
            num_logits=NUM_TOKENS,
            context_length=context,
            num_host_slots=host_slots,
            encode=encode,
        )
        benches.append(Bench(scheduler, executor))
        return benches[-1]

    yield build
    for bench in benches:
        bench.scheduler.check()
        bench.scheduler.close()

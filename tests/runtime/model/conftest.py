"""The small real model beside transformers' model on the same dequantised weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sgl_runtime.composition import ModelHost, build_scheduler
from sgl_runtime.config import CacheConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.scheduler import Scheduler

CONFIG = RuntimeConfig(
    model=ModelSection(model_path="smollm2"),
    cache=CacheConfig(max_total_tokens=16_384),
    scheduler=SchedulerConfig(max_running_requests=64),
)


@dataclass
class Outcome:
    """What a request gave."""

    ids: list[int]
    logprobs: list[float]
    input_logprobs: list[float | None] | None
    last: TokenDelta


class SchedulerDriver:
    """Drives a scheduler by hand."""

    def __init__(self, scheduler: Scheduler, host: ModelHost) -> None:
        self.scheduler = scheduler
        self.host = host
        self._count = 0

    def request(
        self, prompt: str | list[int], *, logprob_start: int | None = None, **sampling: object
    ) -> TokenizedRequest:
        self._count += 1
        ids = self.host.tokenizer.encode(prompt, add_bos=True) if isinstance(prompt, str) else prompt
        return TokenizedRequest(
            rid=f"r{self._count}",
            input_ids=ids,
            sampling=SamplingParams(**{"max_new_tokens": 16, "temperature": 0.0, **sampling}),
            return_logprob=logprob_start is not None,
            logprob_start_len=-1 if logprob_start is None else logprob_start,
        )

    def run(self, requests: list[TokenizedRequest]) -> list[Outcome]:
        """Run to the end; every slot must be accounted for."""
        outcomes: dict[str, Outcome] = {}
        for request in requests:
            self.scheduler.accept(request)
        while self.scheduler.has_work():
            for delta in self.scheduler.step():
                assert isinstance(delta, TokenDelta)
                outcome = outcomes.setdefault(delta.rid, Outcome([], [], None, delta))
                outcome.ids += delta.new_ids
                outcome.logprobs += delta.output_logprobs or []
                outcome.input_logprobs = delta.input_logprobs or outcome.input_logprobs
                outcome.last = delta
        self.scheduler.check()
        return [outcomes[request.rid] for request in requests]


@pytest.fixture(scope="session")
def model_host() -> ModelHost:
    return ModelHost.open(CONFIG)


@pytest.fixture(scope="session")
def driver_for(model_host: ModelHost) -> Iterator[Callable[..., SchedulerDriver]]:
    """Builds a driver with changed cache or scheduler sections."""
    drivers: list[SchedulerDriver] = []

    def build(**sections: object) -> SchedulerDriver:
        scheduler = build_scheduler(replace(CONFIG, **sections), model_host).scheduler
        drivers.append(SchedulerDriver(scheduler, model_host))
        return drivers[-1]

    yield build
    for driver in drivers:
        driver.scheduler.check()
        driver.scheduler.close()


@pytest.fixture(scope="session")
def driver(driver_for: Callable[..., SchedulerDriver]) -> SchedulerDriver:
    return driver_for()


@pytest.fixture(autouse=True)
def no_slot_is_lost(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "driver" in request.fixturenames:
        request.getfixturevalue("driver").scheduler.check()


@pytest.fixture(scope="session")
def reference_model() -> LlamaForCausalLM:
    """transformers' Llama on the dequantised weights."""
    source = ModelSource.open(CONFIG.model)
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
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(dict(iter_weights(source)), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    model.tie_weights()
    return model.to(torch.float32)

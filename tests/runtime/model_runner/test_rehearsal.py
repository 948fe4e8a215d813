"""What a rehearsal compiles, beside what requests of all kinds launch."""

import importlib
import itertools
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from fakes.interpreted_device import InterpretedDevice
from fakes.small_model import NUM_ROWS, NUM_SLOTS, SHAPES, make_runner
from sgl_runtime import device as device_package
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, GrammarConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.device.kernels.kernel import Kernel
from sgl_runtime.device.rehearsal_device import RehearsalDevice
from sgl_runtime.executor.local import LocalExecutor
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.model_runner.rehearsal import RehearsedModel, rehearse
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.tokenizer.vocabulary import Vocabulary

VOCAB_SIZE = SHAPES["vocab_size"]
EOS = VOCAB_SIZE - 1
CONFIG = RuntimeConfig(
    model=ModelSection(model_path="none"),
    cache=CacheConfig(max_total_tokens=NUM_SLOTS),
    scheduler=SchedulerConfig(max_running_requests=NUM_ROWS),
    grammar=GrammarConfig(disable_grammar_disk_cache=True),
)
MODEL = RehearsedModel(
    shapes=ModelConfig.from_json(SHAPES, source="test"),
    dtype=torch.float32,
    num_rows=NUM_ROWS,
    graph_rows=4,
    max_grammar_depth=CONFIG.grammar.max_grammar_depth,
)
SHARED = list(range(30, 48))
REQUESTS: list[tuple[list[int], dict[str, Any]]] = [
    ([5], {}),
    ([*SHARED, 6], {}),
    ([*SHARED, 7, 8], {"temperature": 1.0, "top_p": 0.5}),
    ([*SHARED, 9], {"regex": "[a-c]{2,5}"}),
    ([*SHARED, 1], {"temperature": 1.0, "json_schema": '{"type": "array", "items": {"type": "array"}}'}),
    ([11, 12, 13], {"regex": "[ab]{4}", "frequency_penalty": 0.5}),
]


def serve(device: Device, requests: list[tuple[list[int], dict[str, Any]]]) -> None:
    tokens = [bytes([i % 256]) if i < 256 else b"<unused>" for i in range(VOCAB_SIZE)]
    scheduler = assemble_scheduler(
        CONFIG,
        LocalExecutor(make_runner(device)),
        vocabulary=Vocabulary(tokens, frozenset(range(256, VOCAB_SIZE))),
        eos_ids=frozenset({EOS}),
        num_logits=VOCAB_SIZE,
        context_length=64,
    )
    for number, (ids, settings) in enumerate(requests):
        sampling = SamplingParams(**{"max_new_tokens": 4, "temperature": 0.0, **settings})
        scheduler.accept(TokenizedRequest(rid=str(number), input_ids=ids, sampling=sampling))
    while scheduler.has_work():
        scheduler.step()
    scheduler.close()


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Any]]:
    """The variants of kernels that are launched inside."""
    found: set[Any] = set()
    launch = Kernel.launch

    def note(kernel: Kernel, grid: Any, *args: Any, **settings: Any) -> None:
        names = kernel.function.arg_names
        given = {**dict(zip(names, args, strict=False)), **settings}
        found.add((kernel.function.__name__, tuple(variant(kernel, name, value) for name, value in given.items())))
        launch(kernel, grid, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "launch", note)
        yield found


def variant(kernel: Kernel, name: str, value: Any) -> Any:
    """What Triton compiles of an argument into a kernel."""
    is_constant, varies = name.isupper() or name.startswith(("num_warps", "launch_")), name in kernel.varying
    if is_constant:
        return name, value
    if isinstance(value, torch.Tensor):
        return name, value.dtype, varies or value.data_ptr() % 16 == 0
    if isinstance(value, float):
        return name, float
    return name, varies or (value == 1, value % 16 == 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted where there is no GPU")
def test_a_rehearsal_compiles_what_requests_launch(monkeypatch):
    device = InterpretedDevice()
    with recorded(monkeypatch) as rehearsed:
        rehearse(MODEL, RehearsalDevice(device))
    with recorded(monkeypatch) as launched:
        serve(device, REQUESTS)
    assert len({name for name, _ in launched}) > 15
    assert launched - rehearsed == set()


def test_a_rehearsal_compiles_what_prepares_the_passes_of_another_library(monkeypatch):
    with recorded(monkeypatch) as plain:
        rehearse(MODEL, RehearsalDevice(InterpretedDevice()))
    with recorded(monkeypatch) as planned:
        rehearse(replace(MODEL, plans_prompts=lambda: True), RehearsalDevice(InterpretedDevice()))
    assert {name for name, _ in planned - plain} == {"rotate_and_store_kernel", "gather_slots_kernel", "extend_kernel"}
    begun = {("BEGUN", True), ("begun_out", MODEL.dtype, True), ("begun_lse", torch.float32, True)}
    assert any(begun <= set(given) for name, given in planned - plain if name == "extend_kernel")


def test_draws_are_rehearsed_from_the_models_type_and_from_that_of_edited_logits(monkeypatch):
    with recorded(monkeypatch) as rehearsed:
        rehearse(replace(MODEL, dtype=torch.bfloat16), RehearsalDevice(InterpretedDevice()))
    draws = [{entry[0]: entry[1:] for entry in given} for name, given in rehearsed if name == "draw_blocks_kernel"]
    # With masks, filters or both it is one variant.
    kinds = [(given["logits"][0], given["PLAIN"][0]) for given in draws]
    assert set(kinds) == set(itertools.product((torch.bfloat16, torch.float32), (False, True)))
    assert len(kinds) == 4


IMPORTS = """
import sys
import torch
from fakes.interpreted_device import InterpretedDevice
from fakes.small_model import SHAPES
from sgl_runtime.device.rehearsal_device import RehearsalDevice
from sgl_runtime.model_runner.rehearsal import RehearsedModel, rehearse
from sgl_runtime.model_store.model_config import ModelConfig

shapes = ModelConfig.from_json(SHAPES, source="test")
model = RehearsedModel(shapes=shapes, dtype=torch.float32, num_rows=4, graph_rows=4, max_grammar_depth=64)
rehearse(model, RehearsalDevice(InterpretedDevice()))
print(*{"sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes"} & sys.modules.keys())
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted where there is no GPU")
def test_a_rehearsal_brings_in_nothing_of_torchs_compiler():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert done.stdout == "\n"


@pytest.mark.gpu
def test_nothing_is_compiled_behind_a_rehearsal():
    device = select_device("cuda", num_threads=None)
    device.compile_ahead(lambda on: rehearse(MODEL, on))()
    before = num_compiled()
    serve(device, REQUESTS)
    assert num_compiled() == before > 15


def num_compiled() -> int:
    """How many variants of our kernels this process holds."""
    modules = pkgutil.walk_packages(device_package.__path__, "sgl_runtime.device.")
    kernels = {
        value
        for module in modules
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Kernel)
    }
    return sum(len(caches[0]) for kernel in kernels for caches in kernel.function.device_caches.values())

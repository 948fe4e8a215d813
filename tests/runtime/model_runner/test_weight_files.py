"""Weights from files to a device: mapped, and brought by threads in pieces."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fakes.lane_device import LaneDevice
from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.config import ModelSection
from sgl_runtime.device import file_reader
from sgl_runtime.device.base import Device
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_runner.build import load_model
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_source import ModelSource


def plain_device() -> Device:
    return CpuDevice(num_threads=None)


DEVICES: list[Callable[[], Device]] = [plain_device, LaneDevice]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of odd size, and few bytes ahead: every tensor is made of several."""
    monkeypatch.setattr(file_reader, "PIECE_BYTES", 1000)
    monkeypatch.setattr(file_reader, "AHEAD_BYTES", 5000)


def open_source(folder: Path) -> ModelSource:
    return ModelSource.open(ModelSection(model_path=str(folder)))


def parameters(folder: Path, device: Device, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    model: Any = load_model(open_source(folder), dtype=dtype, device=device)
    return {
        name: (module._packed.to_dense() if module._packed.is_mkldnn else module._packed)
        for name, module in model.named_modules()
        if hasattr(module, "_packed")
    } | {name: value for name, value in model.named_parameters() if value.numel()}


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize(
    ("stored", "wanted"), [("float32", "float32"), ("bfloat16", "float32"), ("float32", "bfloat16")]
)
def test_both_ways_give_the_same_model(tmp_path, ties, stored, wanted):
    saved = save_tiny_llama(tmp_path, tie_word_embeddings=ties, max_shard_size="40KB", dtype=stored)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    mapped, brought = (parameters(tmp_path, make(), getattr(torch, wanted)) for make in DEVICES)
    assert mapped.keys() == brought.keys() >= {"decoder.embedding", "head"}
    for name, value in mapped.items():
        assert torch.equal(value, brought[name]), name
    expected = saved.state_dict()["model.embed_tokens.weight"].to(getattr(torch, wanted))
    assert torch.equal(brought["decoder.embedding"], expected)


@pytest.mark.parametrize("make_device", DEVICES)
def test_every_type_and_shape_arrives(tmp_path, make_device):
    tensors = {
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 4),
        "half": torch.randn(7, 3).half(),
        "brain": torch.randn(11).bfloat16(),
        "ids": torch.arange(500),
        "flags": torch.tensor([True, False]),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    source = open_source(tmp_path)
    found = dict(iter_weights(source, make_device()))
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype, name
        assert torch.equal(found[name], value), name


def test_reading_keeps_few_bytes_ahead(tmp_path):
    save_file({f"w{i:02}": torch.full((250,), float(i)) for i in range(40)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    weights = iter_weights(open_source(tmp_path), LaneDevice())
    for number, (name, value) in zip(range(3), weights, strict=False):
        assert (name, value[0].item()) == (f"w{number:02}", number)
    # A reader that is left ends its threads.
    weights.close()


@pytest.mark.parametrize("make_device", DEVICES)
def test_files_that_are_not_whole_are_told(tmp_path, make_device):
    save_tiny_llama(tmp_path, max_shard_size="40KB")
    path = sorted(tmp_path.glob("*.safetensors"))[1]
    data = path.read_bytes()
    for cut in (0, 5, 100, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(ModelLoadError, match=rf"{path.name} is not a whole safetensors file"):
            load_model(open_source(tmp_path), dtype=torch.float32, device=make_device())


def test_a_file_that_becomes_shorter_while_it_is_read_is_told(tmp_path, monkeypatch):
    # While a tensor is used, only the one behind it is read.
    monkeypatch.setattr(file_reader, "AHEAD_BYTES", 0)
    save_file({name: torch.zeros(2000) for name in "abc"}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    weights = iter_weights(open_source(tmp_path), LaneDevice())
    next(weights)
    os.truncate(tmp_path / "model.safetensors", 17_000)
    with pytest.raises(ModelLoadError, match=r"weights cannot be read: .*model.safetensors ends at byte 17\d\d\d"):
        list(weights)


def test_a_type_that_is_not_known_is_told(tmp_path):
    header = json.dumps({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tensor 'a' has type C64; supported: F64, F32"):
        list(iter_weights(open_source(tmp_path), LaneDevice()))


def test_the_index_says_which_files_count(tmp_path):
    save_tiny_llama(tmp_path, max_shard_size="40KB")
    save_file({"model.norm.weight": torch.zeros(48)}, tmp_path / "consolidated.safetensors")
    load_model(open_source(tmp_path), dtype=torch.float32, device=plain_device())
    missing = sorted(tmp_path.glob("model-0*.safetensors"))[1]
    missing.unlink()
    with pytest.raises(ModelLoadError, match=rf"lacks 1 of \d+ files of weights: {missing.name}"):
        load_model(open_source(tmp_path), dtype=torch.float32, device=plain_device())
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    with pytest.raises(ModelLoadError, match=r"weight_map is \[1\]; it must name the file of each weight"):
        load_model(open_source(tmp_path), dtype=torch.float32, device=plain_device())


def test_the_log_says_how_much_was_read(tmp_path, caplog):
    save_tiny_llama(tmp_path)
    with caplog.at_level("INFO"):
        load_model(open_source(tmp_path), dtype=torch.float32, device=LaneDevice())
    assert "weights read gb=0.00" in caplog.text


@pytest.mark.gpu
def test_a_gpu_reads_the_same_model(tmp_path, monkeypatch):
    from sgl_runtime.device.base import select_device

    monkeypatch.undo()
    save_tiny_llama(tmp_path, max_shard_size="40KB")
    weights = dict(iter_weights(open_source(tmp_path), select_device("cuda", num_threads=None)))
    for name, value in iter_weights(open_source(tmp_path)):
        assert weights[name].is_cuda
        assert torch.equal(weights[name].cpu(), value), name

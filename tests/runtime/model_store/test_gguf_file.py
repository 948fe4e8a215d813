import random
from pathlib import Path

import numpy as np
import pytest

from fakes.tiny_llama import save_tiny_gguf
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.gguf_file import GgufFile
from sgl_runtime.model_store.model_config import ModelConfig


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gguf(tmp_path_factory.mktemp("gguf") / "whole.gguf")


def read_all(path: Path) -> None:
    file = GgufFile(path)
    ModelConfig.from_gguf(file)
    for _ in file.tensors():
        pass


def test_whole_file_gives_its_config_and_tensors(whole: Path) -> None:
    config = ModelConfig.from_gguf(GgufFile(whole))
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (1, 4, 2, 8)
    assert (config.vocab_size, config.context_length, config.tie_embeddings) == (264, 128, True)
    assert config.eos_ids == {1}
    tensors = dict(GgufFile(whole).tensors())
    assert tensors["blk.0.ffn_gate.weight"].shape == (64, 32)
    assert all(array.dtype == np.float32 for array in tensors.values())


def test_a_file_cut_short_anywhere_is_told_as_such(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    rng = random.Random(5)
    # Every place in the header and the first metadata; then some in the metadata, the tensor infos and the data.
    cuts = [*range(1, 96), *(rng.randrange(96, len(data)) for _ in range(60)), len(data) - 1]
    for cut in cuts:
        path = tmp_path / f"{cut}.gguf"
        path.write_bytes(data[:cut])
        with pytest.raises(ModelLoadError, match=r"cut short or damaged: its \d+ bytes end before") as caught:
            read_all(path)
        assert f"its {cut} bytes" in caught.value.message
        path.unlink()


def test_a_changed_byte_is_refused_or_harmless(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    rng = random.Random(6)
    refused = 0
    for index in range(120):
        damaged = bytearray(data)
        damaged[rng.randrange(9000)] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{index}.gguf"
        path.write_bytes(damaged)
        try:
            read_all(path)
        except ModelLoadError:
            refused += 1
        path.unlink()
    assert refused > 10


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"hello, this is a text file", "is no GGUF file: it begins with b'hell', not with b'GGUF'"),
        (b"GGUF\x63\x00\x00\x00" + bytes(64), "has version 99; supported: 2, 3"),
    ],
)
def test_what_is_no_gguf_file_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError) as caught:
        GgufFile(path)
    assert sentence in caught.value.message
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_missing_metadata_key_is_named(whole: Path) -> None:
    file = GgufFile(whole)
    assert file.get("no.such", 5) == 5
    with pytest.raises(ModelLoadError, match=r"has no metadata 'no\.such'"):
        file.require("no.such")

"""`sgl serve` on what is no model: one clear sentence, no traceback, exit code 1; and on a tiny one that is."""

import shutil
import socket
from pathlib import Path

import pytest
import requests

from fakes.server_process import REAL, ServerProcess
from fakes.tiny_llama import save_tiny_gguf, save_tiny_llama
from sgl_runtime.composition import ModelHost
from sgl_runtime.config_flags import build_config
from sgl_runtime.errors import ModelLoadError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several models, each wrong in its own way."""
    root = tmp_path_factory.mktemp("models")
    whole = save_tiny_gguf(root / "whole.gguf").read_bytes()
    for name, size in (("header", 20), ("metadata", 3000), ("infos", 8800), ("data", len(whole) - 1000)):
        (root / f"cut_in_{name}.gguf").write_bytes(whole[:size])
    (root / "text.gguf").write_text("no weights in here")
    (root / "empty.gguf").write_bytes(b"")
    (root / "notes.txt").write_text("hello")
    (root / "empty").mkdir()
    save_tiny_llama(root / "good")
    for name, file, content in (
        ("broken_config", "config.json", '{"vocab_size": '),
        ("bad_config", "config.json", '{"architectures": ["LlamaForCausalLM"], "num_attention_heads": "four"}'),
        ("cut_weights", "model.safetensors", (root / "good" / "model.safetensors").read_bytes()[:5000]),
        ("broken_tokenizer", "tokenizer.json", "{}"),
    ):
        shutil.copytree(root / "good", root / name)
        data = content if isinstance(content, bytes) else content.encode()
        (root / name / file).write_bytes(data)
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_CACHE_DIR", str(tmp_path / "cache"))


WRONG_MODELS = [
    ("cut_in_header.gguf", "is cut short or damaged: its 20 bytes end before what its header announces"),
    ("cut_in_metadata.gguf", "is cut short or damaged"),
    ("cut_in_infos.gguf", "is cut short or damaged"),
    ("cut_in_data.gguf", "is cut short or damaged"),
    ("text.gguf", "is no GGUF file: it begins with b'no w'"),
    ("empty.gguf", "is empty"),
    ("notes.txt", "is a file that does not end in .gguf"),
    ("empty", "holds no config.json"),
    ("lost.gguf", "does not exist"),
    ("broken_config", "config.json cannot be read as JSON"),
    ("bad_config", "num_attention_heads is 'four'; it must be a whole number above 0"),
    ("broken_tokenizer", "no tokenizer can be loaded from"),
]
WRONG_WEIGHTS = ("cut_weights", "model.safetensors is not a whole safetensors file")


@pytest.mark.parametrize(("name", "sentence"), WRONG_MODELS)
def test_a_wrong_model_is_told_when_it_is_opened(folder: Path, name: str, sentence: str) -> None:
    with pytest.raises(ModelLoadError) as error:
        _ = ModelHost.open(build_config({"model_path": str(folder / name)})).tokenizer
    assert sentence in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param(*case, marks=() if case[0] in ("cut_in_data.gguf", "bad_config") else pytest.mark.slow)
        for case in [*WRONG_MODELS, WRONG_WEIGHTS]
    ],
)
def test_a_wrong_model_is_one_sentence(folder: Path, name: str, sentence: str) -> None:
    server = ServerProcess(model_path=str(folder / name), main=REAL)
    try:
        assert server.wait_ended() == 1, server.log
    finally:
        server.close()
    said = [line for line in server.lines if " INFO process=" not in line]
    assert len(said) == 1, server.log
    assert said[0].startswith("sgl serve: ")
    assert sentence in said[0]


def test_a_port_in_use_is_told_before_the_model_is_looked_at(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = ServerProcess(port=port, model_path=str(folder / "empty.gguf"), main=REAL)
        try:
            assert server.wait_ended() == 1
        finally:
            server.close()
    assert server.log == f"sgl serve: port {port} on 127.0.0.1 is in use; choose another with --port\n"


def test_a_hub_id_without_a_hub_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    server = ServerProcess(model_path="owner/name", main=REAL)
    try:
        assert server.wait_ended() == 1
    finally:
        server.close()
    assert server.log.count("\n") == 1
    assert "model 'owner/name' is no local path, is not in the hub's local cache" in server.log


def test_a_tiny_whole_gguf_file_is_served(folder: Path) -> None:
    server = ServerProcess("--max-total-tokens", "256", model_path=str(folder / "whole.gguf"), main=REAL)
    try:
        server.wait_for_line("serving url=")
        payload = {"text": "hello", "sampling_params": {"regex": "[a-f]{4}"}}
        reply = requests.post(server.url + "/generate", json=payload, timeout=60).json()
        assert len(reply["text"]) == 4
        assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": None}
    finally:
        server.close()

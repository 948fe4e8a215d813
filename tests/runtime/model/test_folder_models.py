"""Tiny random models saved by transformers as safetensors folders, beside transformers' own model."""

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fakes.tiny_llama import EOS_ID, save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError, ModelLoadError, SglRuntimeError

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def greedy(model: Any, ids: list[int], count: int) -> list[int]:
    out = list(ids)
    with torch.inference_mode():
        for _ in range(count):
            out.append(int(model(torch.tensor([out])).logits[0, -1].argmax()))
    return out[len(ids) :]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {"rope_parameters": LLAMA3},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
        {"head_dim": 20},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"max_shard_size": "40KB"},
        {"dtype": "bfloat16"},
        {"family": "qwen3", "head_dim": 16},
        {"family": "qwen3", "head_dim": 12, "tie_word_embeddings": True},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
def test_greedy_output_equals_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = save_tiny_llama(tmp_path, **changes)
    rng = random.Random(11)
    prompts = [[rng.randrange(3, 260) for _ in range(length)] for length in (1, 7, 90)]
    params = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
    with Engine(str(tmp_path), max_total_tokens=1024, max_running_requests=8) as engine:
        replies = engine.generate(input_ids=prompts, sampling_params=params)
        again = engine.generate(input_ids=prompts[2], sampling_params=params)
    for prompt, reply in zip(prompts, replies, strict=True):
        assert reply["output_ids"] == greedy(model, prompt, 12)
    assert again["output_ids"] == replies[2]["output_ids"]
    assert again["meta_info"]["cached_tokens"] == 89
    if "max_shard_size" in changes:
        assert len(list(tmp_path.glob("*.safetensors"))) > 1


def test_text_and_template_of_a_folder(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    with Engine(str(tmp_path), max_total_tokens=512) as engine:
        info = engine.get_model_info()
        assert (info["context_length"], info["eos_token_ids"], info["has_chat_template"]) == (256, [EOS_ID], True)
        reply = engine.generate("hello wörld </s>", {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True})
        assert reply["meta_info"]["prompt_tokens"] == len(engine.tokenize("hello wörld </s>"))
        assert engine.tokenize("</s>") == [EOS_ID]


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(folder: Path) -> str:
    with pytest.raises((ConfigError, ModelLoadError)) as caught:
        Engine(str(folder), max_total_tokens=256)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_what_is_wrong_with_a_folder_is_one_sentence(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for size in (4, 100, len(whole) // 2, len(whole) - 1):
        weights.write_bytes(whole[:size])
        assert "model.safetensors is not a whole safetensors file" in refusal(tmp_path)
    weights.unlink()
    assert "holds no .safetensors file" in refusal(tmp_path)
    weights.write_bytes(whole)
    config = (tmp_path / "config.json").read_text()
    for changes, sentence in (
        ({"hidden_size": 64}, "the config asks for (300, 64)"),
        ({"num_hidden_layers": 3}, "weights are missing, among them model.layers.2."),
        ({"num_hidden_layers": 1}, "is not expected, or comes twice"),
        ({"num_attention_heads": "four"}, "num_attention_heads is 'four'"),
        ({"architectures": ["NoSuchModel"]}, "unknown model architecture 'NoSuchModel'; known: LlamaForCausalLM"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "factor"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "spiral"),
    ):
        edit_config(tmp_path, **changes)
        assert sentence in refusal(tmp_path)
        (tmp_path / "config.json").write_text(config)
    for content in ("{", "{}", '{"version": "1.0", "model": {"type": "BPE"}}'):
        (tmp_path / "tokenizer.json").write_text(content)
        assert "no tokenizer can be loaded from" in refusal(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "it holds no tokenizer.json" in refusal(tmp_path)


def test_shutdown_ends_every_thread_while_requests_run_and_grammars_compile(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    before = set(threading.enumerate())
    engine = Engine(str(tmp_path), max_total_tokens=1024, max_grammar_states=10_000_000)
    stream = engine.generate("hello", {"max_new_tokens": 200, "ignore_eos": True}, stream=True)
    next(stream)
    slow = engine.generate("hello", {"regex": "(?:.*[a-f]){9}(?:.*a.*b.{12}){6}"}, stream=True)

    def ask() -> None:
        with pytest.raises(SglRuntimeError):
            next(slow)

    asker = threading.Thread(target=ask)
    asker.start()
    while not engine.get_server_info()["internal_states"][0]["num_waiting"]:
        threading.Event().wait(0.002)
    engine.shutdown()
    asker.join(10)
    assert set(threading.enumerate()) <= before

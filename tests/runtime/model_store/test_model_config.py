import json
from pathlib import Path
from typing import Any

import pytest

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.model_config import ModelConfig

GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
}


def read(**changes: Any) -> ModelConfig:
    return ModelConfig.from_json({**GOOD, **changes}, source="config.json")


def test_defaults_follow_from_the_shapes() -> None:
    config = read(num_key_value_heads=None)
    assert (config.num_kv_heads, config.head_dim, config.rope.theta, config.rope.scaling) == (8, 8, 10_000.0, {})
    assert (config.bos_id, config.eos_ids, config.tie_embeddings) == (1, {2, 3}, False)


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_both_places_of_rotary_settings_are_read(name: str) -> None:
    config = read(**{name: {"rope_type": "llama3", "factor": 8.0}}, rope_theta=500_000)
    assert (config.rope.theta, config.rope.scaling["rope_type"], config.rope.scaling["factor"]) == (5e5, "llama3", 8.0)
    assert read(**{name: {"rope_type": "default", "rope_theta": 7.0}}).rope.theta == 7.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vocab_size": None}, "config.json has no 'vocab_size'"),
        ({"num_attention_heads": "four"}, "num_attention_heads is 'four'; it must be a whole number above 0"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; it must be a whole number above 0"),
        ({"hidden_size": 1.5}, "hidden_size is 1.5; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; it must be a whole number above 0"),
        ({"num_key_value_heads": 3}, "8 attention heads cannot share 3 key/value heads"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'; it must be a number above 0"),
        ({"rope_theta": -1}, "rope_theta is -1; it must be a number above 0"),
        ({"eos_token_id": [{}]}, "eos_token_id is [{}]; it must be a token id or a list of them"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read(**changes)
    assert sentence in caught.value.message


@pytest.mark.parametrize("content", ["{", "[]", "\x00", ""])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"config\.json (cannot be read as JSON|holds no JSON object)"):
        ModelConfig.from_folder(tmp_path)


def test_generation_config_adds_its_ends(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert ModelConfig.from_folder(tmp_path).eos_ids == {2, 3, 9}

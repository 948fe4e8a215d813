"""ModelConfig: the shapes of a model and what its files say of special tokens; nothing of the server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.config_fields import ConfigFields, as_list, first_architecture, read_json, token_ids
from sgl_runtime.model_store.gguf_file import GgufFile

QK_NORM_ARCHITECTURES = frozenset({"Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"})
"""Architectures that norm each head of queries and keys."""

GGUF_ARCHITECTURES = {"llama": "LlamaForCausalLM"}


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary embedding.

    Attributes:
        theta: Base of the frequencies.
        scaling: The model's own scaling entry (type and factors); empty for plain rotary.
    """

    theta: float
    scaling: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shapes of a decoder-only model.

    Attributes:
        architecture: Class name in the model's config, the key of the table of models.
        head_dim: D; num_heads is H, num_kv_heads is G.
        context_length: Positions the model was made for.
        qk_norm: Each head of queries and keys is normed.
        tie_embeddings: The output head is the embedding.
        eos_ids: Ids that end the output, from config and generation config.
        dtype: Type of the stored weights, by torch's name.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    context_length: int
    tie_embeddings: bool
    attention_bias: bool
    qk_norm: bool
    mlp_bias: bool
    bos_id: int | None
    eos_ids: frozenset[int]
    dtype: str

    @classmethod
    def from_folder(cls, folder: Path) -> "ModelConfig":
        """Read config.json and generation_config.json of a model folder.

        Raises:
            ModelLoadError: a file is missing, broken, or lacks a shape.
        """
        data = read_json(folder / "config.json")
        generation = folder / "generation_config.json"
        if generation.is_file():
            extra = read_json(generation).get("eos_token_id")
            data["eos_token_id"] = as_list(data.get("eos_token_id")) + as_list(extra)
        return cls.from_json(data, source=str(folder / "config.json"))

    @classmethod
    def from_gguf(cls, file: GgufFile) -> "ModelConfig":
        """Read the metadata of a GGUF file.

        Raises:
            ModelLoadError: the architecture is not supported or a shape is missing.
        """
        return cls.from_json(gguf_config(file), source=str(file.path))

    @classmethod
    def from_json(cls, data: dict[str, Any], *, source: str) -> "ModelConfig":
        """Read the fields of a Hugging Face style config.

        Args:
            data: The parsed config.json.
            source: Where it came from, for messages.
        """
        if data.get("hidden_act", "silu") != "silu":
            raise ModelLoadError(f"{source}: hidden_act is {data['hidden_act']!r}; only 'silu' is supported")
        sizes = ConfigFields(data, source)
        num_heads = sizes.required("num_attention_heads")
        num_kv_heads = sizes.optional("num_key_value_heads") or num_heads
        hidden_size = sizes.required("hidden_size")
        if num_heads % num_kv_heads:
            raise ModelLoadError(f"{source}: {num_heads} attention heads cannot share {num_kv_heads} key/value heads")
        architecture = first_architecture(data)
        return cls(
            architecture=architecture,
            vocab_size=sizes.required("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=sizes.required("intermediate_size"),
            num_layers=sizes.required("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=sizes.optional("head_dim") or hidden_size // num_heads,
            norm_eps=sizes.number("rms_norm_eps", 1e-6),
            rope=_rope(data, sizes),
            context_length=sizes.required("max_position_embeddings"),
            tie_embeddings=bool(data.get("tie_word_embeddings", False)),
            qk_norm=architecture in QK_NORM_ARCHITECTURES,
            attention_bias=bool(data.get("attention_bias", False)),
            mlp_bias=bool(data.get("mlp_bias", False)),
            bos_id=next(iter(token_ids(data, "bos_token_id", source)), None),
            eos_ids=frozenset(token_ids(data, "eos_token_id", source)),
            dtype=str(data.get("dtype") or data.get("torch_dtype") or "float32").removeprefix("torch."),
        )


def gguf_config(file: GgufFile) -> dict[str, Any]:
    """The metadata of a GGUF file under the names of a Hugging Face config."""
    name = file.require("general.architecture")
    if name not in GGUF_ARCHITECTURES:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise ModelLoadError(f"{file.path}: architecture {name!r} is not supported from GGUF; supported: {known}")
    if file.get(f"{name}.rope.scaling.type") not in (None, "none"):
        raise ModelLoadError(f"{file.path}: rotary scaling from GGUF is not supported")
    num_heads = file.require(f"{name}.attention.head_count")
    return {
        "architectures": [GGUF_ARCHITECTURES[name]],
        "vocab_size": len(file.require("tokenizer.ggml.tokens")),
        "hidden_size": file.require(f"{name}.embedding_length"),
        "intermediate_size": file.require(f"{name}.feed_forward_length"),
        "num_hidden_layers": file.require(f"{name}.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.get(f"{name}.attention.head_count_kv", num_heads),
        "head_dim": file.get(f"{name}.attention.key_length"),
        "rms_norm_eps": file.require(f"{name}.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.get(f"{name}.rope.freq_base", 10_000.0),
        "max_position_embeddings": file.require(f"{name}.context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensor_names(),
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.get("tokenizer.ggml.eos_token_id"),
    }


def _rope(data: dict[str, Any], sizes: ConfigFields) -> RopeConfig:
    entry = data.get("rope_parameters") or data.get("rope_scaling") or {}
    entry = dict(entry) if isinstance(entry, dict) else {}
    own = entry.pop("rope_theta", None)
    theta = sizes.checked_number("rope_theta", data.get("rope_theta") if own is None else own, 10_000.0)
    kind = entry.get("rope_type") or entry.get("type") or "default"
    return RopeConfig(theta=theta, scaling={} if kind == "default" else {**entry, "rope_type": kind})

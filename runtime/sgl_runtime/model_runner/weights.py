"""Weights of a model from its files, by Hugging Face's names."""

import re
from collections.abc import Iterator

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.model_source import ModelSource

_GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


def iter_weights(source: ModelSource) -> Iterator[tuple[str, Tensor]]:
    """Every weight of a model, one at a time.

    Raises:
        ModelLoadError: a file is broken or holds a tensor that has no place.
    """
    if source.files.form == "gguf":
        yield from _from_gguf(source)
    else:
        for path in source.safetensors_files():
            yield from _from_safetensors(path)


def _from_safetensors(path: str) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - the handle is no mapping
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is not a whole safetensors file: {error}") from error


def _from_gguf(source: ModelSource) -> Iterator[tuple[str, Tensor]]:
    heads = {"attn_q": source.config.num_heads, "attn_k": source.config.num_kv_heads}
    for name, array in source.gguf_tensors():
        match = _GGUF_NAME.fullmatch(name)
        if match is None or match["part"] not in _GGUF_NAMES:
            raise ModelLoadError(f"{source.files.path}: tensor {name!r} has no place in this model")
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if match["part"] in heads:
            tensor = _unpermute(tensor, heads[match["part"]])
        layer = "" if match["layer"] is None else f"model.layers.{match['layer']}."
        yield f"{layer}{_GGUF_NAMES[match['part']]}.{match['kind']}", tensor


def _unpermute(tensor: Tensor, heads: int) -> Tensor:
    # GGUF keeps the rows of q and k so that rotary pairs are neighbours; the half-split form wants (i, i + D / 2).
    rows = tensor.shape[0] // heads
    pairs = tensor.reshape(heads, rows // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)

"""Weights of a model from its files, by Hugging Face's names."""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sgl_runtime.device.base import Device
from sgl_runtime.device.file_reader import FileReader, StoredTensor
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.model_store.safetensors_header import StoredEntry, read_header

logger = logging.getLogger(__name__)

PROGRESS_S = 5.0
"""Seconds between lines that say how far loading is."""

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types by the names of the safetensors format."""

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


def iter_weights(source: ModelSource, device: Device | None = None) -> Iterator[tuple[str, Tensor]]:
    """Every weight of a model, one at a time, in the type in which it is stored.

    Args:
        source: The model.
        device: Where weights are wanted; they come there if that is faster than a copy from here.

    Raises:
        ModelLoadError: a file is broken or holds a tensor that has no place.
    """
    if source.files.form == "gguf":
        return _from_gguf(source)
    paths = source.safetensors_files()
    reader = None if device is None else device.file_reader()
    weights = _mapped(paths) if reader is None else _brought(paths, reader)
    return _told(weights, total_bytes=sum(Path(path).stat().st_size for path in paths))


def _mapped(paths: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Weights in host memory that is mapped to their files."""
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - the handle is no mapping
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{path} is not a whole safetensors file: {error}") from error


def _brought(paths: Iterable[str], reader: FileReader) -> Iterator[tuple[str, Tensor]]:
    """Weights on the device; all headers are read before the first of them."""
    names: list[str] = []
    tensors: list[StoredTensor] = []
    for path in paths:
        for entry in _checked_header(path):
            names.append(entry.name)
            tensors.append(StoredTensor(path, entry.offset, entry.shape, _TYPES[entry.dtype]))
    try:
        yield from zip(names, reader.read(tensors), strict=True)
    except OSError as error:
        raise ModelLoadError(f"weights cannot be read: {error}") from error


def _checked_header(path: str) -> list[StoredEntry]:
    try:
        # Checks the header against the size of the file.
        with safe_open(path, framework="pt"):
            entries = read_header(Path(path))
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is not a whole safetensors file: {error}") from error
    for entry in entries:
        if entry.dtype not in _TYPES:
            raise ModelLoadError(
                f"{path}: tensor {entry.name!r} has type {entry.dtype}; supported: {', '.join(_TYPES)}"
            )
    return entries


def _told(weights: Iterable[tuple[str, Tensor]], *, total_bytes: int) -> Iterator[tuple[str, Tensor]]:
    """The same weights; the log says how far they are, and in the end how fast they came."""
    begin = told = time.monotonic()
    num_bytes = 0
    for name, weight in weights:
        yield name, weight
        num_bytes += weight.nbytes
        now = time.monotonic()
        if now - told > PROGRESS_S:
            told = now
            logger.info("weights gb=%.1f of_gb=%.1f", num_bytes / 1e9, total_bytes / 1e9)
    seconds = time.monotonic() - begin
    rate = num_bytes / 1e9 / max(seconds, 1e-9)
    logger.info("weights read gb=%.2f seconds=%.2f gb_per_second=%.1f", num_bytes / 1e9, seconds, rate)


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

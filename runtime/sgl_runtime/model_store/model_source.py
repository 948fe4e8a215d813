"""ModelSource: one model's files, opened once and shared by config, tokenizer and weights."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import ModelSection
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.config_fields import first_architecture, read_json
from sgl_runtime.model_store.encoder_config import ENCODER_ARCHITECTURES, EncoderConfig
from sgl_runtime.model_store.gguf_file import GgufFile
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.model_store.resolve import ModelFiles, resolve_model


class ModelOutline(Protocol):
    """What the configs of all models tell."""

    @property
    def architecture(self) -> str:
        """Class name in the model's config."""

    @property
    def vocab_size(self) -> int:
        """Ids from 0 to one below this."""

    @property
    def hidden_size(self) -> int:
        """Numbers of a token's embedding and of its hidden state, C."""

    @property
    def context_length(self) -> int:
        """Positions the model was made for."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an output."""


class ModelSource:
    """A model on this machine; files are opened on first use.

    Args:
        files: Where it lies.
    """

    def __init__(self, files: ModelFiles) -> None:
        self.files = files

    @classmethod
    def open(cls, section: ModelSection) -> "ModelSource":
        """Find the model that a config names; see `resolve_model` for the errors."""
        return cls(resolve_model(section.model_path, revision=section.revision))

    @cached_property
    def gguf(self) -> GgufFile:
        """The GGUF file; only for models of that form."""
        assert self.files.form == "gguf", f"{self.files.path} is no GGUF file"
        return GgufFile(self.files.path)

    @cached_property
    def is_encoder(self) -> bool:
        """Whether its tokens all look at each other, so that it generates nothing."""
        if self.files.form == "gguf":
            return False
        return first_architecture(read_json(self.files.path / "config.json")) in ENCODER_ARCHITECTURES

    @cached_property
    def encoder(self) -> EncoderConfig:
        """The shapes of an encoder."""
        path = self.files.path / "config.json"
        return EncoderConfig.from_json(read_json(path), source=str(path))

    @property
    def outline(self) -> ModelOutline:
        """What is known of a model of any kind."""
        return self.encoder if self.is_encoder else self.config

    @cached_property
    def config(self) -> ModelConfig:
        """The shapes of a model that reads from left to right."""
        if self.files.form == "gguf":
            return ModelConfig.from_gguf(self.gguf)
        return ModelConfig.from_folder(self.files.path)

    def safetensors_files(self) -> list[str]:
        """Paths of the safetensors files of a model folder, sorted: those that its index names, if it has one.

        Raises:
            ModelLoadError: there is none, or one is missing.
        """
        index = self.files.path / "model.safetensors.index.json"
        if index.is_file():
            return _indexed_files(index)
        paths = sorted(str(path) for path in self.files.path.glob("*.safetensors"))
        if not paths:
            raise ModelLoadError(f"model folder {self.files.path} holds no .safetensors file")
        return paths

    def gguf_tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Dequantised tensors of a GGUF model, by the names of the file."""
        return self.gguf.tensors()


def _indexed_files(index: Path) -> list[str]:
    """Paths of the files that an index names, sorted."""
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise ModelLoadError(f"{index}: weight_map is {str(names)[:80]}; it must name the file of each weight")
    paths = sorted({index.parent / name for name in names.values()})
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelLoadError(f"{index.parent} lacks {len(missing)} of {len(paths)} files of weights: {missing[0]}")
    return [str(path) for path in paths]

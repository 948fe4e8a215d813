"""ModelSource: one model's files, opened once and shared by config, tokenizer and weights."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import ModelSection
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.gguf_file import GgufFile
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.model_store.resolve import ModelFiles, resolve_model


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
    def config(self) -> ModelConfig:
        """The model's shapes."""
        if self.files.form == "gguf":
            return ModelConfig.from_gguf(self.gguf)
        return ModelConfig.from_folder(self.files.path)

    def safetensors_files(self) -> list[str]:
        """Paths of the safetensors files of a model folder, sorted.

        Raises:
            ModelLoadError: there is none.
        """
        paths = sorted(str(path) for path in self.files.path.glob("*.safetensors"))
        if not paths:
            raise ModelLoadError(f"model folder {self.files.path} holds no .safetensors file")
        return paths

    def gguf_tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Dequantised tensors of a GGUF model, by the names of the file."""
        return self.gguf.tensors()

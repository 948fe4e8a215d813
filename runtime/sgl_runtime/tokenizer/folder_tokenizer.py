"""Tokenizers of models in the form of the hub: a folder with tokenizer.json and what configures it."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from sgl_runtime.errors import ModelLoadError

PLAIN_CLASSES = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})
"""Classes that tokenizer_config.json names where tokenizer.json says everything."""

PLAIN_MODEL_TYPES = frozenset({"llama", "qwen3"})
"""Models for which transformers takes such a class as it is named; for some others it knows better than their files."""


def import_libraries(folder: Path) -> None:
    """Import what loads the tokenizer of a folder; where that brings torch in, it takes longer than the tokenizer.

    Args:
        folder: Of the tokenizer.
    """
    if not is_plain(folder):
        import_module("transformers.models.auto.tokenization_auto")


def load_from_folder(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder.

    Args:
        folder: Of the tokenizer.

    Raises:
        ModelLoadError: there is no fast tokenizer, or no such folder.
    """
    if not folder.is_dir():
        raise ModelLoadError(f"tokenizer folder {str(folder)!r} does not exist")
    try:
        fast = _load(folder)
    # The libraries behind it raise a plain Exception for a broken tokenizer.json.
    except Exception as error:
        has_file = (folder / "tokenizer.json").is_file()
        reason = " ".join(str(error).split())[:300] if has_file else "it holds no tokenizer.json"
        raise ModelLoadError(f"no tokenizer can be loaded from {str(folder)!r}: {reason}") from error
    if not isinstance(fast, PreTrainedTokenizerFast):
        raise ModelLoadError(f"the tokenizer in {str(folder)!r} has no fast form (tokenizer.json)")
    return fast


def is_plain(folder: Path) -> bool:
    """Whether transformers would load a folder's tokenizer from tokenizer.json alone, by the class that all share.

    It is then loaded without asking transformers for the class, which would bring torch in: nearly two seconds, and
    more than 200 MB in processes that have no other use for it.

    Args:
        folder: Of the tokenizer.
    """
    files = _facts(folder / "tokenizer_config.json")
    is_known = _facts(folder / "config.json").get("model_type") in PLAIN_MODEL_TYPES
    return is_known and files.get("tokenizer_class") in PLAIN_CLASSES and "auto_map" not in files


def _load(folder: Path) -> object:
    if is_plain(folder):
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    # Imported here: it brings torch in.
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _facts(path: Path) -> dict[str, Any]:
    """The fields of a JSON file; none of one that cannot be read, about which transformers says what is wrong."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

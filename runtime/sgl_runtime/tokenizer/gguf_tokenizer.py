"""The tokenizer that a GGUF file carries, rebuilt as a fast tokenizer."""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.gguf_file import GgufFile

CONTROL_TOKEN = 3
USER_DEFINED_TOKEN = 4

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> list[Any]:
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


def _pre_tokenizer(name: str) -> Any:
    steps: dict[str, Callable[[], list[Any]]] = {
        "default": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": lambda: [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ],
        "llama-bpe": lambda: _split(_LLAMA3_SPLIT),
        "qwen2": lambda: _split(_QWEN2_SPLIT),
    }
    if name not in steps:
        raise ModelLoadError(f"GGUF pre-tokenizer {name!r} is not supported; supported: {', '.join(steps)}")
    return pre_tokenizers.Sequence(steps[name]())


def gguf_tokenizer(file: GgufFile) -> PreTrainedTokenizerFast:
    """Build the fast tokenizer of a GGUF file with byte-level BPE.

    Raises:
        ModelLoadError: the file's tokenizer is of another kind.
    """
    kind = file.require("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelLoadError(f"{file.path}: tokenizer kind {kind!r} is not supported from GGUF; supported: gpt2")
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.require("tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = _pre_tokenizer(file.get("tokenizer.ggml.pre", "default"))
    backend.decoder = decoders.ByteLevel()
    types = file.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    for wanted, special in ((CONTROL_TOKEN, True), (USER_DEFINED_TOKEN, False)):
        chosen = [token for token, kind in zip(tokens, types, strict=True) if kind == wanted]
        added = [AddedToken(token, special=special, normalized=False) for token in chosen]
        backend.add_special_tokens(added) if special else backend.add_tokens(added)

    def named(key: str) -> str | None:
        index = file.get(f"tokenizer.ggml.{key}_token_id")
        return None if index is None else tokens[index]

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=named("bos"),
        eos_token=named("eos"),
        unk_token=named("unknown"),
        pad_token=named("padding"),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = file.get("tokenizer.chat_template")
    return tokenizer

"""Vocabulary: which bytes each token id adds to the output."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import ModelLoadError


@dataclass(frozen=True)
class Vocabulary:
    """Bytes of every token.

    Attributes:
        token_bytes: For each id the bytes that it adds; special tokens hold their text in UTF-8, unused ids b"".
        special_ids: Ids of control tokens, which are no part of ordinary text.
    """

    token_bytes: Sequence[bytes]
    special_ids: frozenset[int]

    @property
    def size(self) -> int:
        """Number of ids that have an entry."""
        return len(self.token_bytes)


def byte_level_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level BPE, inverted.

    Source: GPT-2's byte encoder; printable Latin-1 stands for itself, the rest follows from U+0100.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


def build_vocabulary(
    tokens: Mapping[str, int], added: Mapping[int, tuple[str, bool]], decoder: Mapping[str, Any] | None
) -> Vocabulary:
    """Derive token bytes from a fast tokenizer.

    Args:
        tokens: Token text to id, added tokens included.
        added: Added tokens by id: their text and whether they are special.
        decoder: The `decoder` entry of tokenizer.json.

    Raises:
        ModelLoadError: the decoder is of a kind whose bytes are not known.
    """
    to_bytes = _byte_level if _holds(decoder, "ByteLevel") else None
    if to_bytes is None and (_holds(decoder, "ByteFallback") or _holds(decoder, "Metaspace")):
        to_bytes = _sentencepiece
    if to_bytes is None and _holds(decoder, "WordPiece"):
        to_bytes = _word_piece
    if to_bytes is None:
        kind = "none" if decoder is None else json.dumps(decoder)[:120]
        raise ModelLoadError(f"the tokenizer's decoder is not supported: {kind}")
    table = [b""] * (max([*tokens.values(), *added], default=-1) + 1)
    for text, token_id in tokens.items():
        if token_id not in added:
            table[token_id] = to_bytes(text)
    for token_id, (text, _) in added.items():
        table[token_id] = text.encode()
    return Vocabulary(table, frozenset(token_id for token_id, (_, special) in added.items() if special))


def _holds(decoder: Mapping[str, Any] | None, kind: str) -> bool:
    if decoder is None:
        return False
    return decoder.get("type") == kind or any(_holds(part, kind) for part in decoder.get("decoders", ()))


_UNWRITTEN = "\uffff"
_BYTE_LEVEL = dict.fromkeys(range(256), _UNWRITTEN) | {
    ord(char): chr(byte) for char, byte in byte_level_alphabet().items()
}
"""From the characters of byte-level BPE to those of Latin-1, whose numbers are the bytes."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level(text: str) -> bytes:
    try:
        return text.translate(_BYTE_LEVEL).encode("latin-1")
    # A character that stands for no byte: the token is no piece of text, and its bytes are those of what it says.
    except UnicodeEncodeError:
        return text.encode()


def _sentencepiece(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte.group(1), 16)]) if byte else text.replace("\u2581", " ").encode()


def _word_piece(text: str) -> bytes:
    """A piece that goes on with a word is marked; all others begin one."""
    return text.removeprefix("##").encode() if text.startswith("##") else b" " + text.encode()

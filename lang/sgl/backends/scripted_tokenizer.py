"""Tokenizers of the scripted backend: bytes, or words that depend on what stands next to them."""

import re
from typing import Protocol

EOS_ID = 256


class ScriptedTokenizer(Protocol):
    """Text to ids, ids to bytes.  Id 256 ends a sequence and has no bytes."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of a token."""


class ByteTokenizer:
    """One token for each byte of UTF-8, so most characters of most scripts take several."""

    def encode(self, text: str) -> list[int]:
        """See `ScriptedTokenizer`."""
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        """See `ScriptedTokenizer`."""
        return b"" if token_id == EOS_ID else bytes([token_id])


class WordTokenizer:
    """A token for each word with the space before it, and for each other character.

    "in" and "side" are two tokens apart and one together, as with the tokenizers of real models.  Ids are given in the
    order in which words are first seen.
    """

    _PIECE = re.compile(r" ?\w+|\W")

    def __init__(self) -> None:
        self._words: list[str] = []
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """See `ScriptedTokenizer`."""
        ids = []
        for word in self._PIECE.findall(text):
            if word not in self._ids:
                self._ids[word] = EOS_ID + 1 + len(self._words)
                self._words.append(word)
            ids.append(self._ids[word])
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """See `ScriptedTokenizer`."""
        return b"" if token_id == EOS_ID else self._words[token_id - EOS_ID - 1].encode()


def complete_text(data: bytes) -> str:
    """The whole characters that bytes begin with."""
    for cut in range(min(4, len(data)) + 1):
        try:
            return data[: len(data) - cut].decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
    return ""

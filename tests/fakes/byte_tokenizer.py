"""A tokenizer whose ids are bytes, and a few special tokens."""

import re
from collections.abc import Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.tokenizer.vocabulary import Vocabulary

BOS_ID, EOS_ID, TURN_ID, END_ID = 256, 257, 258, 259
SPECIALS = {"<s>": BOS_ID, "</s>": EOS_ID, "<turn>": TURN_ID, "<end>": END_ID}
# Ordinary tokens of several bytes, among them one that ends inside a character.
PIECES = [b"hello", b" wor", b"ld", b"\xe2\x82", b"ab\n\nUser", b"STOP"]
FIRST_PIECE_ID = 260
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in SPECIALS), *PIECES],
    frozenset(SPECIALS.values()),
)


class ByteTemplate:
    def render(self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool, **kwargs: Any) -> str:
        for message in messages:
            if message["role"] not in ("system", "user", "assistant"):
                raise InvalidRequestError(f"role {message['role']!r} is not known", param="messages")
        text = "".join(f"<turn>{message['role']}\n{message['content']}<end>" for message in messages)
        return text + ("<turn>assistant\n" if add_generation_prompt else "")

    def role_affixes(self, messages: Sequence[dict[str, Any]], role: str) -> tuple[str, str]:
        return f"<turn>{role}\n", "<end>"


class ByteTokenizer:
    def __init__(self, *, with_template: bool = True) -> None:
        self.vocabulary = VOCABULARY
        self.bos_id: int | None = BOS_ID
        self.chat_template = ByteTemplate() if with_template else None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        ids: list[int] = []
        for part in re.split("(<s>|</s>|<turn>|<end>)", text):
            ids.extend([SPECIALS[part]] if part in SPECIALS else part.encode())
        return [BOS_ID, *ids] if add_bos and ids[:1] != [BOS_ID] else ids

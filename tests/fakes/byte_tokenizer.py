"""A tokenizer whose ids are bytes, and a few special tokens."""

import re
from collections.abc import Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.tokenizer.vocabulary import Vocabulary
from sgl_runtime.tokenizer.whole_text import WholeText

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
    source = "<turn>role content<end>"

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

    def encode_whole(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> WholeText:
        """The texts in the marks of a turn, cut from the end of the last one."""
        front = [TURN_ID, *self.encode(text, add_bos=False)]
        back = [] if pair is None else [END_ID, *self.encode(pair, add_bos=False)]
        room = None if max_length is None else max_length - 1
        return WholeText([*[*front, *back][:room], END_ID], -1 if pair is None else len(front) + 1)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        skipped = VOCABULARY.special_ids if skip_special_tokens else frozenset()
        return b"".join(VOCABULARY.token_bytes[index] for index in ids if index not in skipped).decode(errors="replace")

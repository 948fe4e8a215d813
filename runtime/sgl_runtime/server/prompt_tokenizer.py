"""What the API asks of the served tokenizer."""

from collections.abc import Sequence
from typing import Any, Protocol

from sgl_runtime.tokenizer.vocabulary import Vocabulary
from sgl_runtime.tokenizer.whole_text import WholeText


class PromptTemplate(Protocol):
    """A chat template."""

    @property
    def source(self) -> str:
        """The template itself, which tells what it knows of."""

    def render(self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool, **kwargs: Any) -> str:
        """The prompt text of a conversation."""

    def role_affixes(self, messages: Sequence[dict[str, Any]], role: str) -> tuple[str, str]:
        """The text around the content of a message of this role that follows."""


class PromptTokenizer(Protocol):
    """Text to ids."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Bytes of every token."""

    @property
    def bos_id(self) -> int | None:
        """Beginning-of-sequence id, None where there is none."""

    @property
    def chat_template(self) -> PromptTemplate | None:
        """None where the model has none."""

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text; special tokens written out in it are recognised."""

    def encode_whole(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> WholeText:
        """Ids of a text, or of two, with all special tokens around them; cut to `max_length` ids where it is given."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of ids."""

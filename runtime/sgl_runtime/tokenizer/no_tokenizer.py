"""NoTokenizer: stands where a tokenizer would, for servers that take token ids and give token ids."""

from collections.abc import Sequence
from typing import NoReturn

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.tokenizer.vocabulary import Vocabulary
from sgl_runtime.tokenizer.whole_text import WholeText

REASON = "the server has no tokenizer (--skip-tokenizer-init): it takes and gives token ids alone"


class NoTokenizer:
    """See `PromptTokenizer`; whatever needs text is refused.

    Args:
        vocab_size: Number of ids; none of them adds text.

    Attributes:
        vocabulary: That many ids without bytes.
        bos_id, eos_id, chat_template: None, as nobody says what they are.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocabulary = Vocabulary([b""] * vocab_size, frozenset())
        self.bos_id: int | None = None
        self.eos_id: int | None = None
        self.chat_template: None = None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Refuse.

        Raises:
            InvalidRequestError: always.
        """
        _refuse()

    def encode_whole(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> WholeText:
        """Refuse.

        Raises:
            InvalidRequestError: always.
        """
        _refuse()

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Refuse.

        Raises:
            InvalidRequestError: always.
        """
        _refuse()


def _refuse() -> NoReturn:
    raise InvalidRequestError(REASON)

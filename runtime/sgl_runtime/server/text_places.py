"""TextPlaces: where in a text each of its tokens begins, for the log probabilities of /v1/completions."""

import codecs
from collections.abc import Sequence

from sgl_runtime.server.pending_reply import token_bytes
from sgl_runtime.tokenizer.vocabulary import Vocabulary


class TextPlaces:
    """Counts the characters in front of each token, as tokens come.

    Tokens that hold parts of one character begin where it begins.  Special tokens that the text leaves out take no
    room.

    Args:
        vocabulary: Bytes of each id.
        skipped_ids: Ids that the text leaves out.
        begin: Characters in front of the first token.

    Attributes:
        end: Characters of all tokens so far, what was in front of them included; a character that is not whole yet
            does not count.
    """

    def __init__(self, vocabulary: Vocabulary, *, skipped_ids: frozenset[int], begin: int = 0) -> None:
        self.end = begin
        self._vocabulary = vocabulary
        self._skipped_ids = skipped_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, ids: Sequence[int]) -> list[int]:
        """Where each of the next tokens begins."""
        places = []
        for token_id in ids:
            data = b"" if token_id in self._skipped_ids else token_bytes(self._vocabulary, token_id)
            if data and data[0] & 0xC0 != 0x80:
                # A new character: what is still open in front of it will never be whole.
                self.finish()
            places.append(self.end)
            self.end += len(self._decoder.decode(data))
        return places

    def finish(self) -> None:
        """Count a character that is not whole as one: nothing goes on with it."""
        self.end += len(self._decoder.decode(b"", final=True))

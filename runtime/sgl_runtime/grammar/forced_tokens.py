"""ForcedTokens: text that a grammar leaves no choice about, as the tokens in which the tokenizer writes it.

Where the next bytes are forced, the next token is too: the one that begins the forced text as the tokenizer writes it,
as long as what follows cannot change it.  So masks there hold one token, and a scheduler may append it without a pass.
"""

from collections.abc import Callable, Sequence

from sgl_runtime.grammar.base import ForcedText, GrammarState

_MAX_REMEMBERED = 16_384


class ForcedTokens:
    """Finds the forced token of a state.

    Args:
        token_bytes: For each id its bytes; None for ids that a constrained output never holds.
        encode: The tokenizer, without special tokens.
    """

    def __init__(self, token_bytes: Sequence[bytes | None], encode: Callable[[str], Sequence[int]]) -> None:
        self._token_bytes = token_bytes
        self._encode = encode
        self._known: dict[tuple[bytes, bool], int | None] = {}

    def next_token(self, state: GrammarState) -> int | None:
        """The token that must come next; None where there is a choice, if only one between spellings."""
        forced = state.forced_text()
        if not forced.data:
            return None
        key = forced.data, forced.ends
        if key not in self._known:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = self._first_token(forced)
        return self._known[key]

    def _first_token(self, forced: ForcedText) -> int | None:
        # What is cut off at the end may be a part of a character.
        text = forced.data.decode("utf-8", errors="ignore")
        tokens = self._encode(text)
        # The last token might be another one together with what follows.
        settled = tokens if forced.ends else tokens[:-1]
        if not settled:
            return None
        data = self._token_bytes[settled[0]] if settled[0] < len(self._token_bytes) else None
        return settled[0] if data and forced.data.startswith(data) else None

"""WholeText: a text, or two, with every token that a tokenizer puts around them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WholeText:
    """A text, or two, as a model that makes vectors reads it.

    Attributes:
        ids: With all special tokens.
        segment_start: Where the second text begins; -1 where there is one, or the tokenizer does not tell them apart.
    """

    ids: list[int]
    segment_start: int

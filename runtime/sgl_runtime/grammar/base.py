"""What the scheduler knows of a grammar: the protocols, the spec and the vocabulary view.

A `Grammar` is a compiled constraint, shared by every request that uses it.  A `GrammarState` is the cursor of
one request.  Both are torch-free: bytes, ints and numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.sampling_params import GrammarKind


@dataclass(frozen=True)
class GrammarSpec:
    """What a request asks for.

    Attributes:
        kind: Which front end reads `text`.
        text: The regex; the JSON Schema as JSON text; or the choices as a JSON list of strings.
    """

    kind: GrammarKind
    text: str


@dataclass(frozen=True)
class GrammarVocabulary:
    """The tokens as a grammar sees them.

    Attributes:
        token_bytes: For each id the bytes that it adds to the output; None for ids that a constrained output may
            never hold (special and unused ones).
        eos_ids: Ids that end the output; allowed exactly where the grammar may end.
        size: Number of logits, V; ids at and past len(token_bytes) are never allowed.
    """

    token_bytes: Sequence[bytes | None]
    eos_ids: frozenset[int]
    size: int

    @property
    def num_mask_words(self) -> int:
        """Length of one packed mask row, ceil(V / 32)."""
        return (self.size + 31) // 32


class GrammarState(Protocol):
    """Where one request stands in its grammar."""

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state.

        Args:
            row: (ceil(V / 32),) int32, every word is overwritten; bit i % 32 of word i // 32 says that token i may
                come next.  The bits of eos ids are set exactly when `can_end()`.
        """

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when the grammar does not allow it here.

        An eos id is allowed exactly when `can_end()` and leaves the state unchanged.
        """

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow: sampling would only give an eos id."""


class Grammar(Protocol):
    """A compiled constraint."""

    def new_state(self) -> GrammarState:
        """A cursor at the beginning of the output."""

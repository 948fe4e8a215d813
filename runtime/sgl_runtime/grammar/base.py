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

_MAX_MESSAGE_LEN = 400


@dataclass(frozen=True)
class GrammarSpec:
    """What a request asks for.

    Attributes:
        kind: Which front end reads `text`.
        text: The regex; the JSON Schema or the structural tag as JSON text; the grammar; or the choices as a JSON
            list of strings.
        lenient: Whether keywords of a JSON Schema that cannot be enforced are left out.
    """

    kind: GrammarKind
    text: str
    lenient: bool = False


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


@dataclass(frozen=True)
class ForcedText:
    """Bytes that must come next.

    Attributes:
        data: The bytes; empty where there is a choice.
        ends: Whether the output is complete behind them and nothing can follow.
    """

    data: bytes
    ends: bool


NOTHING_FORCED = ForcedText(b"", ends=False)


class GrammarState(Protocol):
    """Where one request stands in its grammar."""

    def fill_mask(self, row: NDArray[np.int32]) -> None:
        """Write the token mask of this state.

        Args:
            row: (ceil(V / 32),) int32, every word is overwritten; bit i % 32 of word i // 32 says that token i may
                come next.  The bits of eos ids are set exactly when `can_end()`.

        Raises:
            GrammarError: the work for this state passes a limit of the backend; the request cannot go on.
        """

    def advance(self, token_id: int) -> bool:
        """Move past a token; False, with the state unchanged, when the grammar does not allow it here.

        An eos id is allowed exactly when `can_end()` and leaves the state unchanged.

        Raises:
            GrammarError: as for `fill_mask`.
        """

    def can_end(self) -> bool:
        """Whether the output so far is complete as it stands."""

    def must_end(self) -> bool:
        """Whether the output is complete and nothing can follow: sampling would only give an eos id."""

    def forced_text(self) -> ForcedText:
        """The bytes that must come next, whatever is sampled; as many as the backend knows."""


class Grammar(Protocol):
    """A compiled constraint."""

    def new_state(self) -> GrammarState:
        """A cursor at the beginning of the output."""


@dataclass(frozen=True)
class RelaxedKeyword:
    """A keyword of a JSON Schema that is not enforced, which its request allowed.

    Attributes:
        path: Its JSON pointer.
        reason: Why, as the rest of a sentence about it.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class EnforcedGrammar:
    """What a grammar backend makes of a spec.

    Attributes:
        grammar: The constraint.
        backend: Which kind of grammar it is: fsm, llguidance or outlines.
        relaxed: What the spec says and the grammar does not enforce; only for lenient specs.
    """

    grammar: Grammar
    backend: str
    relaxed: tuple[RelaxedKeyword, ...] = ()


class GrammarBackend(Protocol):
    """Makes grammars; used by several threads."""

    def compile_at_once(self, spec: GrammarSpec) -> EnforcedGrammar | None:
        """Compile where that takes a tenth of a second at most, or find what was compiled before.

        It shares the interpreter with the decode loop.

        Returns:
            None where it would take longer.

        Raises:
            GrammarError: the spec is malformed or not supported; or it allows no output.
        """

    def compile(self, spec: GrammarSpec, *, in_worker: bool) -> EnforcedGrammar:
        """Compile within the limits of the configuration.

        Args:
            spec: The constraint.
            in_worker: Do heavy work in a worker process, which can be stopped whatever it does; otherwise here.

        Raises:
            GrammarError: as above; or a limit is passed.
        """


def one_line(message: str) -> str:
    """A message with what it quotes from a request, a path or a name, made short and printable."""
    if len(message) > _MAX_MESSAGE_LEN:
        message = f"{message[: _MAX_MESSAGE_LEN // 2]} ... {message[-_MAX_MESSAGE_LEN // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)

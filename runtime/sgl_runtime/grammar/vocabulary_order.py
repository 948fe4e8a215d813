"""VocabularyOrder: the tokens as a tree of their bytes, level by level, for walking them through an automaton."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.base import GrammarVocabulary

Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TokenLevel:
    """The distinct token prefixes of one length, sorted by their bytes.

    Attributes:
        byte: (P,) uint8, last byte of each prefix.
        first_child: (P + 1,) int32; the children of prefix i are first_child[i] .. first_child[i + 1] - 1 of the
            level below.
        token_ids: (T,) int32, the tokens of this length, sorted by their bytes.
        token_prefix: (T,) int32, the prefix that each of these tokens is.
        parent: (P,) int64, the prefix above, by its index on its level.
    """

    byte: NDArray[np.uint8]
    first_child: Indices
    token_ids: Indices
    token_prefix: Indices
    parent: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VocabularyOrder:
    """The tokens that a constrained output may hold.

    Attributes:
        levels: Prefixes of length 1, 2, ...
        root_children: (2,) int32, `first_child` of the empty prefix.
        size: Number of logits, V.
        usable_bytes: (256,) bool, see `of`.
    """

    levels: tuple[TokenLevel, ...]
    root_children: Indices
    size: int
    usable_bytes: NDArray[np.bool_]
    _most: dict[bytes, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, vocabulary: GrammarVocabulary) -> "VocabularyOrder":
        """Sort a vocabulary.

        Empty tokens and end-of-sequence tokens are left out.  `usable_bytes` are the bytes that are tokens by
        themselves; where a vocabulary spells some bytes only inside longer tokens, all bytes that occur.
        """
        every, ends = [data or b"" for data in vocabulary.token_bytes[: vocabulary.size]], vocabulary.eos_ids
        ordered = [token_id for token_id, data in enumerate(every) if data and token_id not in ends]
        ordered.sort(key=every.__getitem__)
        tokens = [every[token_id] for token_id in ordered]
        levels = _levels(tokens, np.array(ordered, dtype=np.int32))
        occurring = np.zeros(256, dtype=bool)
        for level in levels:
            occurring[level.byte] = True
        alone = np.zeros(256, dtype=bool)
        alone[[data[0] for data in tokens if len(data) == 1]] = True
        root_children = np.array([0, len(levels[0].byte) if levels else 0], dtype=np.int32)
        return cls(
            tuple(levels), root_children, vocabulary.size, alone if np.array_equal(alone, occurring) else occurring
        )

    def most_of(self, wanted: bytes) -> int:
        """How many of some bytes a token holds at most."""
        known = self._most.get(wanted)
        if known is None:
            is_wanted = np.zeros(256, dtype=np.int32)
            is_wanted[list(wanted)] = 1
            most, counts = 0, np.zeros(1, dtype=np.int32)
            for level in self.levels:
                counts = counts[level.parent] + is_wanted[level.byte]
                most = max(most, int(counts.max()))
            known = self._most[wanted] = most
        return known


def _levels(tokens: Sequence[bytes], token_ids: Indices) -> list[TokenLevel]:
    lengths = np.array([len(token) for token in tokens], dtype=np.int64)
    data = np.frombuffer(b"".join(tokens), dtype=np.uint8)
    offsets = np.cumsum(lengths) - lengths
    # The prefix of each token on the level above, by its index there.
    prefix = np.zeros(len(tokens), dtype=np.int64)
    levels: list[TokenLevel] = []
    depth = 0
    alive = np.flatnonzero(lengths > 0)
    num_above = 1
    children_of: list[Indices] = []
    while len(alive):
        byte = data[offsets[alive] + depth]
        parent = prefix[alive]
        opens = np.append(True, (byte[1:] != byte[:-1]) | (parent[1:] != parent[:-1]))
        number = np.cumsum(opens) - 1
        heads = np.flatnonzero(opens)
        ends = lengths[alive] == depth + 1
        children_of.append(_offsets(parent[heads], num_above))
        levels.append(
            TokenLevel(
                byte=byte[heads],
                first_child=np.zeros(len(heads) + 1, dtype=np.int32),
                token_ids=token_ids[alive[ends]],
                token_prefix=number[ends].astype(np.int32),
                parent=parent[heads],
            )
        )
        num_above = len(heads)
        prefix[alive] = number
        alive = alive[~ends]
        depth += 1
    for level, first_child in zip(levels, children_of[1:], strict=False):
        level.first_child[:] = first_child
    return levels


def _offsets(owners: NDArray[np.int64], num_owners: int) -> Indices:
    """Where the items of each owner begin, and at the end where the last one's end; `owners` ascends."""
    counts = np.bincount(owners, minlength=num_owners)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

"""What a compile worker is told, and what its tasks are; known to it and to its owner."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.automaton_record import Record
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.packed_arrays import Arrays, pack, unpack

GRACE_S = 2.0
"""How much longer than its limit a compilation may take before its process is ended."""

Task = Callable[[GrammarSpec], Record]


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is told once.

    Attributes:
        config: Limits and policies.
        arrays: `usable_bytes` (256,), and the vocabulary where a backend needs it.
    """

    config: GrammarConfig
    arrays: Arrays

    def packed(self) -> bytes:
        """The setup as bytes."""
        return pack(msgspec.to_builtins(self.config), self.arrays)

    @classmethod
    def unpacked(cls, data: bytes) -> "WorkerSetup":
        """What `packed` gave."""
        facts, arrays = unpack(data)
        return cls(msgspec.convert(facts, GrammarConfig), arrays)

"""StopAutomaton: a compiled stop regex, as it crosses process borders.

The API compiles it once (`server/stop_regex_compiler.py`); scheduler and detokenizer follow outputs with it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StopAutomaton:
    """A deterministic automaton over bytes that accepts what a regex matches as a whole.

    Attributes:
        regex: What it was made of.
        num_classes: K, how many classes of bytes it tells apart.
        byte_classes: The class of each byte, 256 bytes.
        table: S * K int32 in the machine's byte order: the next state by state and class, -1 where nothing more can
            match.  State 0 is the start.
        accepting: S bytes, 1 where what was read is a match.
    """

    regex: str
    num_classes: int
    byte_classes: bytes
    table: bytes
    accepting: bytes

"""check_regex: what can be said of a regex before any server sees it."""

import re

from sgl.errors import ArgumentError

# The pieces of a regex: an escape, a class, what refers back, any other character.
PIECE = re.compile(r"\\.|\[\^?+\]?+(?:\\.|[^\]\\])*+\]|\(\?P=|\(\?\(|.", re.DOTALL)
BACK_REFERENCE = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


def check_regex(name: str, regex: str) -> None:
    """Refuse a regex that is malformed, or that no automaton can follow.

    Args:
        name: The option, for errors.
        regex: Not empty.

    Raises:
        ArgumentError: the message says where.
    """
    try:
        re.compile(regex)
    except re.error as error:
        raise ArgumentError(f"{name} {regex!r} is malformed at position {error.pos}: {error.msg}") from error
    for piece in PIECE.finditer(regex):
        if BACK_REFERENCE.fullmatch(piece[0]):
            raise ArgumentError(
                f"{name} {regex!r} refers back to a group at position {piece.start()}, which no automaton can follow"
            )

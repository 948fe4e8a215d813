"""NativePath: one path of docs/protocol.md, as HTTP and `Engine` both find it."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Handler = Callable[[Any], Coroutine[Any, Any, Any]]
"""Takes the JSON body as Python objects, None for none, and gives the reply."""


@dataclass(frozen=True, kw_only=True)
class NativePath:
    """How a path is answered.

    Attributes:
        answer: Gives the reply.
        methods: The HTTP methods that it takes.
        takes_body: Whether there may be a body; without, `answer` is given None.
        is_admin: Whether it acts on the server as a whole, and so takes the admin key where there is one.
    """

    answer: Handler
    methods: tuple[Literal["GET", "POST"], ...] = ("POST",)
    takes_body: bool = True
    is_admin: bool = False


class PathGroup(Protocol):
    """Paths that belong together."""

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""

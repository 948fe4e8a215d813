"""The nodes of a program: what `gen`, `select` and the roles build and `s += ...` takes apart.

Nodes are immutable: one expression can be appended to many states.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sgl.choices import ChoicesMethod
from sgl.constraints import Constraint
from sgl.errors import ArgumentError
from sgl.output_types import OutputType
from sgl.reasoning import Thinking
from sgl.sampling import SamplingParams
from sgl.tools import ToolSet

Role = Literal["system", "user", "assistant"]
MediaKind = Literal["image", "video"]


class Expr:
    """Anything but plain text that can be appended to a state; `+` puts two behind each other."""

    def __add__(self, other: Any) -> "Concat":
        return Concat((*flatten(self), *flatten(other)))

    def __format__(self, spec: str) -> str:
        raise ArgumentError("an expression stands inside an f-string; append it with +, as in 'text' + gen(...)")

    def __radd__(self, other: Any) -> "Concat":
        return Concat((*flatten(other), *flatten(self)))


@dataclass(frozen=True)
class Text(Expr):
    """Constant text."""

    value: str


@dataclass(frozen=True, kw_only=True)
class Gen(Expr):
    """A call of the model.

    Attributes:
        name: Variable that gets the output; None when nobody reads it.
        sampling: What this gen says; the rest comes from `run`.
        constraint: What the output must match.
        output_type: What the output is read as; None for text.
        post: Makes the value of a variable out of what was read.
        timeout_s: Seconds that a request may take; None for as long as it takes.
        thinking: How it thinks before it answers; None where that is not told apart.
        source: `file:line` where the expression was built.
    """

    name: str | None
    sampling: SamplingParams
    constraint: Constraint | None = None
    output_type: OutputType | None = None
    post: Callable[[Any], Any] | None = None
    timeout_s: float | None = None
    thinking: Thinking | None = None
    source: str = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class ToolGen(Gen):
    """A call of the model in which it may call tools.  `constraint` is that of the calls, between their marks.

    Attributes:
        toolset: The tools.
    """

    toolset: ToolSet


@dataclass(frozen=True, kw_only=True)
class Select(Expr):
    """A pick among choices by likelihood.

    Attributes:
        name: Variable that gets the picked choice.
        choices: At least one, distinct, none empty.
        method: How scores become a pick; None for what the run says.
        source: `file:line` where the expression was built.
    """

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod | None
    source: str = field(compare=False)


@dataclass(frozen=True)
class Media(Expr):
    """An image, or a video as some of its frames.

    Attributes:
        kind: What it is.
        urls: Where its images are: addresses, or data URLs that hold them.
    """

    kind: MediaKind
    urls: tuple[str, ...]


@dataclass(frozen=True)
class RoleBegin(Expr):
    """Opens a message of a role."""

    role: Role


@dataclass(frozen=True)
class RoleEnd(Expr):
    """Closes the open message."""

    role: Role


Node = Text | Gen | Select | Media | RoleBegin | RoleEnd


@dataclass(frozen=True)
class Concat(Expr):
    """Nodes behind each other."""

    parts: tuple[Node, ...]


class Unknown:
    """A value that a trace does not know; its text has a mark by which the trace finds it again."""


def flatten(value: Any) -> Sequence[Node]:
    """The nodes of a text or an expression, in order.

    Raises:
        ArgumentError: the value is neither, or the text is none that can be sent.
    """
    if isinstance(value, str | Unknown):
        text = str(value)
        _check_characters(text)
        return (Text(text),) if text else ()
    if isinstance(value, Concat):
        return value.parts
    if isinstance(value, Text | Gen | Select | Media | RoleBegin | RoleEnd):
        return (value,)
    hint = "; convert it with str(...)" if isinstance(value, int | float) else ""
    raise ArgumentError(
        f"cannot append {value!r} of type {type(value).__name__}; append text or an expression such as gen(...){hint}"
    )


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"cannot append text with {text[error.start]!r} at position {error.start}: half of a surrogate pair is no"
            " character"
        ) from None


def role_after(nodes: Sequence[Node], open_role: str | None) -> str | None:
    """The role that is open behind these nodes, given the one that is open before.

    Raises:
        ArgumentError: a role begins inside another, or ends where it is not open.
    """
    for node in nodes:
        if isinstance(node, RoleBegin):
            if open_role is not None:
                raise ArgumentError(f"role {node.role!r} begins while role {open_role!r} is open; end that first")
            open_role = node.role
        elif isinstance(node, RoleEnd):
            if open_role != node.role:
                state = "no role is" if open_role is None else f"role {open_role!r} is"
                raise ArgumentError(f"role {node.role!r} ends while {state} open")
            open_role = None
    return open_role


def caller_source() -> str:
    """`file:line` of the nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "sgl":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"

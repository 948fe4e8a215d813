"""Tracer: runs a program's function on placeholders and keeps the nodes that it appends.

Nothing is generated.  What the function reads is a placeholder too; text that holds one is taken apart again where it
is appended, so f-strings over arguments work.  A function that decides by a placeholder cannot be traced further.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from sgl.errors import TraceError
from sgl.ir import Concat, Media, Node, RoleBegin, RoleEnd, Text, Unknown, flatten, role_after

# Private-use characters around the label of a placeholder, wherever it is formatted into text.
OPEN, CLOSE = "\ue0f0", "\ue0f1"
MARKED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


class Placeholder(Unknown):
    """Stands for a value that is not known: an argument, a variable, or something made of one.

    Args:
        label: How it came about, as `country` or `s['x']`.
    """

    def __init__(self, label: str) -> None:
        self._label = label

    def __str__(self) -> str:
        return f"{OPEN}{self._label}{CLOSE}"

    def __repr__(self) -> str:
        return f"{{{self._label}}}"

    def __format__(self, spec: str) -> str:
        return str(self)

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self._label}.{name}")

    def __getitem__(self, key: Any) -> "Placeholder":
        return Placeholder(f"{self._label}[{key!r}]")

    def __call__(self, *args: Any, **kwargs: Any) -> "Placeholder":
        """What a method of the unknown value gives."""
        return Placeholder(f"{self._label}(...)")

    def __add__(self, other: Any) -> Any:
        return f"{self}{other}" if isinstance(other, str | Placeholder) else Concat(tuple(flatten(self))) + other

    def __radd__(self, other: Any) -> Any:
        return f"{other}{self}" if isinstance(other, str) else other + Concat(tuple(flatten(self)))

    def __await__(self) -> Generator[None, None, "Placeholder"]:
        return self
        yield

    def _unknown(self, *_: Any) -> NoReturn:
        raise TraceError(f"the program decides by {self!r}, which a trace does not know")

    __bool__ = __len__ = __iter__ = __aiter__ = __int__ = __float__ = __index__ = __contains__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _unknown
    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unknown


@dataclass(frozen=True)
class Argument:
    """Text that depends on an argument or on a result.

    Attributes:
        label: On which, as `country` or `s['x']`.
    """

    label: str


@dataclass(frozen=True)
class Branches:
    """A fork.

    Attributes:
        traces: One for each branch.
    """

    traces: "tuple[Trace, ...]"


TracedNode = Node | Argument | Branches


@dataclass
class Trace:
    """What a program appends.

    Attributes:
        nodes: In order.
        ret_value: What the function returned; placeholders in it.
        stopped: Why the trace ends before the function does; None where it is complete.
    """

    nodes: list[TracedNode] = field(default_factory=list)
    ret_value: Any = None
    stopped: TraceError | None = None

    def prefix(self) -> Concat:
        """The text and the roles at the beginning that are the same in every run."""
        leading: list[Node] = []
        for node in self.nodes:
            if not isinstance(node, Text | RoleBegin | RoleEnd):
                break
            leading.append(node)
        return Concat(tuple(leading))

    def __str__(self) -> str:
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, Branches):
                for index, trace in enumerate(node.traces):
                    yield f"{indent}branch {index}"
                    yield from trace._lines(indent + "  ")
            else:
                yield indent + _describe(node)
        if self.stopped is not None:
            yield f"{indent}stopped: {self.stopped}"


class TracerState:
    """The `s` of a traced program, plain or async: appending records, reading gives placeholders.

    Args:
        trace: Takes the nodes.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._open_role: str | None = None

    def __iadd__(self, value: Any) -> Self:
        nodes = flatten(value)
        self._open_role = role_after(nodes, self._open_role)
        for node in nodes:
            self._trace.nodes.extend(_split(node) if isinstance(node, Text) else [node])
        return self

    def __getitem__(self, name: str) -> Placeholder:
        return Placeholder(f"s[{name!r}]")

    def __setitem__(self, name: str, value: Any) -> None:
        """A trace knows no values."""

    def __contains__(self, name: object) -> NoReturn:
        raise TraceError(f"the program decides by whether {name!r} is there, which a trace does not know")

    def __getattr__(self, name: str) -> Callable[..., Placeholder]:
        """Everything that reads: text, messages, get, choice, get_meta_info, sync, error."""
        if name.startswith("_"):
            raise AttributeError(name)
        return Placeholder(f"s.{name}")

    def system(self, expr: Any = None) -> Any:
        """See `BaseState`."""
        return self._role("system", expr)

    def user(self, expr: Any = None) -> Any:
        """See `BaseState`."""
        return self._role("user", expr)

    def assistant(self, expr: Any = None) -> Any:
        """See `BaseState`."""
        return self._role("assistant", expr)

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """See `BaseState`."""
        yield

    def fork(self, size: int = 1, position_ids_offset: Any = None) -> "TracerGroup":
        """See `ProgramState`."""
        branches = [TracerState(Trace()) for _ in range(size)]
        for branch in branches:
            branch._open_role = self._open_role
        self._trace.nodes.append(Branches(tuple(branch._trace for branch in branches)))
        return TracerGroup(branches)

    def copy(self, position_ids_offset: Any = None) -> "TracerCopy":
        """See `ProgramState`."""
        return TracerCopy(self.fork(1)[0])

    def _role(self, role: Any, expr: Any) -> Any:
        if expr is None:
            return self._role_block(role)
        self += Concat((RoleBegin(role), *flatten(expr), RoleEnd(role)))
        return None

    @contextmanager
    def _role_block(self, role: Any) -> Iterator[None]:
        self += RoleBegin(role)
        yield
        self += RoleEnd(role)


class TracerCopy:
    """`with s.copy()` and `async with s.copy()` of a traced program.

    Args:
        branch: The branch.
    """

    def __init__(self, branch: TracerState) -> None:
        self._branch = branch

    def __enter__(self) -> TracerState:
        return self._branch

    def __exit__(self, *_: object) -> None:
        """Brings nothing together: a trace knows no values."""

    async def __aenter__(self) -> TracerState:
        return self._branch

    async def __aexit__(self, *_: object) -> None:
        """Brings nothing together: a trace knows no values."""


class TracerGroup(list[TracerState]):
    """The branches of a traced program."""

    def __iadd__(self, value: Any) -> Self:  # type: ignore[override, misc]
        """See `BranchGroup`."""
        for index in range(len(self)):
            item = value[index] if isinstance(value, list | tuple) else value(index) if callable(value) else value
            self[index] += item
        return self

    def join(self, *_: Any, **__: Any) -> Placeholder:
        """Brings nothing together: a trace knows no values."""
        return Placeholder("join")


def _split(node: Text) -> Sequence[TracedNode]:
    """Constant text and what depends on placeholders, in turn."""
    pieces = MARKED.split(node.value)
    return [
        Argument(piece) if index % 2 else Text(piece) for index, piece in enumerate(pieces) if piece or index % 2 == 1
    ]


def _describe(node: TracedNode) -> str:
    match node:
        case Text():
            return f"text {node.value!r}"
        case Argument():
            return f"text of {{{node.label}}}"
        case RoleBegin() | RoleEnd():
            return f"{'begin' if isinstance(node, RoleBegin) else 'end'} {node.role}"
        case Media():
            return f"{node.kind} of {len(node.urls)}"
    assert not isinstance(node, Branches), "branches are described line by line"
    return f"{type(node).__name__.lower()} {node.name!r} at {node.source}"

"""AsyncProgramState: the `s` of an async program, and what `arun` gives: every read is awaited."""

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any

from sgl.backends.base import Message
from sgl.choices import Choice
from sgl.errors import SglError
from sgl.fork import AsyncProgramStateGroup
from sgl.results import read_beginning, read_variable
from sgl.scope import StateScope
from sgl.state_base import BaseState
from sgl.streaming import TextStream


class PendingValue:
    """The value of a variable, to be awaited, as often as one likes.

    Cancelling the wait (as `asyncio.wait_for` does) leaves the program alone.

    Args:
        scope: The state.
        name: The variable.
    """

    def __init__(self, scope: StateScope, name: str) -> None:
        self._scope = scope
        self._name = name

    def __await__(self) -> Generator[Any, None, Any]:
        return self._value().__await__()

    def __repr__(self) -> str:
        return f"<value of variable {self._name!r}, to be awaited>"

    async def _value(self) -> Any:
        return (await self._scope.settled_variable_async(self._name)).value


class AsyncProgramState(BaseState):
    """`ProgramState` for tasks: `await s["x"]`, `await s.text()`, `async for piece in s.text_iter()`.

    Appending, roles, variables set with `s["x"] = ...` and everything else that does not wait are the same.
    """

    def __getitem__(self, name: str) -> PendingValue:
        """`await s[name]` is the value of a variable; see `ProgramState`."""
        return PendingValue(self._scope, name)

    def get_var(self, name: str) -> PendingValue:
        """`await s.get_var(name)` is the same as `await s[name]`."""
        return self[name]

    async def get(self, name: str, wanted: Any) -> Any:
        """The value of a variable as another type; see `ProgramState.get`."""
        return read_variable(await self._scope.settled_variable_async(name), wanted, self._scope.context.program)

    async def choice(self, name: str) -> Choice:
        """All choices of a select with scores and probabilities; see `ProgramState.choice`."""
        variable = await self._scope.settled_variable_async(name)
        return Choice.of(name, variable.value, variable.meta)

    async def get_meta_info(self, name: str) -> dict[str, Any]:
        """What the backend said of a variable; see `ProgramState.get_meta_info`."""
        return (await self._scope.settled_variable_async(name)).settled_meta()

    async def text(self, *, partial: bool = False) -> str:
        """All text, constant and generated; see `ProgramState.text`."""
        if not partial:
            await self.sync()
        return self._partial_text()

    async def messages(self) -> list[Message]:
        """The closed messages; see `ProgramState.messages`."""
        await self.sync()
        return self._scope.closed_messages()

    async def sync(self) -> None:
        """Wait for everything appended so far."""
        await self._scope.context.progress.wait_for_async(self._scope.is_settled)
        self._scope.raise_error()

    async def error(self) -> SglError | None:
        """The error if the state failed, None if not; see `ProgramState.error`."""
        await self._scope.context.progress.wait_for_async(self._scope.is_settled)
        return self._scope.executor.queue.error

    def fork(self, size: int = 1, position_ids_offset: Any = None) -> "AsyncProgramStateGroup[AsyncProgramState]":
        """Branches that go on from here; see `ProgramState.fork`.  Their `join` is awaited."""
        scopes = self._fork_scopes(size)
        branches = [AsyncProgramState(scope) for scope in scopes]
        return AsyncProgramStateGroup(parent=self._scope, branches=branches, scopes=scopes)

    @asynccontextmanager
    async def copy(self, position_ids_offset: Any = None) -> AsyncIterator["AsyncProgramState"]:
        """`async with s.copy() as branch:` is a fork of one that is joined, by gathering; see `ProgramState.copy`."""
        group = self.fork(1)
        yield group[0]
        await group.join()

    def text_iter(self, var_name: str | None = None) -> AsyncIterator[str]:
        """The text, or one variable's, piece by piece, for `async for`; see `ProgramState.text_iter`."""
        return TextStream(self._scope, var_name).pieces_async()

    async def partial_iter(self, var_name: str) -> AsyncIterator[Any]:
        """A structured variable as it grows; see `ProgramState.partial_iter`."""
        latest = None
        beginning = ""
        async for piece in TextStream(self._scope, var_name).pieces_async():
            beginning += piece
            partial = read_beginning(beginning)
            if partial is not None and partial != latest:
                yield (latest := partial)
        yield await self[var_name]

    def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """`text_iter`, with meta info if asked for; see `ProgramState.text_async_iter`."""
        stream = TextStream(self._scope, var_name)
        return stream.pieces_with_meta() if return_meta_data else stream.pieces_async()

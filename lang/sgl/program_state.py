"""ProgramState: the `s` of a plain program, and what `run` gives."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Self

from sgl.backends.base import Message
from sgl.choices import Choice
from sgl.errors import SglError
from sgl.fork import ProgramStateGroup
from sgl.results import read_beginning, read_variable
from sgl.scope import StateScope
from sgl.state_base import BaseState
from sgl.streaming import TextStream


class ProgramState(BaseState):
    """The state of a running or finished program: text that grows, and variables.

    `s += ...` appends and returns at once; reading waits for what it needs.  A failed state raises the same
    `ProgramError` from every read.  When nobody holds a state any more, what still runs in it ends.
    """

    def __iadd__(self, value: Any) -> Self:
        """Append text or an expression."""
        self._scope.append(value)
        if self._is_inline:
            self._scope.context.wait_for(self._scope.is_idle)
            self._scope.raise_error()
        return self

    def with_scope(self, scope: StateScope) -> "ProgramState":
        """This state with other variables, for a program that is called inline."""
        return ProgramState(scope, is_inline=self._is_inline)

    def __getitem__(self, name: str) -> Any:
        """The value of a variable; waits for it.

        Raises:
            UnknownVariableError: the program has no such variable (also a KeyError).
            ProgramError: it failed.
        """
        return self._scope.settled_variable(name).value

    def get_var(self, name: str) -> Any:
        """The value of a variable; the same as `s[name]`."""
        return self[name]

    def get(self, name: str, wanted: Any) -> Any:
        """The value of a variable as another type, as in `s.get("x", int)` or `s.get("x", Person)`; waits for it.

        Args:
            name: The variable.
            wanted: A type as in `gen(type=...)`; with `str` the text itself, also where it is no value of its type.

        Raises:
            TruncatedError: the output was cut before it was complete.
            ResultError: it is no value of this type.
            ProgramError: it failed.
        """
        return read_variable(self._scope.settled_variable(name), wanted, self._scope.context.program)

    def choice(self, name: str) -> Choice:
        """All choices of a select with scores and probabilities; waits for it.

        Raises:
            ArgumentError: the variable did not come from a select.
        """
        variable = self._scope.settled_variable(name)
        return Choice.of(name, variable.value, variable.meta)

    def get_meta_info(self, name: str) -> dict[str, Any]:
        """What the backend said of a variable; waits for it.

        For a gen: id, finish reason, counts of prompt, completion and cached tokens, the sampling parameters sent, and
        log probabilities if asked for.  For a select: `scores`, `probabilities` and `input_token_logprobs` of each
        choice.  After a join: `branches`, the meta info in each branch.  Empty for a variable that the program set.

        Raises:
            UnknownVariableError: the program has no such variable.
            ProgramError: it failed.
        """
        return self._scope.settled_variable(name).settled_meta()

    def text(self, *, partial: bool = False) -> str:
        """All text, constant and generated; waits for everything appended so far.

        Args:
            partial: Give the text so far; never waits and never raises, so it also shows where a failed state got to.
        """
        if not partial:
            self.sync()
        return self._partial_text()

    def messages(self) -> list[Message]:
        """The closed messages, `{"role", "content"}` each; waits for everything appended so far.

        Text outside of roles belongs to no message.
        """
        self.sync()
        return self._scope.closed_messages()

    def sync(self) -> None:
        """Wait for everything appended so far."""
        self._scope.context.wait_for(self._scope.is_settled)
        self._scope.raise_error()

    def error(self) -> SglError | None:
        """Wait for everything appended so far; the error if the state failed, None if not.  Does not raise it."""
        self._scope.context.wait_for(self._scope.is_settled)
        return self._scope.executor.queue.error

    def fork(self, size: int = 1, position_ids_offset: Any = None) -> "ProgramStateGroup[ProgramState]":
        """Branches that go on from here, each on its own, sharing this state's prefix in the cache.

        Legal at any point: before any text, inside a role, while gens still run.

        Args:
            size: Number of branches.
            position_ids_offset: Has no effect; taken so that programs that pass it run.
        """
        scopes = self._fork_scopes(size)
        branches = [ProgramState(scope, is_inline=self._is_inline) for scope in scopes]
        return ProgramStateGroup(parent=self._scope, branches=branches, scopes=scopes)

    @contextmanager
    def copy(self, position_ids_offset: Any = None) -> Iterator["ProgramState"]:
        """`with s.copy() as branch:` is a fork of one that is joined, by gathering, at the end of the block.

        Args:
            position_ids_offset: As in `fork`.
        """
        group = self.fork(1)
        yield group[0]
        group.join()

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text, or one variable's, piece by piece as it comes; run the program with `stream=True` to see it grow.

        The pieces put together are `text()`, or the variable's text.  An error is raised after the text before it.
        Closing the iterator before its end (leaving a `for` loop does) cancels the run, unless the body itself reads.
        """
        return TextStream(self._scope, var_name).pieces()

    def partial_iter(self, var_name: str) -> Iterator[Any]:
        """A structured variable as it grows: a `Partial` whenever there is more of it, and at last the value itself.

        Raises:
            ResultError: the whole output is no value of its type.
            ProgramError: it failed.
        """
        latest = None
        beginning = ""
        for piece in TextStream(self._scope, var_name).pieces():
            beginning += piece
            partial = read_beginning(beginning)
            if partial is not None and partial != latest:
                yield (latest := partial)
        yield self[var_name]

    def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """`text_iter` for `async for`, on any event loop.

        Args:
            var_name: The variable; None for the whole text.
            return_meta_data: Give pairs of piece and meta info in place of pieces.
        """
        stream = TextStream(self._scope, var_name)
        return stream.pieces_with_meta() if return_meta_data else stream.pieces_async()

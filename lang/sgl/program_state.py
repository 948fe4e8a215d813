"""ProgramState: the `s` of a program."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

from sgl.backends.base import Message
from sgl.errors import SglError, reject
from sgl.executor import StateExecutor
from sgl.fork import ProgramStateGroup
from sgl.ir import Concat, Role, RoleBegin, RoleEnd, flatten
from sgl.streaming import TextStream

MAX_BRANCHES = 65_536


class ProgramState:
    """The state of a running or finished program: text that grows, and variables.

    `s += ...` appends and returns at once; reading waits for what it needs.  A failed state raises the same
    `ProgramError` from every read.

    Args:
        executor: Runs the nodes.
        is_inline: Whether appending waits until what was appended has run.

    Attributes:
        ret_value: What the program's function returned.
    """

    def __init__(self, executor: StateExecutor, *, is_inline: bool = False) -> None:
        self._executor = executor
        self._is_inline = is_inline
        self.ret_value: Any = None

    def __iadd__(self, value: Any) -> Self:
        """Append text or an expression."""
        self._executor.append(value)
        if self._is_inline:
            self._executor.wait_idle()
            self._executor.raise_error()
        return self

    def __getitem__(self, name: str) -> Any:
        """The value of a variable; waits for it.

        Raises:
            UnknownVariableError: the program has no such variable (also a KeyError).
            ProgramError: it failed.
        """
        return self._executor.settled_variable(name).value

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a variable now."""
        self._executor.set_variable(name, value, is_gathered=False)

    def __contains__(self, name: object) -> bool:
        """Whether the variable has a value by now; never waits."""
        with self._executor.context.progress.look():
            variable = self._executor.variables.get(name) if isinstance(name, str) else None
            return variable is not None and variable.is_settled and variable.error is None

    def __repr__(self) -> str:
        with self._executor.context.progress.look():
            queue = self._executor.queue
            status = "failed" if queue.error is not None else "done" if self._executor.is_settled() else "pending"
            return f"<ProgramState of {self._executor.context.program}, {status}: {queue.transcript.text!r}>"

    def variables(self) -> list[str]:
        """The names of all variables appended or set so far, in the order of the program; never waits."""
        with self._executor.context.progress.look():
            return list(self._executor.variables)

    def get_meta_info(self, name: str) -> dict[str, Any]:
        """What the backend said of a variable; waits for it.

        For a gen: id, finish reason, counts of prompt, completion and cached tokens, the sampling parameters sent, and
        log probabilities if asked for.  For a select: `scores`, `probabilities` and `input_token_logprobs` of each
        choice.  After a join: `branches`, the meta info in each branch.  Empty for a variable that the program set.

        Raises:
            UnknownVariableError: the program has no such variable.
            ProgramError: it failed.
        """
        variable = self._executor.settled_variable(name)
        if variable.error is not None:
            raise variable.error.with_traceback(None)
        return dict(variable.meta)

    def text(self, *, partial: bool = False) -> str:
        """All text, constant and generated; waits for everything appended so far.

        Args:
            partial: Give the text so far; never waits and never raises, so it also shows where a failed state got to.
        """
        if not partial:
            self._executor.wait()
        with self._executor.context.progress.look():
            return self._executor.queue.transcript.text

    def messages(self) -> list[Message]:
        """The closed messages, `{"role", "content"}` each; waits for everything appended so far.

        Text outside of roles belongs to no message.
        """
        self._executor.wait()
        with self._executor.context.progress.look():
            return [dict(message) for message in self._executor.queue.transcript.messages]

    def sync(self) -> None:
        """Wait for everything appended so far."""
        self._executor.wait()

    def error(self) -> SglError | None:
        """Wait for everything appended so far; the error if the state failed, None if not.  Does not raise it."""
        self._executor.context.progress.wait_for(self._executor.is_settled)
        return self._executor.queue.error

    def cancel(self) -> None:
        """End the state and its forks now: running requests are aborted, every later read raises."""
        self._executor.cancel()

    def system(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append a system message; `with s.system():` makes a message of what is appended inside."""
        return _role(self, "system", expr)

    def user(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append a user message; see `system`."""
        return _role(self, "user", expr)

    def assistant(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append an assistant message; see `system`."""
        return _role(self, "assistant", expr)

    def fork(self, size: int = 1) -> "ProgramStateGroup[ProgramState]":
        """Branches that go on from here, each on its own, sharing this state's prefix in the cache.

        Legal at any point: before any text, inside a role, while gens still run.

        Args:
            size: Number of branches.
        """
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BRANCHES:
            raise reject("size", size, f"an integer from 1 to {MAX_BRANCHES}")
        executors = self._executor.fork(size)
        branches = [ProgramState(executor, is_inline=self._is_inline) for executor in executors]
        return ProgramStateGroup(parent=self._executor, branches=branches, executors=executors)

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text, or one variable's, piece by piece as it comes; run the program with `stream=True` to see it grow.

        The pieces put together are `text()`, or the variable's value.  An error is raised after the text before it.
        """
        return TextStream(self._executor, var_name).pieces()

    def text_async_iter(self, var_name: str | None = None, *, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """`text_iter` for `async for`, on any event loop.

        Args:
            var_name: The variable; None for the whole text.
            return_meta_data: Give pairs of piece and meta info in place of pieces.
        """
        stream = TextStream(self._executor, var_name)
        return stream.pieces_with_meta() if return_meta_data else stream.pieces_async()


def _role(state: ProgramState, role: Role, expr: Any) -> AbstractContextManager[None]:
    """Append a message now, or give a block that does."""
    if expr is None:
        return _role_block(state, role)
    state += Concat((RoleBegin(role), *flatten(expr), RoleEnd(role)))
    return nullcontext()


@contextmanager
def _role_block(state: ProgramState, role: Role) -> Iterator[None]:
    state += RoleBegin(role)
    try:
        yield
    finally:
        # Also after an exception: a program that handles it goes on outside of the role.
        state += RoleEnd(role)

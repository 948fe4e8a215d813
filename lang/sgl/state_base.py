"""BaseState: what the states of plain and of async programs have in common: all that never waits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Self

from sgl.errors import ArgumentError, reject
from sgl.ir import Concat, Role, RoleBegin, RoleEnd, flatten
from sgl.recording import Recording
from sgl.scope import StateScope, require_body_done
from sgl.usage import Usage

MAX_BRANCHES = 65_536


class BaseState:
    """The state of a running or finished program: text that grows, and variables.

    Args:
        scope: The state as this program sees it.
        is_inline: Whether appending waits until what was appended has run.
    """

    def __init__(self, scope: StateScope, *, is_inline: bool = False) -> None:
        self._scope = scope
        self._is_inline = is_inline

    @property
    def ret_value(self) -> Any:
        """What the program's function returned."""
        return self._scope.executor.ret_value

    @property
    def recording(self) -> Recording:
        """What the run is recorded in.

        Raises:
            ArgumentError: it is not: run it with `record=True`, or inside `with sgl.record()`.
        """
        recording = self._scope.executor.recording
        if recording is None:
            raise ArgumentError("this run was not recorded; run it with record=True, or inside `with sgl.record()`")
        return recording

    def __iadd__(self, value: Any) -> Self:
        """Append text or an expression; returns at once."""
        self._scope.append(value)
        return self

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a variable now."""
        self._scope.set_variable(name, value, is_gathered=False)

    def set_var(self, name: str, value: Any) -> None:
        """Set a variable now; the same as `s[name] = value`."""
        self[name] = value

    def __contains__(self, name: object) -> bool:
        """Whether the variable has a value by now; never waits."""
        with self._scope.context.progress.look():
            variable = self._scope.table.by_name.get(name) if isinstance(name, str) else None
            return variable is not None and variable.is_settled and variable.error is None

    def __repr__(self) -> str:
        with self._scope.context.progress.look():
            queue = self._scope.executor.queue
            status = "failed" if queue.error is not None else "done" if self._scope.is_settled() else "pending"
            return f"<{type(self).__name__} of {self._scope.context.program}, {status}: {queue.transcript.text!r}>"

    def variables(self) -> list[str]:
        """The names of all variables appended or set so far, in the order of the program; never waits."""
        with self._scope.context.progress.look():
            return list(self._scope.table.by_name)

    def usage(self) -> Usage:
        """What the run's calls, those of its forks and inline programs too, came to so far; never waits."""
        with self._scope.context.progress.look():
            return replace(self._scope.context.usage)

    def cancel(self) -> None:
        """End the state and its forks now: running requests are aborted, every later read raises."""
        self._scope.executor.cancel()

    def system(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append a system message; `with s.system():` makes a message of what is appended inside."""
        return _role(self, "system", expr)

    def user(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append a user message; see `system`."""
        return _role(self, "user", expr)

    def assistant(self, expr: Any = None) -> AbstractContextManager[None]:
        """Append an assistant message; see `system`."""
        return _role(self, "assistant", expr)

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """`with s.var_scope("x"):` makes a variable of all the text that is added inside, constant and generated."""
        if not isinstance(name, str) or not name:
            raise reject("name", name, "a non-empty string")
        variable = self._scope.begin_capture(name)
        try:
            yield
        finally:
            self._scope.end_capture(variable)

    def _partial_text(self) -> str:
        with self._scope.context.progress.look():
            return self._scope.executor.queue.transcript.text

    def _fork_scopes(self, size: int) -> list[StateScope]:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BRANCHES:
            raise reject("size", size, f"an integer from 1 to {MAX_BRANCHES}")
        return self._scope.fork(size)


def scope_of(state: BaseState) -> StateScope:
    """The scope of a state, for a program that is called inline on it.

    Raises:
        ArgumentError: the body of the run that the state comes from has not returned.
    """
    require_body_done(state._scope)
    return state._scope


def _role(state: BaseState, role: Role, expr: Any) -> AbstractContextManager[None]:
    """Append a message now, or give a block that does."""
    if expr is None:
        return _role_block(state, role)
    state += Concat((RoleBegin(role), *flatten(expr), RoleEnd(role)))
    return nullcontext()


@contextmanager
def _role_block(state: BaseState, role: Role) -> Iterator[None]:
    state += RoleBegin(role)
    try:
        yield
    finally:
        # Also after an exception: a program that handles it goes on outside of the role.
        state += RoleEnd(role)

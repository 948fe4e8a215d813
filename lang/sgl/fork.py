"""ProgramStateGroup: the branches that `s.fork(n)` gives, and how they come together again."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from sgl.errors import ArgumentError, SglError, reject
from sgl.scope import StateScope

JoinMode = Literal["gather", "gather_variable", "concatenate", "concate_and_append"]
OnError = Literal["raise", "collect"]

JOIN_MODES = ("gather", "gather_variable", "concatenate", "concate_and_append")


class Appendable(Protocol):
    """A state as far as a group uses it."""

    def __iadd__(self, value: Any) -> Self:
        """Append text or an expression."""


BranchT = TypeVar("BranchT", bound=Appendable)


class BranchGroup(Generic[BranchT]):
    """Branches of a program, in order: index, iterate, append to all of them.

    Args:
        parent: The state that was forked.
        branches: The branches.
        scopes: The branches as the program sees them.
    """

    def __init__(self, *, parent: StateScope, branches: Sequence[BranchT], scopes: Sequence[StateScope]) -> None:
        self._parent = parent
        self._branches = list(branches)
        self._scopes = list(scopes)
        self._is_joined = False

    def __getitem__(self, index: int) -> BranchT:
        return self._branches[index]

    def __setitem__(self, index: int, branch: BranchT) -> None:
        """The second half of `forks[i] += ...`; no other branch can be put in."""
        if branch is not self._branches[index]:
            raise ArgumentError(f"branch {index} cannot be replaced; append to it with +=")

    def __len__(self) -> int:
        return len(self._branches)

    def __iter__(self) -> Iterator[BranchT]:
        return iter(self._branches)

    def __iadd__(self, value: Any) -> Self:
        """Append to every branch.

        Args:
            value: Text or an expression for all; a list with an item for each; or a function of the branch's index.
        """
        if isinstance(value, list | tuple):
            if len(value) != len(self._branches):
                raise ArgumentError(f"{len(value)} items for {len(self._branches)} branches; give one for each")
            items: Sequence[Any] = value
        elif callable(value):
            items = [value(index) for index in range(len(self._branches))]
        else:
            items = [value] * len(self._branches)
        for branch, item in zip(self._branches, items, strict=True):
            branch += item
        return self

    def _begin_join(self, mode: JoinMode, on_error: OnError) -> None:
        if mode not in JOIN_MODES:
            raise reject("mode", mode, "one of " + ", ".join(map(repr, JOIN_MODES)))
        if on_error not in ("raise", "collect"):
            raise reject("on_error", on_error, "'raise' or 'collect'")
        if self._is_joined:
            raise ArgumentError("these branches were joined already")
        self._is_joined = True
        for scope in self._scopes:
            scope.executor.close()

    def _finish_join(self, mode: JoinMode, on_error: OnError) -> None:
        errors = [scope.executor.queue.error for scope in self._scopes]
        if on_error == "raise":
            self._parent.raise_error()
            for error in errors:
                if error is not None:
                    raise error.with_traceback(None)
        if mode in ("gather", "gather_variable"):
            self._gather(errors, on_error)
        else:
            self._concatenate(errors)

    def _gather(self, errors: Sequence[SglError | None], on_error: OnError) -> None:
        made = [scope.table.made() for scope in self._scopes]
        for name in dict.fromkeys(name for variables in made for name in variables):
            mine = self._parent.table.by_name.get(name)
            if mine is not None and not mine.is_gathered:
                continue
            values: list[Any] = []
            metas: list[dict[str, Any] | None] = []
            for variables, error in zip(made, errors, strict=True):
                variable = variables.get(name)
                if variable is None:
                    values.append(error)
                elif variable.error is not None and on_error == "raise":
                    raise variable.error.with_traceback(None)
                else:
                    values.append(variable.error or variable.value)
                metas.append(dict(variable.meta) if variable is not None and variable.has_whole_text else None)
            self._parent.set_variable(name, values, meta={"branches": metas}, is_gathered=True)

    def _concatenate(self, errors: Sequence[SglError | None]) -> None:
        executors = [scope.executor for scope in self._scopes]
        for index, executor in enumerate(executors):
            if executor.open_role != executor.role_at_start:
                raise ArgumentError(f"branch {index} is joined with role {executor.open_role!r} open")
        for executor, error in zip(executors, errors, strict=True):
            if error is None:
                self._parent.executor.append_joined(executor.queue.added())


class ProgramStateGroup(BranchGroup[BranchT]):
    """The branches of a plain program."""

    def join(self, mode: JoinMode = "gather", *, on_error: OnError = "raise") -> None:
        """Wait for all branches and bring them together in the parent.

        Branches take no more nodes afterwards; their text, variables and meta info stay readable.

        Args:
            mode: "gather" (also "gather_variable"): every variable that a branch made becomes, in the parent, a list
                with one place for each branch, in order; None where the branch has no such variable.  A variable that
                the parent has already keeps its value, unless it is the list of an earlier join: that is replaced.
                "concatenate" (also "concate_and_append"): the parent's text goes on with the text of each branch from
                the fork on, in order; variables stay in the branches.
            on_error: "raise" raises the error of the first failed branch.  "collect" puts the error into the failed
                branch's place of every list; when concatenating, its text is left out.

        Raises:
            ArgumentError: an unknown mode or policy, a second join, or, when concatenating, a branch that left a
                role open.
            SglError: with "raise", the error of the first failed branch.
        """
        self._begin_join(mode, on_error)
        for scope in self._scopes:
            scope.context.wait_for(scope.is_idle)
        self._finish_join(mode, on_error)


class AsyncProgramStateGroup(BranchGroup[BranchT]):
    """The branches of an async program."""

    async def join(self, mode: JoinMode = "gather", *, on_error: OnError = "raise") -> None:
        """Wait for all branches and bring them together in the parent; see `ProgramStateGroup.join`."""
        self._begin_join(mode, on_error)
        for scope in self._scopes:
            await scope.context.progress.wait_for_async(scope.is_idle)
        self._finish_join(mode, on_error)

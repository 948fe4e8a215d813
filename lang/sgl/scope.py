"""StateScope: what one program sees of a state: its variables, and how far it has to wait.

The body of a program and the caller of `run` look at the same state with scopes of their own: what the body reads is
what has been appended so far, while the caller of a streaming run waits for what the body will still append.  A program
called inline has a scope with variables of its own.
"""

import weakref
from collections.abc import Sequence
from typing import Any

from sgl.backends.base import Message
from sgl.capability_check import check_node
from sgl.errors import ArgumentError, UnknownVariableError
from sgl.executor import StateExecutor
from sgl.ir import Gen, Media, Node, Select, flatten
from sgl.node_queue import BeginCapture, EndCapture, Operation, RunNode
from sgl.reasoning import thinking_variable
from sgl.run_context import RunContext
from sgl.sampling import SamplingParams
from sgl.variable import Variable, VariableTable


class StateScope:
    """Variables and waits of one program on one state.

    Args:
        executor: The state.
        table: The variables.
        sampling: Settings for gens that do not say their own.
        is_outside: Whether the body may append behind the back of whoever holds this scope.
    """

    def __init__(
        self, executor: StateExecutor, *, table: VariableTable, sampling: SamplingParams, is_outside: bool = False
    ) -> None:
        self.executor = executor
        self.table = table
        self.sampling = sampling
        self.is_outside = is_outside

    @property
    def context(self) -> RunContext:
        """The run."""
        return self.executor.context

    def outside(self) -> "StateScope":
        """The scope for the caller of the run; when it is dropped while the body runs, the run ends."""
        scope = StateScope(self.executor, table=self.table, sampling=self.sampling, is_outside=True)
        if self.context.stream:
            weakref.finalize(scope, self.context.loop.call_soon, self.executor.queue.abandon_body).atexit = False
        return scope

    def inline(self, sampling: SamplingParams) -> "StateScope":
        """The scope of a program that is called inline: the same state, no variables yet."""
        return StateScope(self.executor, table=VariableTable(), sampling=sampling.over(self.sampling))

    def append(self, value: Any) -> None:
        """Append text or an expression.

        Raises:
            ArgumentError: not text or an expression, a role inside a role, the state was joined, or its body runs.
            UnsupportedError: the backend cannot do it.
        """
        nodes = flatten(value)
        backend = self.context.backend
        for node in nodes:
            if isinstance(node, Gen | Select | Media):
                check_node(node, backend)
        if self.context.settings.num_api_spec_tokens is None:
            self._take([self._operation(node) for node in nodes])
        else:
            self._take([self._operation(node, nodes[index + 1 :]) for index, node in enumerate(nodes)])

    def begin_capture(self, name: str) -> Variable:
        """A variable that gets all text from here to `end_capture`."""
        variable = Variable(name)
        self._take([BeginCapture(variable)])
        return variable

    def end_capture(self, variable: Variable) -> None:
        """Here ends the text of the variable."""
        self.executor.append([EndCapture(variable)])

    def set_variable(self, name: str, value: Any, *, meta: dict[str, Any] | None = None, is_gathered: bool) -> None:
        """Give a variable its value now."""
        variable = Variable(name, is_gathered=is_gathered)
        variable.finish(value, meta or {})
        with self.context.progress.change():
            self.table.by_name[name] = variable

    def fork(self, size: int) -> "list[StateScope]":
        """Scopes of branches that begin where the state stands after everything appended so far."""
        require_body_done(self)
        return [
            StateScope(executor, table=self.table.branch(), sampling=self.sampling)
            for executor in self.executor.fork(size)
        ]

    def settled_variable(self, name: str) -> Variable:
        """The variable of this name, when it has its value or has failed; waits for it to be appended as well.

        Raises:
            UnknownVariableError: the program has no such variable.
            SglError: the state failed before it came to it.
        """
        self.context.wait_for(lambda: self.is_known(name))
        variable = self.known_variable(name)
        self.context.wait_for(lambda: variable.is_settled)
        return variable

    async def settled_variable_async(self, name: str) -> Variable:
        """The same for a task."""
        await self.context.progress.wait_for_async(lambda: self.is_known(name))
        variable = self.known_variable(name)
        await self.context.progress.wait_for_async(lambda: variable.is_settled)
        return variable

    def is_known(self, name: str) -> bool:
        """Whether it is clear if there is a variable of this name."""
        return name in self.table.by_name or self.executor.queue.error is not None or not self._may_grow()

    def known_variable(self, name: str) -> Variable:
        """The variable of this name, once `is_known`."""
        if name in self.table.by_name:
            return self.table.by_name[name]
        self.raise_error()
        known = ", ".join(map(repr, self.table.by_name)) or "none"
        raise UnknownVariableError(
            f"program {self.context.program!r} has no variable {name!r} at this point; known: {known}"
        )

    def is_settled(self) -> bool:
        """Whether nothing more will come: failed, or every node has run and the holder expects no more."""
        queue = self.executor.queue
        return queue.error is not None or (queue.is_idle and not self._may_grow())

    def is_idle(self) -> bool:
        """Whether everything appended so far has run, or the state failed."""
        return self.executor.queue.is_idle or self.executor.queue.error is not None

    def raise_error(self) -> None:
        """Raise why the state failed, always the same object; nothing where it did not."""
        error = self.executor.queue.error
        if error is not None:
            raise error.with_traceback(None)

    def closed_messages(self) -> list[Message]:
        """The closed messages so far, copies."""
        with self.context.progress.look():
            return [dict(message) for message in self.executor.queue.transcript.messages]

    def _operation(self, node: Node, following: Sequence[Node] = ()) -> RunNode:
        if isinstance(node, Gen):
            thinking = Variable(thinking_variable(node.name)) if node.thinking is not None else None
            return RunNode(node, Variable(node.name), self.sampling, thinking, tuple(following))
        return RunNode(node, Variable(node.name) if isinstance(node, Select) else None, self.sampling)

    def _may_grow(self) -> bool:
        return self.is_outside and self.context.may_grow

    def _take(self, operations: list[Operation]) -> None:
        require_body_done(self)
        with self.context.progress.change():
            self.executor.append(operations)
            for operation in operations:
                if isinstance(operation, RunNode | BeginCapture):
                    for variable in operation.variables:
                        if variable.name is not None:
                            self.table.by_name[variable.name] = variable


def require_body_done(scope: StateScope) -> None:
    """Let nobody work on a state behind the back of the body that works on it.

    Raises:
        ArgumentError: the scope is that of a caller, and the body of the run has not returned.
    """
    if scope.is_outside and scope.context.may_grow:
        raise ArgumentError(
            f"program {scope.context.program!r} still runs: continue its state when its function has returned"
        )

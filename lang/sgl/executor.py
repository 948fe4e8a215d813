"""StateExecutor: what the program's thread and its readers see of one state.

The program's thread appends nodes, which puts variables, roles and forks in the order of the program at once; the
state's queue runs them later.  A wait for a state or a variable ends when it has run or failed.
"""

from typing import Any

from sgl.backends.base import Message
from sgl.errors import ArgumentError, UnknownVariableError
from sgl.ir import Gen, Node, Select, flatten, role_after
from sgl.node_queue import AppendJoined, NodeQueue, RunNode, StartBranches, ended
from sgl.run_context import RunContext
from sgl.seeds import Seeds
from sgl.transcript import Transcript
from sgl.variable import Variable


class StateExecutor:
    """The program's side of one state.

    Args:
        context: The run.
        seeds: Seeds of this state's gens and forks.
        transcript: Where the state begins; None for a fork.
        variables: What the state knows from its parent.
        open_role: The role that is open where the state begins.

    Attributes:
        queue: Runs the nodes.
        variables: By name, in the order of the program; pending ones too.
        inherited: Those known from the parent.
        open_role, role_at_start: The role that is open after everything appended so far, and before.
    """

    def __init__(
        self,
        *,
        context: RunContext,
        seeds: Seeds,
        transcript: Transcript | None,
        variables: dict[str, Variable] | None = None,
        open_role: str | None = None,
    ) -> None:
        self.context = context
        self.queue = NodeQueue(context=context, seeds=seeds, transcript=transcript)
        self.variables = dict(variables or {})
        self.inherited = dict(self.variables)
        self.open_role = open_role
        self.role_at_start = open_role
        self._seeds = seeds
        self._is_root = transcript is not None
        self._is_closed = False

    def append(self, value: Any) -> None:
        """Append text or an expression; roles are checked before anything of it is taken.

        Raises:
            ArgumentError: not text or an expression, a role inside a role, or the state was joined.
        """
        nodes = flatten(value)
        self._require_open()
        open_role = role_after(nodes, self.open_role)
        operations = [RunNode(node, _variable_of(node)) for node in nodes]
        with self.context.progress.change():
            self.open_role = open_role
            for operation in operations:
                if operation.variable is not None and operation.variable.name is not None:
                    self.variables[operation.variable.name] = operation.variable
            self.queue.submit(operations)

    def set_variable(self, name: str, value: Any, *, meta: dict[str, Any] | None = None, is_gathered: bool) -> None:
        """Give a variable its value now."""
        variable = Variable(name, is_gathered=is_gathered)
        variable.finish(value, meta or {})
        with self.context.progress.change():
            self.variables[name] = variable

    def fork(self, size: int) -> "list[StateExecutor]":
        """Branches that begin where this state stands after everything appended so far."""
        self._require_open()
        branches = [
            StateExecutor(
                context=self.context,
                seeds=seeds,
                transcript=None,
                variables=self.variables,
                open_role=self.open_role,
            )
            for seeds in self._seeds.next_fork(size)
        ]
        self.queue.submit([StartBranches(tuple(branch.queue for branch in branches))])
        return branches

    def append_joined(self, text: str, messages: list[Message]) -> None:
        """Put a joined branch's text behind."""
        self.queue.submit([AppendJoined(text, messages)])

    def close(self) -> None:
        """Take no more nodes: the state was joined."""
        self._is_closed = True

    def cancel(self) -> None:
        """End now, with all forks."""
        self.queue.fail(ended(self.context.program, "was cancelled"), with_branches=True)

    def variable(self, name: str) -> Variable:
        """The variable of this name, pending or settled; waits for it to be appended where another thread may do so.

        Raises:
            UnknownVariableError: the program has no such variable.
            SglError: the state failed before it came to it.
        """
        self.context.progress.wait_for(lambda: self.is_known(name))
        return self.known_variable(name)

    def settled_variable(self, name: str) -> Variable:
        """The same, when it has its value or has failed."""
        variable = self.variable(name)
        self.context.progress.wait_for(lambda: variable.is_settled)
        return variable

    def is_known(self, name: str) -> bool:
        """Whether it is clear if there is a variable of this name."""
        return name in self.variables or self.queue.error is not None or not self._may_grow()

    def known_variable(self, name: str) -> Variable:
        """The variable of this name, once `is_known`."""
        if name in self.variables:
            return self.variables[name]
        self.raise_error()
        known = ", ".join(map(repr, self.variables)) or "none"
        raise UnknownVariableError(
            f"program {self.context.program!r} has no variable {name!r} at this point; known: {known}"
        )

    def is_settled(self) -> bool:
        """Whether nothing more will come: failed, or every node has run and the caller expects no more."""
        return self.queue.error is not None or (self.queue.is_idle and not self._may_grow())

    def wait_idle(self) -> None:
        """Block until everything appended so far has run or the state failed."""
        self.context.progress.wait_for(lambda: self.queue.is_idle or self.queue.error is not None)

    def wait(self) -> None:
        """Block until the state is settled, and raise why it failed if it did."""
        self.context.progress.wait_for(self.is_settled)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise why the state failed, always the same object; nothing where it did not."""
        if self.queue.error is not None:
            raise self.queue.error.with_traceback(None)

    def _may_grow(self) -> bool:
        # Branches belong to the body: whoever reads one got it from the body when it was complete.
        return self._is_root and self.context.may_grow()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ArgumentError(f"program {self.context.program!r}: a branch was used after its join")


def _variable_of(node: Node) -> Variable | None:
    return Variable(node.name) if isinstance(node, Gen | Select) else None

"""StateExecutor: one state, as all programs that work on it share it.

Programs append operations, which puts roles and forks in the order of the program at once; the state's queue runs them
later.  A state that nobody holds any more ends, and what it asked the backend for is aborted.
"""

import weakref
from collections.abc import Sequence
from typing import Any

from sgl.errors import ArgumentError
from sgl.ir import role_after
from sgl.node_queue import AppendJoined, NodeQueue, Operation, RunNode, StartBranches, ended
from sgl.recording import Recording
from sgl.run_context import RunContext
from sgl.seeds import Seeds
from sgl.transcript import Addition, Transcript


class StateExecutor:
    """The program's side of one state.

    Args:
        context: The run.
        seeds: Seeds of this state's gens and forks.
        transcript: Where the state begins; None for a fork.
        parent: The state that was forked: it lives as long as its forks, which begin from it.

    Attributes:
        queue: Runs the nodes.
        ret_value: What the program's function returned.
        recording: What the run is recorded in; None where it is not.
        open_role, role_at_start: The role that is open after everything appended so far, and before.
    """

    def __init__(
        self,
        *,
        context: RunContext,
        seeds: Seeds,
        transcript: Transcript | None,
        parent: "StateExecutor | None" = None,
    ) -> None:
        self.context = context
        self.queue = NodeQueue(context=context, seeds=seeds, transcript=transcript)
        self.ret_value: Any = None
        self.recording: Recording | None = parent.recording if parent is not None else None
        self.open_role: str | None = parent.open_role if parent is not None else None
        self.role_at_start = self.open_role
        self._seeds = seeds
        self._parent = parent
        self._is_closed = False
        # The queue's tasks hold the queue, never this object.
        weakref.finalize(self, context.loop.call_soon, self.queue.abandon).atexit = False

    def append(self, operations: Sequence[Operation]) -> None:
        """Take operations; roles are checked before any of them is taken.

        Raises:
            ArgumentError: a role inside a role, or the state was joined.
        """
        self._require_open()
        nodes = [operation.node for operation in operations if isinstance(operation, RunNode)]
        open_role = role_after(nodes, self.open_role)
        with self.context.progress.change():
            self.open_role = open_role
            self.queue.submit(operations)

    def fork(self, size: int) -> "list[StateExecutor]":
        """Branches that begin where this state stands after everything appended so far."""
        self._require_open()
        branches = [
            StateExecutor(context=self.context, seeds=seeds, transcript=None, parent=self)
            for seeds in self._seeds.next_fork(size)
        ]
        self.queue.submit([StartBranches(tuple(branch.queue for branch in branches))])
        return branches

    def append_joined(self, addition: Addition) -> None:
        """Put behind what came to a joined branch."""
        self.queue.submit([AppendJoined(addition)])

    def close(self) -> None:
        """Take no more nodes: the state was joined."""
        self._is_closed = True

    def cancel(self, how: str = "was cancelled") -> None:
        """End now, with all forks.

        Args:
            how: What the error says.
        """
        self.queue.fail(ended(self.context.program, how), with_branches=True)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ArgumentError(f"program {self.context.program!r}: a branch was used after its join")

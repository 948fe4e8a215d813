"""NodeQueue: one state's nodes, run in order on the event loop.

A queue is pending (nodes are left to run), idle (all have run) or failed.  A fork's queue is held until its parent has
come to the fork.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakSet

from sgl.errors import ProgramError, SglError
from sgl.ir import Gen, Node, RoleBegin, RoleEnd, Select, Text
from sgl.node_runner import NodeRunner
from sgl.recording import StateRecorder
from sgl.run_context import RunContext
from sgl.sampling import SamplingParams
from sgl.seeds import Seeds
from sgl.transcript import Addition, Transcript
from sgl.variable import Variable


@dataclass(frozen=True)
class RunNode:
    """Run a node; a gen or a select fills the variable.

    Attributes:
        node: What to run.
        variable: What it fills.
        sampling: Settings for a gen that does not say its own.
        thinking: What gets the thinking of a gen that separates it.
        following: The nodes that were appended together with it and stand behind it, where a gen speculates.
    """

    node: Node
    variable: Variable | None
    sampling: SamplingParams
    thinking: Variable | None = None
    following: tuple[Node, ...] = ()

    @property
    def variables(self) -> "tuple[Variable, ...]":
        """What it fills, in the order of the program."""
        if self.variable is None:
            return ()
        return (self.variable,) if self.thinking is None else (self.thinking, self.variable)


@dataclass(frozen=True)
class StartBranches:
    """Let forks begin from here."""

    branches: "tuple[NodeQueue, ...]"


@dataclass(frozen=True)
class AppendJoined:
    """Put behind what came to a branch."""

    addition: Addition


@dataclass(frozen=True)
class BeginCapture:
    """From here on the text belongs to a variable."""

    variable: Variable

    @property
    def variables(self) -> "tuple[Variable, ...]":
        """What it fills."""
        return (self.variable,)


@dataclass(frozen=True)
class EndCapture:
    """Here it ends."""

    variable: Variable

    @property
    def variables(self) -> "tuple[Variable, ...]":
        """What it fills."""
        return (self.variable,)


Operation = RunNode | StartBranches | AppendJoined | BeginCapture | EndCapture


class NodeQueue:
    """Takes the operations of one state and runs them.

    Args:
        context: The run.
        seeds: Seeds of this state's gens.
        transcript: Where the state begins; None for a fork, which gets it with `begin`.
    """

    def __init__(self, *, context: RunContext, seeds: Seeds, transcript: Transcript | None) -> None:
        self._context = context
        self._seeds = seeds
        self._runner: NodeRunner | None = None
        self._num_inherited = (0, 0)
        self._waiting: deque[Operation] = deque()
        self._current: Operation | None = None
        # What runs the operations; None while there are none to run.
        self._task: concurrent.futures.Future[None] | None = None
        self._error: SglError | None = None
        # Weak: a branch that nobody holds any more needs no end.
        self._branches: WeakSet[NodeQueue] = WeakSet()
        if transcript is not None:
            self.begin(transcript)

    @property
    def is_idle(self) -> bool:
        """Whether every node has run."""
        return self._runner is not None and self._task is None and not self._waiting

    @property
    def error(self) -> SglError | None:
        """Why the state failed; None where it did not."""
        return self._error

    @property
    def transcript(self) -> Transcript:
        """What the state has come to so far; read it under the run's lock."""
        return self._runner.transcript if self._runner is not None else Transcript()

    def added(self) -> Addition:
        """What came after the state began."""
        with self._context.progress.look():
            return self.transcript.added_since(*self._num_inherited)

    def begin(self, transcript: Transcript, *, recorded_below: StateRecorder | None = None) -> None:
        """Start from a transcript; what was submitted before runs now.

        Args:
            transcript: Where the state begins.
            recorded_below: The record of the state that was forked, where the run is recorded.
        """
        assert self._runner is None, "a state begins once"
        with self._context.progress.change():
            if self._error is None:
                self._num_inherited = (len(transcript.text), len(transcript.messages))
                recorder = self._context.recorder.new_state(recorded_below) if self._context.recorder else None
                self._runner = NodeRunner(
                    context=self._context, transcript=transcript, seeds=self._seeds, recorder=recorder
                )
                self.submit([])

    def submit(self, operations: Sequence[Operation]) -> None:
        """Take operations; those of a failed state fail at once, with the same error."""
        with self._context.progress.change():
            for operation in operations:
                if isinstance(operation, StartBranches):
                    self._branches.update(operation.branches)
            if self._error is not None:
                self._discard(operations)
                return
            self._waiting.extend(operations)
            if self._runner is None or self._task is not None:
                return
            self._run_leading_text(self._runner)
            if self._waiting:
                self._task = self._context.loop.start(self._drain(self._runner))

    def fail(self, error: SglError, *, with_branches: bool) -> None:
        """End in an error, with everything that waits; the first error stays.

        Args:
            error: What every access raises from now on.
            with_branches: Whether forks that already run end too.
        """
        with self._context.progress.change():
            if self._error is None:
                self._error = error
                left = [*self._waiting] if self._current is None else [self._current, *self._waiting]
                self._waiting.clear()
                self._discard(left)
            branches = list(self._branches) if with_branches else []
            task = self._task
        for branch in branches:
            branch.fail(error, with_branches=True)
        if task is not None:
            task.cancel()

    def abandon(self) -> None:
        """Nobody holds the state any more: what still runs ends.  Called on the loop."""
        if not self.is_idle:
            self.fail(ended(self._context.program, "was abandoned: nobody holds its state"), with_branches=False)

    def abandon_body(self) -> None:
        """Nobody can read what a streaming run's body still appends: the run ends.  Called on the loop."""
        if self._context.may_grow:
            self.fail(ended(self._context.program, "was abandoned: nobody holds its state"), with_branches=True)

    def _run_leading_text(self, runner: NodeRunner) -> None:
        # Text needs no backend: it is done here, so that a program of constants never waits for the loop.
        while self._waiting:
            operation = self._waiting[0]
            if isinstance(operation, AppendJoined):
                runner.append_joined(operation.addition)
            elif isinstance(operation, RunNode) and isinstance(operation.node, Text):
                runner.append(operation.node.value)
            else:
                return
            self._waiting.popleft()

    async def _drain(self, runner: NodeRunner) -> None:
        while True:
            with self._context.progress.look():
                self._current = None
                if not self._waiting or self._error is not None:
                    with self._context.progress.change():
                        self._task = None
                    return
                operation = self._current = self._waiting.popleft()
            try:
                await self._run(runner, operation)
            except asyncio.CancelledError:
                self.fail(ended(self._context.program, "was cancelled"), with_branches=False)
                raise
            except Exception as error:
                # The task must not cancel itself: it ends in the next turn.
                with self._context.progress.change():
                    self._task = None
                    self.fail(explain(operation, error, self._context.program), with_branches=False)

    async def _run(self, runner: NodeRunner, operation: Operation) -> None:
        match operation:
            case RunNode():
                await runner.run(
                    operation.node,
                    operation.variable,
                    operation.sampling,
                    thinking=operation.thinking,
                    following=operation.following,
                )
            case BeginCapture():
                runner.begin_capture(operation.variable)
            case EndCapture():
                runner.end_capture(operation.variable)
            case AppendJoined():
                runner.append_joined(operation.addition)
            case StartBranches():
                if len(operation.branches) > 1:
                    await runner.commit()
                for branch in operation.branches:
                    branch.begin(runner.transcript.copy(), recorded_below=runner.recorder)

    def _discard(self, operations: Sequence[Operation]) -> None:
        """Pass the state's error on to all that would have come of these operations."""
        assert self._error is not None, "only a failed state discards"
        for operation in operations:
            if isinstance(operation, RunNode | BeginCapture | EndCapture):
                for variable in operation.variables:
                    variable.fail(self._error)
            elif isinstance(operation, StartBranches):
                for branch in operation.branches:
                    branch.fail(self._error, with_branches=False)


def ended(program: str, how: str) -> ProgramError:
    """The error of a state that was ended from outside."""
    return ProgramError(f"program {program!r} {how}", program=program)


def explain(operation: Operation, error: Exception, program: str) -> SglError:
    """The error of a state whose operation raised `error`: names program, variable and source line."""
    if isinstance(error, ProgramError):
        return error
    name, source, what = None, None, "fork"
    if isinstance(operation, RunNode):
        what = "gen" if isinstance(operation.node, Gen) else type(operation.node).__name__.lower()
        if isinstance(operation.node, Gen | Select):
            name, source = operation.node.name, operation.node.source
        elif isinstance(operation.node, RoleBegin | RoleEnd):
            what = f"role {operation.node.role!r}"
    where = (f" {name!r}" if name is not None else "") + (f" at {source}" if source is not None else "")
    cause = str(error) if isinstance(error, SglError) else f"{type(error).__name__}: {error}"
    explained = ProgramError(
        f"program {program!r} failed in {what}{where}: {cause}", program=program, variable=name, source=source
    )
    explained.__cause__ = error
    return explained

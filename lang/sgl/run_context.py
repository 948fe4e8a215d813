"""RunContext: what the states of one run of a program share."""

import logging
import threading

from sgl.backends.base import Backend
from sgl.event_loop import EventLoopThread
from sgl.progress import Progress
from sgl.sampling import RUN_DEFAULTS, SamplingParams

logger = logging.getLogger(__name__)


class DefaultLimitNotice:
    """Says once that the default limit on tokens cut an output, which is easily taken for the model's own end."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._is_said = False

    def say(self, variable: str | None, source: str) -> None:
        """Log the warning the first time."""
        if not self._is_said:
            self._is_said = True
            logger.warning(
                "program %s: gen %r (%s) was cut at the default of %d tokens; set max_tokens in gen or max_new_tokens "
                "in run",
                self._program,
                variable,
                source,
                RUN_DEFAULTS.max_new_tokens,
            )


class RunContext:
    """One run of a program: its settings, its lock and where its body stands.

    Args:
        program: Name of the program, for errors.
        backend: Takes the calls.
        loop: Runs the nodes.
        sampling: What the caller of `run` said.
        stream: Whether gens stream and the body runs in a thread of its own.
        notice: The program's warning about the default limit.
    """

    def __init__(
        self,
        *,
        program: str,
        backend: Backend,
        loop: EventLoopThread,
        sampling: SamplingParams,
        stream: bool,
        notice: DefaultLimitNotice,
    ) -> None:
        self.program = program
        self.backend = backend
        self.loop = loop
        self.sampling = sampling
        self.stream = stream
        self.notice = notice
        self.progress = Progress()
        self._body_thread: int | None = None
        self._is_body_done = False

    def body_begins(self) -> None:
        """The body starts in the calling thread."""
        with self.progress.change():
            self._body_thread = threading.get_ident()

    def body_ends(self) -> None:
        """The body has returned or raised: nothing more will be appended by it."""
        with self.progress.change():
            self._is_body_done = True

    def may_grow(self) -> bool:
        """Whether the calling thread can expect more nodes without appending them itself.

        Only a run with `stream` hands out its state before the body ends.
        """
        return self.stream and not self._is_body_done and self._body_thread != threading.get_ident()

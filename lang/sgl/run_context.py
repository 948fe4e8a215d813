"""RunContext: what the states of one run of a program share."""

import logging
from collections.abc import Callable

from sgl.backends.base import Backend
from sgl.errors import SglError
from sgl.event_loop import EventLoopThread
from sgl.prefix_warmup import PrefixWarmup
from sgl.progress import Progress
from sgl.recording import RunRecorder
from sgl.run_settings import RunSettings
from sgl.sampling import RUN_DEFAULTS
from sgl.usage import Usage

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
    """One run of a program: its backend, its lock and whether its body goes on.

    Args:
        program: Name of the program, for errors.
        backend: Takes the calls.
        loop: Runs the nodes.
        stream: Whether gens stream and the state is handed out before the body ends.
        settings: What holds for all nodes besides sampling.
        notice: The program's warning about the default limit.
        warmup: What the items of a batch share; None outside of batches.
        recorder: Keeps what the run does; None where nothing is recorded.

    Attributes:
        progress: The run's lock.
        usage: What its calls came to so far.
    """

    def __init__(
        self,
        *,
        program: str,
        backend: Backend,
        loop: EventLoopThread,
        stream: bool,
        settings: RunSettings,
        notice: DefaultLimitNotice,
        warmup: PrefixWarmup | None = None,
        recorder: RunRecorder | None = None,
    ) -> None:
        self.program = program
        self.backend = backend
        self.loop = loop
        self.stream = stream
        self.settings = settings
        self.notice = notice
        self.warmup = warmup
        self.recorder = recorder
        self.progress = Progress()
        self.usage = Usage()
        self._is_body_done = False

    def body_ends(self) -> None:
        """The body has returned or raised: nothing more will be appended by it."""
        with self.progress.change():
            self._is_body_done = True

    @property
    def may_grow(self) -> bool:
        """Whether the body may append more after the state was handed out."""
        return self.stream and not self._is_body_done

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Block until the predicate is true.

        Raises:
            SglError: the caller runs on the loop, which would wait for itself.
        """
        if not self.loop.is_current_thread:
            self.progress.wait_for(predicate)
            return
        with self.progress.look():
            if not predicate():
                raise SglError(
                    f"program {self.program!r}: a blocking read on the event loop would wait for itself; an async "
                    "program reads with await, and runs others with await other.arun(...)"
                )

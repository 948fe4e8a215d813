"""The child's side of a process of the server: its title, its logs, its first word and its end."""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any

from setproctitle import setproctitle

from sgl_runtime.config_serving import LogConfig
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.logs import configure_logging

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildReady:
    """The first word of a child that serves.

    Attributes:
        facts: What the parent must know of it.
    """

    facts: dict[str, Any]


@dataclass(frozen=True)
class ChildFailed:
    """The first word of a child that cannot serve.

    Attributes:
        message: One sentence.
    """

    message: str


def run_child(
    body: Callable[[], None], *, title: str, logs: LogConfig, leftovers: Sequence[Path], first_word: Connection
) -> None:
    """Run the main function of a child process; does not return.

    Args:
        body: The work; it sends `ChildReady` when it can serve, and then goes on for ever.
        title: Process title.
        logs: How log lines look.
        leftovers: Files and folders that the parent deletes at its end, and this process if it cannot.
        first_word: Where a failure before that is told.
    """
    # Ctrl-C goes to every process of a terminal; the parent alone decides what it means, and ends this one by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    setproctitle(title)
    configure_logging(logs, process_title=title)
    Thread(target=_end_with_parent, args=(leftovers,), name="parent watch", daemon=True).start()
    try:
        body()
    except SglRuntimeError as error:
        _tell(first_word, ChildFailed(error.message))
    except Exception as error:
        logger.exception("process failed")
        _tell(first_word, ChildFailed(f"{title} failed: {type(error).__name__}: {error}"))
    sys.exit(1)


def _tell(first_word: Connection, word: ChildFailed) -> None:
    if not first_word.closed:
        first_word.send(word)


def _end_with_parent(leftovers: Sequence[Path]) -> None:
    """End this process when its parent is gone, however it ended."""
    parent = parent_process()
    assert parent is not None, "only a child process watches its parent"
    wait([parent.sentinel])
    logger.error("parent process died; ending pid=%d", os.getpid())
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    os._exit(1)

"""PassProfiler: records where the time of passes goes, with torch's profiler, into files that trace viewers open."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from sgl_runtime.errors import InvalidRequestError

logger = logging.getLogger(__name__)

_ACTIVITIES = {"CPU": ProfilerActivity.CPU, "GPU": ProfilerActivity.CUDA}


class PassProfiler:
    """At most one profile at a time; to be used in the thread that launches passes.

    Args:
        rank: Of this process, for the names of files.
    """

    def __init__(self, *, rank: int = 0) -> None:
        self._rank = rank
        self._profile: profile | None = None
        self._folder = Path()
        self._num_left: int | None = None

    def start(
        self,
        folder: Path,
        *,
        num_passes: int | None,
        activities: Sequence[str],
        record_shapes: bool,
        with_stack: bool,
    ) -> str:
        """Begin to record; what will be recorded, in words.

        Args:
            folder: Where the file goes; made if it is not there.
            num_passes: How many passes are recorded; None until `stop`.
            activities: "CPU", "GPU"; what the device does not have is left out.
            record_shapes: Whether shapes of tensors are recorded.
            with_stack: Whether the lines of code are recorded.

        Raises:
            InvalidRequestError: one is being recorded, or the folder cannot be made.
        """
        if self._profile is not None:
            raise InvalidRequestError("a profile is being recorded; stop it first")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequestError(
                f"output_dir is {str(folder)!r}, which cannot be made: {error.strerror}", param="output_dir"
            ) from error
        kinds = [_ACTIVITIES[name] for name in activities if name == "CPU" or torch.cuda.is_available()]
        self._profile = profile(
            activities=kinds or [ProfilerActivity.CPU], record_shapes=record_shapes, with_stack=with_stack
        )
        self._folder, self._num_left = folder, num_passes
        self._profile.start()
        how_long = "until it is stopped" if num_passes is None else f"for {num_passes} passes"
        return f"recording {how_long}, for a file in {folder}"

    def stop(self) -> str:
        """Write what was recorded; the file, in words.

        Raises:
            InvalidRequestError: nothing is being recorded, or the file cannot be written.
        """
        if self._profile is None:
            raise InvalidRequestError("no profile is being recorded; start one first")
        found, self._profile = self._profile, None
        found.stop()
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        path = self._folder / f"{moment}-{time.monotonic_ns()}-rank{self._rank}.trace.json.gz"
        try:
            found.export_chrome_trace(str(path))
        except OSError as error:
            raise InvalidRequestError(f"the profile cannot be written to {path}: {error.strerror}") from error
        logger.info("profile written path=%s", path)
        return f"written to {path}"

    def note_pass(self) -> None:
        """A pass is over."""
        if self._profile is None or self._num_left is None:
            return
        self._num_left -= 1
        if self._num_left <= 0:
            try:
                self.stop()
            except InvalidRequestError as error:
                # Nobody waits for this one.
                logger.error("profile lost: %s", error.message)

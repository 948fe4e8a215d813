"""AnswerFile: the file that answers are written to, each line at once, so that a run that ends early can go on."""

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from sgl_runtime.errors import ConfigError

_BEGIN = b'{"id":"batch_req_'
"""What every line begins with that was written here."""


class _Head(msgspec.Struct):
    """What is read again of an answer; a request has no `response`, so that a file of them is not taken for answers."""

    custom_id: str
    response: dict[str, Any] | None

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer, or one that is an error."""
        return self.response is None or self.response.get("status_code") != 200


class AnswerFile:
    """Use as a context manager: meanwhile no other run writes to the file.

    Args:
        path: The file; it is made where there is none.
        keeps_failed: Whether answers that are errors count as answers.

    Attributes:
        done: Ids of the requests that have an answer.
        failed: Those among them whose answer was an error when the file was opened.
    """

    def __init__(self, path: Path, *, keeps_failed: bool) -> None:
        self.done: set[str] = set()
        self.failed: set[str] = set()
        self._path = path
        self._keeps_failed = keeps_failed
        self._file: BinaryIO | None = None

    def __enter__(self) -> "AnswerFile":
        try:
            # Not buffered: what was written is in the file, whatever becomes of this process.
            self._file = self._path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"{str(self._path)!r} cannot be written: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise ConfigError(f"{str(self._path)!r} is no regular file, which could be read again to go on")
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None, "it was opened"
        self._file.close()

    def write(self, answer: dict[str, Any]) -> None:
        """Append an answer.

        Raises:
            ConfigError: there is no room for it.
        """
        assert self._file is not None, "it is open"
        try:
            _write_all(self._file, msgspec.json.encode(answer) + b"\n")
        except OSError as error:
            raise ConfigError(f"{str(self._path)!r} cannot be written: {error.strerror}") from error
        self.done.add(answer["custom_id"])

    def _lock(self) -> None:
        assert self._file is not None, "it is open"
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{str(self._path)!r} is being written by another run") from error

    def _read(self) -> None:
        """Find what is done, and take away what is no whole answer."""
        assert self._file is not None, "it is open"
        kept: list[tuple[int, int]] = []
        size = 0
        for number, begin, line in self._lines():
            size = begin + len(line)
            is_whole = line.endswith(b"\n")
            if not is_whole and not line.startswith(_BEGIN[: len(line)]):
                raise ConfigError(f"{self._path}, line {number}, is no answer of a batch, nor the beginning of one")
            try:
                head = msgspec.json.decode(line, type=_Head) if is_whole else None
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise ConfigError(f"{self._path}, line {number}, is no answer of a batch: {error}") from error
            # Only the last line can have been torn.
            if head is None or (head.has_failed and not self._keeps_failed):
                continue
            self.done.add(head.custom_id)
            if head.has_failed:
                self.failed.add(head.custom_id)
            kept.append((begin, size))
        self._keep_only(kept, size)

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        begin = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, begin, line
                begin += len(line)

    def _keep_only(self, kept: list[tuple[int, int]], size: int) -> None:
        """Shorten the file to some of its lines; all others were torn or are to be answered again."""
        assert self._file is not None, "it is open"
        kept_bytes = sum(end - begin for begin, end in kept)
        if kept_bytes == size:
            return
        if kept and kept[-1][1] == kept_bytes:
            self._file.truncate(kept_bytes)
            return
        # Beside it first: at no moment is there a file that lacks answers.
        beside = self._path.with_name(self._path.name + ".new")
        with self._path.open("rb") as old, beside.open("wb", buffering=0) as new:
            for begin, end in kept:
                old.seek(begin)
                _write_all(new, old.read(end - begin))
            os.replace(beside, self._path)
        self._file.close()
        self._file = self._path.open("a+b", buffering=0)
        self._lock()


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write bytes that the system may take in several portions."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]

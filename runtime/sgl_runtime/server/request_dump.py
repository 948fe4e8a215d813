"""RequestDump: requests as they came over HTTP, written to files that `sgl replay` sends again."""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Message, Receive, Send

from sgl_runtime.server.http_call import HttpCall

logger = logging.getLogger(__name__)

CRASH_WINDOW_S = 300.0
"""How far a crash dump goes back."""

MAX_CRASH_BYTES = 256 * 1024 * 1024
"""Bodies that are kept for it; past this the oldest go."""


@dataclass(eq=False)
class RecordedRequest:
    """One request.

    Attributes:
        time: When it came, seconds since the epoch.
        path, request_id: Of the request.
        body: As it came.
        status: Of the reply; 0 while there is none.
        seconds: Until the reply was complete; 0.0 while it is not.
        reply: The reply's body, where replies are written.
    """

    time: float
    path: str
    request_id: str
    body: bytearray
    status: int = 0
    seconds: float = 0.0
    reply: bytearray | None = None

    def as_json(self) -> bytes:
        """One line of a dump."""
        line: dict[str, Any] = {
            "time": self.time,
            "path": self.path,
            "request_id": self.request_id,
            "body": _content(self.body),
            "status": self.status,
            "seconds": round(self.seconds, 6),
        }
        if self.reply is not None:
            line["reply"] = _content(self.reply)
        return msgspec.json.encode(line)


class RequestDump:
    """Collects requests, and writes files of them.

    Args:
        folder: Where files of all requests go; None for none.
        threshold: Requests in such a file.
        crash_folder: Where the latest requests go when the server fails; None for nowhere.

    Attributes:
        folder, threshold: May be changed at any time.
    """

    def __init__(self, *, folder: str | None, threshold: int, crash_folder: str | None = None) -> None:
        self.folder = folder
        self.threshold = threshold
        self._crash_folder = crash_folder
        self._done: list[RecordedRequest] = []
        self._latest: deque[RecordedRequest] = deque()
        self._num_latest_bytes = 0
        self._num_files = 0
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_on(self) -> bool:
        """Whether requests are to be recorded."""
        return self.folder is not None or self._crash_folder is not None

    def begin(self, record: RecordedRequest) -> None:
        """A request comes."""
        if self._crash_folder is not None:
            self._latest.append(record)
            self._forget_old(record.time)

    def body_read(self, record: RecordedRequest) -> None:
        """Its body has come."""
        if self._crash_folder is not None:
            self._num_latest_bytes += len(record.body)
            self._forget_old(record.time)

    def end(self, record: RecordedRequest) -> None:
        """It has its reply, or its client has left."""
        if self.folder is None:
            return
        self._done.append(record)
        if len(self._done) >= self.threshold:
            records, self._done = self._done, []
            task = asyncio.ensure_future(asyncio.to_thread(self._write, Path(self.folder), "requests", records))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """Write what has not been written."""
        await asyncio.gather(*self._writing)
        if self.folder is not None and self._done:
            records, self._done = self._done, []
            self._write(Path(self.folder), "requests", records)

    def write_crash(self) -> None:
        """The server has failed: write the latest requests, those without a reply among them."""
        if self._crash_folder is not None and self._latest:
            self._write(Path(self._crash_folder), "crash", list(self._latest))

    def _forget_old(self, now: float) -> None:
        while len(self._latest) > 1 and (
            self._latest[0].time < now - CRASH_WINDOW_S or self._num_latest_bytes > MAX_CRASH_BYTES
        ):
            self._num_latest_bytes -= len(self._latest.popleft().body)

    def _write(self, folder: Path, kind: str, records: list[RecordedRequest]) -> None:
        self._num_files += 1
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        path = folder / f"{kind}-{moment}-{os.getpid()}-{self._num_files}.jsonl"
        partial = path.with_suffix(".part")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Prompts are nobody else's business.
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.writelines(record.as_json() + b"\n" for record in records)
            partial.replace(path)
        except OSError as error:
            logger.error("requests not written path=%s error=%s", path, error)
        else:
            logger.info("requests written path=%s count=%d", path, len(records))


class RequestRecorder:
    """Tells a `RequestDump` of POST requests.

    Args:
        dump: Collects.
        left_out: Paths whose requests are not recorded: sent again, they would change the server.
    """

    def __init__(self, dump: RequestDump, *, left_out: Collection[str]) -> None:
        self._dump = dump
        self._left_out = frozenset(left_out)

    def records(self, call: HttpCall) -> bool:
        """Whether a request is to be recorded."""
        return self._dump.is_on and call.method == "POST" and call.path not in self._left_out

    @contextmanager
    def recording(self, call: HttpCall, receive: Receive, send: Send) -> Iterator[tuple[Receive, Send]]:
        """Record a request while inside; the ends through which it is to be answered."""
        begin = time.monotonic()
        record = RecordedRequest(time.time(), call.path, call.request_id, bytearray())
        if self._dump.folder is not None:
            record.reply = bytearray()
        self._dump.begin(record)

        async def reading() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                record.body += message["body"]
                if not message["more_body"]:
                    self._dump.body_read(record)
            return message

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            elif record.reply is not None:
                record.reply += message.get("body", b"")
            await send(message)

        try:
            yield reading, noting
        finally:
            record.seconds = time.monotonic() - begin
            self._dump.end(record)


def _content(data: bytearray) -> Any:
    """JSON as it is; other text, such as a stream of events, as a string."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode(errors="replace")

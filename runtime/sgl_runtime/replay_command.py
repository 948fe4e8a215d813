"""`sgl replay`: sends the requests of a dump again, and tells which of them end differently."""

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from sgl_runtime.errors import ConfigError
from sgl_runtime.server_address import server_address

_NO_REPLY = 0


class DumpedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a dump; other fields of it are not needed here.

    Attributes:
        time: When it came, seconds since the epoch.
        path: Path of the request.
        body: JSON, or a string that is sent as it is.
        status: Of the reply that it got; 0 for none.
    """

    time: float
    path: str
    body: Any
    status: int = _NO_REPLY


@dataclass(frozen=True)
class Replayed:
    """What became of a request this time.

    Attributes:
        status: Of the reply; 0 where there was none.
        detail: The beginning of an error's body, or why there was no reply.
    """

    status: int
    detail: str = ""


def main(arguments: Sequence[str]) -> int:
    """The command `sgl replay`.

    Args:
        arguments: What follows the command's name.

    Returns:
        0 where every reply has the status that it had, 1 where one has another, 2 where the dump cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="sgl replay", description="Send the requests of a dump again, and tell which end differently."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="Files that --dump-requests-folder has.")
    parser.add_argument(
        "--url", type=server_address, default="http://127.0.0.1:30000", help="The server. (default: %(default)s)"
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="Times faster than they came; 0 sends each as soon as there is room. (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrency", type=int, default=256, metavar="N", help="Most requests at a time. (default: %(default)s)"
    )
    parser.add_argument("--api-key", metavar="TEXT", help="Key that the server asks for.")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="X", help="Seconds for each. (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    if given.concurrency < 1 or not 0 <= given.speed < math.inf:
        parser.error("--concurrency must be at least 1, and --speed a number that is not below 0")
    try:
        dumped = sorted((request for file in given.files for request in read_dump(Path(file))), key=lambda r: r.time)
    except ConfigError as error:
        print(f"sgl replay: {error.message}", file=sys.stderr)
        return 2
    headers = {} if given.api_key is None else {"authorization": f"Bearer {given.api_key}"}
    client = httpx.AsyncClient(
        base_url=given.url,
        headers=headers,
        timeout=given.timeout,
        limits=httpx.Limits(max_connections=given.concurrency),
    )
    replayed = asyncio.run(replay(client, dumped, speed=given.speed, concurrency=given.concurrency))
    return report(dumped, replayed)


def read_dump(path: Path) -> list[DumpedRequest]:
    """The requests of a file.

    Raises:
        ConfigError: it cannot be read, or a line is none of a dump.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    requests = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            requests.append(msgspec.json.decode(line, type=DumpedRequest))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}, line {number}, is no request of a dump: {error}") from error
    return requests


async def replay(
    client: httpx.AsyncClient, dumped: Sequence[DumpedRequest], *, speed: float, concurrency: int
) -> list[Replayed]:
    """Send requests with the time between them that there was.

    Args:
        client: Of the server; it is closed.
        dumped: In the order of their times.
        speed: Divides the time between them; 0 for none.
        concurrency: Most at a time.

    Returns:
        What became of each.
    """
    room = asyncio.Semaphore(concurrency)
    begin = asyncio.get_running_loop().time()

    async def send(request: DumpedRequest) -> Replayed:
        if speed > 0.0:
            due = begin + (request.time - dumped[0].time) / speed
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        async with room:
            return await _send(client, request)

    async with client:
        return list(await asyncio.gather(*map(send, dumped)))


async def _send(client: httpx.AsyncClient, request: DumpedRequest) -> Replayed:
    body = request.body.encode() if isinstance(request.body, str) else msgspec.json.encode(request.body)
    try:
        reply = await client.post(request.path, content=body, headers={"content-type": "application/json"})
    except httpx.HTTPError as error:
        return Replayed(_NO_REPLY, f"{type(error).__name__}: {error}")
    return Replayed(reply.status_code, "" if reply.is_success else reply.text[:200])


def report(dumped: Sequence[DumpedRequest], replayed: Sequence[Replayed]) -> int:
    """Print what became of the requests; the exit code."""
    statuses = Counter(one.status for one in replayed)
    print(f"{len(replayed)} requests: " + ", ".join(f"{count} x {_name(s)}" for s, count in sorted(statuses.items())))
    # One without a reply was cut off; whatever it gets now is no news.
    differing = [
        (number, before, now)
        for number, (before, now) in enumerate(zip(dumped, replayed, strict=True), 1)
        if before.status not in (now.status, _NO_REPLY)
    ]
    for number, before, now in differing:
        print(f"request {number} {before.path}: was {before.status}, is {_name(now.status)} {now.detail}".rstrip())
    if not differing:
        print("every reply has the status that it had")
    return 1 if differing else 0


def _name(status: int) -> str:
    return "no reply" if status == _NO_REPLY else str(status)

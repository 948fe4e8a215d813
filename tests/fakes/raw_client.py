"""HTTP as bytes: sends what it is given, and reads one reply."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

REPLY_LIMIT_S = 20.0


@dataclass(frozen=True)
class RawReply:
    """A reply.

    Attributes:
        status: Its status.
        head: Status line and headers.
        body: Its body; for a stream all events.
    """

    status: int
    head: bytes
    body: bytes

    @property
    def content(self) -> Any:
        """The body as Python objects."""
        return json.loads(self.body)


async def read_reply(reader: asyncio.StreamReader) -> RawReply | None:
    """One reply; None where the connection ends without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return await read_reply(reader)
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    if b"content-length" in fields:
        return RawReply(status, head, await reader.readexactly(int(fields[b"content-length"])))
    body = bytearray()
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return RawReply(status, head, bytes(body))


async def exchange(port: int, data: bytes, *, limit_s: float = REPLY_LIMIT_S) -> RawReply | None:
    """Send bytes over a connection of its own, and the reply; None where the server closed without one."""
    async with asyncio.timeout(limit_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            return await read_reply(reader)
        except ConnectionError:
            return None
        finally:
            writer.close()

"""Clients that are slow, or leave at a moment that is a bad one."""

import asyncio
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from fakes.raw_client import read_reply

LONG = {"sampling_params": {"max_new_tokens": 100_000, "ignore_eos": True}}
_USER = [{"role": "user", "content": "Tell me a long story."}]
LONG_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {"text": "Once upon a time", **LONG}),
    ("/generate", {"text": "p " * 80, **LONG}),
    ("/generate", {"text": ["one", "two", "three"], **LONG}),
    ("/generate", {"text": "n", "sampling_params": {**LONG["sampling_params"], "n": 4}}),
    ("/generate", {"text": "g", "sampling_params": {**LONG["sampling_params"], "regex": "[a-z ]{1,400}x"}}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 90, "ignore_eos": True, "n": 2}),
    ("/v1/chat/completions", {"messages": _USER, "max_tokens": 90, "ignore_eos": True}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 90, "store": False}),
    ("/v1/messages", {"model": "m", "max_tokens": 90, "messages": _USER}),
]


def request_bytes(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(data), data)


class Visitor:
    """One connection.

    Args:
        port: Of the server.
        rng: Decides what it does.
        calls: Requests that take long, each a path and a body.
    """

    def __init__(self, port: int, rng: random.Random, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self._port = port
        self.rng = rng
        path, body = rng.choice(calls)
        self.body = dict(body)
        self.path = path
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    @property
    def request(self) -> bytes:
        return request_bytes(self.path, self.body)

    async def connect(self, *, receive_bytes: int | None = None) -> None:
        client = socket.socket()
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self._port))
        limit = receive_bytes or 2**16
        self.reader, self.writer = await asyncio.open_connection(sock=client, limit=limit)

    async def leave(self) -> None:
        """Close, or reset the connection; the server may have done it before."""
        if not self.writer.is_closing() and self.rng.random() < 0.5:
            client = self.writer.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def pause(self, longest_s: float = 0.05) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, longest_s))


async def say_nothing(visitor: Visitor) -> None:
    await visitor.pause()


async def leave_inside_the_head(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request[: visitor.rng.randrange(1, 40)])
    await visitor.pause()


async def leave_inside_the_body(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request[: -visitor.rng.randrange(1, 10)])
    await visitor.pause()


async def drip(visitor: Visitor) -> None:
    """Send so slowly that the server loses patience."""
    begin = visitor.rng.choice([0, 20, len(visitor.request) - 30])
    visitor.writer.write(visitor.request[:begin])
    for position in range(begin, len(visitor.request) - 1):
        visitor.writer.write(visitor.request[position : position + 1])
        await asyncio.sleep(0.2)
        if visitor.reader.at_eof() or visitor.writer.is_closing():
            break
    reply = await read_reply(visitor.reader)
    assert reply is None or reply.status == 408, reply


async def leave_at_once(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request)
    await visitor.writer.drain()


async def leave_while_waiting(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request)
    await visitor.pause()


async def close_half(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request)
    visitor.writer.write_eof()
    await visitor.pause()


async def leave_inside_a_stream(visitor: Visitor) -> None:
    visitor.body["stream"] = True
    visitor.writer.write(visitor.request)
    await visitor.reader.read(visitor.rng.randrange(1, 4000))
    await visitor.pause()


async def read_nothing(visitor: Visitor) -> None:
    """Ask for streams, many at once, and take none of them."""
    visitor.body["stream"] = True
    visitor.writer.write(visitor.request * 5)
    await visitor.pause(0.5)


async def ask_many_and_leave(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request * visitor.rng.randrange(2, 6))
    await visitor.pause()


async def speak_nonsense_behind(visitor: Visitor) -> None:
    visitor.writer.write(visitor.request + b"\x00\xff nonsense\r\n\r\n")
    await visitor.pause()


async def stay_to_the_end(visitor: Visitor) -> None:
    visitor.body["stream"] = visitor.rng.random() < 0.5
    visitor.writer.write(visitor.request)
    reply = await read_reply(visitor.reader)
    assert reply is not None
    assert reply.status in (200, 404, 503), reply


Behaviour = Callable[[Visitor], Awaitable[None]]
BEHAVIOURS: list[tuple[Behaviour, int]] = [
    (say_nothing, 5),
    (leave_inside_the_head, 10),
    (leave_inside_the_body, 10),
    (drip, 5),
    (leave_at_once, 10),
    (leave_while_waiting, 15),
    (close_half, 8),
    (leave_inside_a_stream, 20),
    (read_nothing, 5),
    (ask_many_and_leave, 5),
    (speak_nonsense_behind, 4),
    (stay_to_the_end, 3),
]


async def visit(port: int, rng: random.Random, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Come with one of these behaviours; its name."""
    behaviour = rng.choices([each for each, _ in BEHAVIOURS], weights=[weight for _, weight in BEHAVIOURS])[0]
    visitor = Visitor(port, rng, calls)
    async with asyncio.timeout(60):
        await visitor.connect(receive_bytes=4096 if behaviour is read_nothing else None)
        try:
            await behaviour(visitor)
        except ConnectionError:
            return f"{behaviour.__name__}, cut off"
        finally:
            await visitor.leave()
    return behaviour.__name__

"""Thousands of senseless requests: each is answered, and the server holds no more than before."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
import requests

from fakes.hostile_bodies import HostileBodies, RawRequest
from fakes.raw_client import exchange
from fakes.request_examples import EXAMPLES
from fakes.server_process import ServerProcess
from fakes.server_watch import STATUSES, ServerWatch, endure

FLAGS = [
    "--read-timeout",
    "1",
    "--grammar-compile-timeout",
    "2",
    "--max-running-requests",
    "16",
    "--grammar-cache-size",
    "32",
]
NUM_CLIENTS = 8


@pytest.fixture(scope="module")
def watch() -> Iterator[ServerWatch]:
    server = ServerProcess(*FLAGS, main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


def post_paths(server: ServerProcess) -> list[str]:
    document = requests.get(server.url + "/openapi.json", timeout=20).json()
    return sorted(
        path for path, item in document["paths"].items() if "post" in item and "{" not in path and path in EXAMPLES
    )


async def send(server: ServerProcess, request: RawRequest, outcomes: Counter[str]) -> None:
    try:
        reply = await exchange(server.port, request.data)
    except TimeoutError:
        pytest.fail(f"no answer to {request.data[:2000]!r}")
    if reply is None:
        assert not request.is_http, f"the connection was closed on {request.data[:2000]!r}"
        outcomes["closed"] += 1
        return
    if reply.status not in STATUSES:
        pytest.fail(f"{reply} to {request.data[:2000]!r}: {server.log.rpartition('Traceback')[2]}")
    outcomes[str(reply.status)] += 1
    if reply.status >= 400:
        error = reply.content["error"]
        assert error["message"], reply
        assert len(error["message"]) < 3000, reply


async def crowd(server: ServerProcess, *, seed: int, number: int) -> Counter[str]:
    """Send so many requests, a few at a time."""
    bodies = HostileBodies(seed, post_paths(server))
    pending = iter([bodies.next_request() for _ in range(number)])
    outcomes: Counter[str] = Counter()
    stop = asyncio.Event()

    async def client() -> None:
        for request in pending:
            await send(server, request, outcomes)

    async def go_on() -> None:
        """A pause that came through ends soon."""
        data = b"POST /continue_generation HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        while not stop.is_set():
            await exchange(server.port, data)
            try:
                await asyncio.wait_for(stop.wait(), 0.2)
            except TimeoutError:
                continue

    keeper = asyncio.create_task(go_on())
    try:
        await asyncio.gather(*(client() for _ in range(NUM_CLIENTS)))
    finally:
        stop.set()
        await keeper
    return outcomes


def run(watch: ServerWatch, *, seed: int, warm_up: int, number: int) -> None:
    outcomes = endure(watch, crowd, seed=seed, warm_up=warm_up, number=number, spare_fds=6)
    assert outcomes["200"] > number // 20
    assert outcomes["400"] > number // 3


def test_some_hundred_senseless_requests_change_nothing(watch: ServerWatch) -> None:
    run(watch, seed=7, warm_up=200, number=400)


@pytest.mark.slow
def test_ten_thousand_senseless_requests_change_nothing(watch: ServerWatch) -> None:
    run(watch, seed=11, warm_up=3000, number=10_000)

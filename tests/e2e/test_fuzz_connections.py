"""Hundreds of connections that are slow or cut: the server holds no more afterwards than before."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest
import requests

from fakes.hostile_connections import LONG_CALLS, visit
from fakes.server_process import ServerProcess
from fakes.server_watch import ServerWatch, endure

FLAGS = [
    "--read-timeout",
    "1",
    "--write-timeout",
    "2",
    "--keep-alive-timeout",
    "2",
    "--max-running-requests",
    "8",
    "--grammar-cache-size",
    "4",
]
NUM_AT_ONCE = 24


@pytest.fixture(scope="module")
def watch() -> Iterator[ServerWatch]:
    server = ServerProcess(*FLAGS, "--chunked-prefill-size", "32", main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


async def crowd(server: ServerProcess, *, seed: int, number: int) -> Counter[str]:
    paths = requests.get(server.url + "/openapi.json", timeout=20).json()["paths"]
    calls = [call for call in LONG_CALLS if call[0] in paths]
    seeds = iter(range(number))
    outcomes: Counter[str] = Counter()

    async def client() -> None:
        for each in seeds:
            outcomes[await visit(server.port, random.Random(seed * 1_000_003 + each), calls)] += 1

    await asyncio.gather(*(client() for _ in range(NUM_AT_ONCE)))
    return outcomes


def run(watch: ServerWatch, *, seed: int, warm_up: int, number: int) -> None:
    endure(watch, crowd, seed=seed, warm_up=warm_up, number=number, spare_fds=2)


def test_a_hundred_cut_connections_leave_nothing(watch: ServerWatch) -> None:
    run(watch, seed=3, warm_up=40, number=100)


@pytest.mark.slow
def test_a_thousand_cut_connections_leave_nothing(watch: ServerWatch) -> None:
    run(watch, seed=5, warm_up=300, number=1000)

"""Hundreds of connections that are slow or cut: the server holds no more afterwards than before."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator

import pytest
import requests

from fakes.hostile_connections import LONG_CALLS, visit
from fakes.server_process import ServerProcess
from fakes.server_watch import ServerWatch

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
MAX_GROWTH_MIB = 8.0


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
    asyncio.run(crowd(watch.server, seed=seed, number=warm_up))
    watch.assert_whole()
    before = watch.holdings()
    outcomes = asyncio.run(crowd(watch.server, seed=seed + 1, number=number))
    watch.assert_whole()
    watch.wait_for_fds(before, spare=2)
    after = watch.holdings()
    print(json.dumps({"connections": number, "outcomes": outcomes, "before": str(before), "after": str(after)}))
    for title, held in after.items():
        assert held.rss_mib < before[title].rss_mib + MAX_GROWTH_MIB, (title, before, after)


def test_a_hundred_cut_connections_leave_nothing(watch: ServerWatch) -> None:
    run(watch, seed=3, warm_up=40, number=100)


@pytest.mark.slow
def test_a_thousand_cut_connections_leave_nothing(watch: ServerWatch) -> None:
    run(watch, seed=5, warm_up=300, number=1000)

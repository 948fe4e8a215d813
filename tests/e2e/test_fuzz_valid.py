"""Requests with random settings, each of them right, some of whose clients leave: all are answered, and nothing is lost."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from fakes.hostile_connections import request_bytes
from fakes.random_requests import RandomRequests
from fakes.raw_client import exchange
from fakes.server_process import ServerProcess
from fakes.server_watch import ServerWatch

NUM_CLIENTS = 10
FLAGS = ["--max-running-requests", "8", "--enable-return-hidden-states", "--grammar-cache-size", "16"]
SHAPES = {
    "small pieces": ["--chunked-prefill-size", "16"],
    "pages": ["--chunked-prefill-size", "48", "--page-size", "16", "--enable-mixed-chunk", "--max-total-tokens", "640"],
    "few slots": ["--max-total-tokens", "256", "--priority-scheduling-preemption-threshold", "5"],
}


@pytest.fixture(params=SHAPES)
def watch(request: pytest.FixtureRequest) -> Iterator[ServerWatch]:
    server = ServerProcess(*FLAGS, *SHAPES[request.param], main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


async def crowd(server: ServerProcess, *, seed: int, number: int) -> Counter[str]:
    makers = RandomRequests(seed)
    bodies = iter([makers.body() for _ in range(number)])
    outcomes: Counter[str] = Counter()

    async def client() -> None:
        for body in bodies:
            leaves = makers.rng.random() < 0.2
            try:
                limit_s = makers.rng.uniform(0.0, 0.2) if leaves else 60
                reply = await exchange(server.port, request_bytes("/generate", body), limit_s=limit_s)
            except TimeoutError:
                assert leaves, f"no reply to {body}"
                outcomes["left"] += 1
                continue
            assert reply is not None, server.log[-3000:]
            assert (reply.status, b'"error"' in reply.body) == (200, False), (body, reply.body, server.log[-3000:])
            outcomes["ok"] += 1

    await asyncio.gather(*(client() for _ in range(NUM_CLIENTS)))
    return outcomes


def run(watch: ServerWatch, *, seed: int, number: int) -> None:
    outcomes = asyncio.run(crowd(watch.server, seed=seed, number=number))
    watch.assert_whole()
    assert outcomes.total() == number
    assert outcomes["ok"] > number // 2


@pytest.mark.parametrize("watch", ["small pieces"], indirect=True)
def test_random_requests_are_answered(watch: ServerWatch) -> None:
    run(watch, seed=1, number=150)


@pytest.mark.slow
def test_thousands_of_random_requests_are_answered(watch: ServerWatch) -> None:
    run(watch, seed=2, number=2000)

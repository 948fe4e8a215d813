"""What a server in processes of its own holds: memory, open files, requests, slots."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import psutil
import requests

from fakes.server_process import ServerProcess

STATUSES = frozenset({200, 400, 404, 405, 408, 413, 431, 499, 503})
"""With what a server may answer a hostile client."""


@dataclass(frozen=True)
class Holding:
    """What one process holds."""

    rss_mib: float
    num_fds: int


class ServerWatch:
    """Looks at a server from outside."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._processes = {"sgl::api": psutil.Process(server.process.pid), **server.children()}

    def holdings(self) -> dict[str, Holding]:
        return {
            title: Holding(process.memory_info().rss / 2**20, process.num_fds())
            for title, process in self._processes.items()
        }

    def state(self) -> dict[str, Any]:
        info = requests.get(self.server.url + "/get_server_info", timeout=30).json()
        state: dict[str, Any] = info["internal_states"][0]
        return state

    def num_live(self) -> int:
        number: int = requests.get(self.server.url + "/live_stats", timeout=30).json()["num_live"]
        return number

    def wait_idle(self) -> dict[str, Any]:
        """The counters, once nothing runs or waits."""
        deadline = time.monotonic() + 30
        while True:
            state = self.state()
            if not state["num_running"] and not state["num_waiting"] and not self.num_live():
                return state
            assert time.monotonic() < deadline, state
            threading.Event().wait(0.02)

    def assert_whole(self) -> None:
        """Alive and idle; every slot is free or cached, and free after a flush."""
        assert self.server.process.poll() is None
        requests.post(self.server.url + "/continue_generation", timeout=30)
        state = self.wait_idle()
        assert state["free_slots"] + state["cached_slots"] == state["total_slots"], state
        assert state["failed_idle_checks_total"] == 0, state
        assert requests.post(self.server.url + "/flush_cache", timeout=30).json()["success"]
        assert self.state()["free_slots"] == state["total_slots"]
        assert requests.get(self.server.url + "/health", timeout=30).status_code == 200
        assert "Traceback" not in self.server.log, self.server.log[-5000:]
        assert " ERROR " not in self.server.log, self.server.log[-5000:]

    def wait_for_fds(self, before: dict[str, Holding], *, spare: int) -> None:
        """Wait until no process holds more open files than before, but for a few."""
        deadline = time.monotonic() + 20
        while True:
            now = self.holdings()
            if all(now[title].num_fds <= before[title].num_fds + spare for title in before):
                return
            assert time.monotonic() < deadline, (before, now)
            threading.Event().wait(0.05)


MAX_GROWTH_MIB = 8.0
"""How much more memory a process may hold after a run of any length than after the warm-up."""

Crowd = Callable[..., Coroutine[Any, Any, Counter[str]]]
"""Clients that do their worst: takes the server, a seed and how many times; gives what came of it."""


def endure(watch: ServerWatch, crowd: Crowd, *, seed: int, warm_up: int, number: int, spare_fds: int) -> Counter[str]:
    """Let a crowd at a server; afterwards it holds what it held before, once it was warm."""
    asyncio.run(crowd(watch.server, seed=seed, number=warm_up))
    watch.assert_whole()
    before = watch.holdings()
    outcomes = asyncio.run(crowd(watch.server, seed=seed + 1, number=number))
    watch.assert_whole()
    watch.wait_for_fds(before, spare=spare_fds)
    after = watch.holdings()
    print(json.dumps({"number": number, "outcomes": outcomes, "before": str(before), "after": str(after)}))
    for title, held in after.items():
        assert held.rss_mib < before[title].rss_mib + MAX_GROWTH_MIB, (title, before, after)
    return outcomes

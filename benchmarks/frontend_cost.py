"""What the front end costs the host: CPU time of the API and detokenizer processes for each request and each token.

    python benchmarks/frontend_cost.py [--requests 400] [--streams 64] [--tokens 64] [--runs 3] [--json FILE]

Starts `sgl serve` on the small real model and reads the CPU time that the kernel has charged to the processes
`sgl::api` and `sgl::detokenizer` before and after each load:

- requests: one after another over one kept-alive connection, and 16 at once; a prompt of about 60 words, one token
  out.  The cost is HTTP in, tokenizing, the way through the sockets, detokenizing, HTTP out.
- streams: many streams at once through /v1/completions and /generate; the cost of a streamed token is what is left
  when the cost of the requests is taken off.
- idle: that many connections are opened and held; afterwards a request must still be answered.
- health: how long /health takes while all streams run.

The median of several runs is printed, and every run is in the JSON.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

PROMPT = " ".join(f"word{number} follows the one before;" for number in range(12))
TARGET_REQUEST_MS, TARGET_TOKEN_US, TARGET_HEALTH_MS = 1.5, 60.0, 100.0
NUM_IDLE, NUM_AT_ONCE = 2000, 16


class Server:
    """`sgl serve` as a child, and the CPU time of its front-end processes."""

    def __init__(self, flags: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        command = [sys.executable, "-m", "sgl_runtime", "serve", "--model-path", "smollm2", "--port", str(port)]
        self._child = subprocess.Popen([*command, "--log-level", "warning", *flags])
        self._wait_ready()
        parent = psutil.Process(self._child.pid)
        self._front = [parent, *(child for child in parent.children() if _is_front_end(child))]
        assert len(self._front) >= 2, "no detokenizer process found"

    def cpu_s(self) -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in self._front))

    def close(self) -> None:
        self._child.terminate()
        self._child.wait(20)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._child.poll() is None:
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise SystemExit("the server did not start")


def _is_front_end(process: psutil.Process) -> bool:
    return any("detokenizer" in word or "sgl::api" in word for word in process.cmdline())


def request_ms(server: Server, num_requests: int) -> float:
    """CPU milliseconds of the front end for one request."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for _ in range(20):
            client.post("/generate", json=body)
        before = server.cpu_s()
        for _ in range(num_requests):
            assert client.post("/generate", json=body).status_code == 200
        return (server.cpu_s() - before) / num_requests * 1e3


async def crowded_request_ms(server: Server, num_requests: int) -> float:
    """The same where some are under way at any time."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:

        async def client_of(count: int) -> None:
            for _ in range(count):
                assert (await client.post("/generate", json=body)).status_code == 200

        before = server.cpu_s()
        await asyncio.gather(*(client_of(num_requests // NUM_AT_ONCE) for _ in range(NUM_AT_ONCE)))
        return (server.cpu_s() - before) / (num_requests // NUM_AT_ONCE * NUM_AT_ONCE) * 1e3


async def token_us(server: Server, path: str, num_streams: int, num_tokens: int, own_ms: float) -> dict[str, float]:
    """CPU microseconds of the front end for one streamed token, and the slowest /health meanwhile."""
    limits = httpx.Limits(max_connections=num_streams + 8)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        before, begin = server.cpu_s(), time.monotonic()
        streams = [asyncio.create_task(_stream(client, path, num_tokens)) for _ in range(num_streams)]
        waits: list[float] = []
        while not all(stream.done() for stream in streams):
            sent = time.monotonic()
            assert (await client.get("/health")).status_code == 200
            waits.append(time.monotonic() - sent)
            await asyncio.sleep(0.25)
        counts = [await stream for stream in streams]
        spent, seconds = server.cpu_s() - before, time.monotonic() - begin
    assert sum(counts) == num_streams * num_tokens, counts
    # What /health itself costs is taken for the streams': it is little, and on the safe side.
    own_s = num_streams * own_ms / 1e3
    return {
        "token_us": (spent - own_s) / sum(counts) * 1e6,
        "tokens_per_second": sum(counts) / seconds,
        "health_ms": max(waits) * 1e3,
    }


async def _stream(client: httpx.AsyncClient, path: str, num_tokens: int) -> int:
    """Tokens of one stream; each comes as an event of its own."""
    sampling = {"ignore_eos": True, "temperature": 1.0}
    body: dict[str, Any]
    if path == "/generate":
        body = {"text": "Once", "stream": True, "sampling_params": {**sampling, "max_new_tokens": num_tokens}}
    else:
        usage = {"include_usage": True}
        body = {"model": "-", "prompt": "Once", "stream": True, "max_tokens": num_tokens, "stream_options": usage}
        body |= sampling
    async with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        events = [line for line in (await response.aread()).decode().split("\n\n") if line]
    last = json.loads(events[-2].removeprefix("data: "))
    count: int = last["usage"]["completion_tokens"] if path != "/generate" else last["meta_info"]["completion_tokens"]
    assert events[-1] == "data: [DONE]"
    return count


async def hold_idle(server: Server, count: int) -> float:
    """Open connections that say nothing, then time a request past them in seconds."""
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(count)]
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        begin = time.monotonic()
        assert (await client.get("/health")).status_code == 200
        spent = time.monotonic() - begin
        alive = sum(not reader.at_eof() for reader, _ in held)
    for _, writer in held:
        writer.close()
    assert alive == count, f"{alive} of {count} connections are held"
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options, flags = parser.parse_known_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    server = Server(flags)
    try:
        own = [request_ms(server, options.requests) for _ in range(options.runs)]
        own_ms = statistics.median(own)
        print(f"machine: {platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
        print(f"request:             {own_ms:6.2f} ms of CPU  (asked: {TARGET_REQUEST_MS})  runs {_shown(own)}")
        crowd = [asyncio.run(crowded_request_ms(server, options.requests)) for _ in range(options.runs)]
        print(f"request, {NUM_AT_ONCE} at once: {statistics.median(crowd):6.2f} ms of CPU  runs {_shown(crowd)}")
        runs: dict[str, list[dict[str, float]]] = {}
        for path in ("/v1/completions", "/generate"):
            found = [
                asyncio.run(token_us(server, path, options.streams, options.tokens, own_ms))
                for _ in range(options.runs)
            ]
            runs[path] = found
            tokens = [run["token_us"] for run in found]
            rate = statistics.median(run["tokens_per_second"] for run in found)
            print(
                f"token, {path + ':':<20} {statistics.median(tokens):4.0f} us of CPU  (asked: {TARGET_TOKEN_US:.0f})"
                f"  runs {_shown(tokens)}  at {rate:.0f} tokens/s"
            )
        health = max(run["health_ms"] for found in runs.values() for run in found)
        print(f"slowest /health:     {health:6.1f} ms  (asked: {TARGET_HEALTH_MS:.0f})")
        idle_s = asyncio.run(hold_idle(server, NUM_IDLE))
        print(f"idle connections:    {NUM_IDLE} held, /health past them {idle_s * 1e3:.1f} ms")
    finally:
        server.close()
    if options.json:
        result = {
            "request_ms": own,
            "crowded_request_ms": crowd,
            "streams": runs,
            "health_ms": health,
            "idle_health_ms": idle_s * 1e3,
        }
        options.json.write_text(json.dumps(result, indent=1))


def _shown(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    main()

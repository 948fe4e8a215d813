"""Mixed load for a long time on the small real model: memory stays flat, and at the end every slot is back.

    python benchmarks/soak.py [--minutes 30] [--warm-up 10] [--clients 6] [--leave 0.2] [--seed 1] [--json FILE] [flags]

Starts `sgl serve` (further flags are handed on) and sends it what clients send: /generate, completions, chats with and
without tools, schemas and regexes, responses, messages, sessions, aborts, requests that are wrong, streams and whole
replies, several outputs, readers that are slow.  A share of the clients (`--leave`) hangs up at a random moment.

Resident memory and open files of every process are read each 10 seconds.  Caches fill up at first: what comes in the
minutes of `--warm-up` is not counted.  Of the rest, the mean of the last quarter is set against that of the first: more
than 2% of growth in a process is a failure, and so is a reply with an unexpected status, a slot, session or file that
is not back at the end, and an idle check that failed.
"""

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
from soak_load import KINDS, Outcome, SoakClient

# Slots are memory from their first use on: few of them are all used soon.
FLAGS = [
    "--max-total-tokens", "4096", "--context-length", "1024", "--max-running-requests", "24",
    "--tool-call-parser", "hermes", "--grammar-cache-size", "64", "--chunked-prefill-size", "128",
    "--read-timeout", "5", "--write-timeout", "20", "--keep-alive-timeout", "10",
]  # fmt: skip
SAMPLE_S = 10.0
MAX_GROWTH = 0.02
SPARE_FDS = 4


@dataclass
class Sample:
    """What the processes hold at one time."""

    seconds: float
    rss_mib: dict[str, float]
    num_fds: dict[str, int]


@dataclass
class Run:
    """What is found in the course of a run."""

    samples: list[Sample] = field(default_factory=list)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Server:
    """`sgl serve` as a child.

    Args:
        flags: Start-up options.
        log: Takes its log.
    """

    def __init__(self, flags: list[str], log: IO[bytes]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "sgl_runtime", "serve", "--model-path", "smollm2", "--port", str(port)]
        self._child = subprocess.Popen([*command, *FLAGS, *flags], stderr=log)
        deadline = time.monotonic() + 120
        while not self._is_ready():
            if time.monotonic() > deadline or self._child.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.2)
        parent = psutil.Process(self._child.pid)
        self._processes = {"sgl::api": parent}
        self._processes |= {child.cmdline()[0]: child for child in parent.children() if "sgl::" in child.cmdline()[0]}

    def sample(self, begin: float) -> Sample:
        """What the processes hold now; those that compile grammars come and go, and are left out."""
        found = Sample(time.monotonic() - begin, {}, {})
        for title, process in self._processes.items():
            found.rss_mib[title] = process.memory_info().rss / 2**20
            found.num_fds[title] = process.num_fds()
        return found

    def close(self) -> int:
        self._child.terminate()
        return self._child.wait(60)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.TransportError:
            return False


async def send_load(server: Server, options: argparse.Namespace, run: Run) -> None:
    """Send requests until the time is over, and look at the processes meanwhile."""
    begin = time.monotonic()
    end = begin + 60 * (options.warm_up + options.minutes)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=4)

    async def client(number: int) -> None:
        rng = random.Random(f"{options.seed} {number}")
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
            soak = SoakClient(http, rng, leave=options.leave)
            while time.monotonic() < end:
                kind = rng.choices([each.name for each in KINDS], weights=[each.weight for each in KINDS])[0]
                outcome, detail = await soak.once(kind)
                run.outcomes[kind, outcome.value] += 1
                if outcome is Outcome.WRONG:
                    run.problems.append(f"{kind}: {detail}")
                    print("WRONG", kind, detail, flush=True)

    async def watch() -> None:
        while time.monotonic() < end:
            sample = server.sample(begin)
            run.samples.append(sample)
            if len(run.samples) % 6 == 1:
                shown = " ".join(f"{title} {rss:.1f}" for title, rss in sample.rss_mib.items())
                print(f"{sample.seconds:6.0f} s  {shown} MiB  {run.outcomes.total()} requests", flush=True)
            await asyncio.sleep(SAMPLE_S)

    await asyncio.gather(watch(), *(client(number) for number in range(options.clients)))


def settle(server: Server, run: Run) -> dict[str, Any]:
    """Wait until nothing runs, flush, and note what is not back."""
    with httpx.Client(base_url=server.url, timeout=60) as client:

        def state() -> dict[str, Any]:
            found: dict[str, Any] = client.get("/get_server_info").json()["internal_states"][0]
            return found

        deadline = time.monotonic() + 60
        while (found := state())["num_running"] or found["num_waiting"] or found["num_sessions"]:
            if time.monotonic() > deadline:
                run.problems.append(f"still busy after a minute: {found}")
                break
            time.sleep(0.2)
        if found["free_slots"] + found["cached_slots"] != found["total_slots"]:
            run.problems.append(f"slots are lost: {found}")
        if not client.post("/flush_cache", json={"timeout": 10}).json()["success"]:
            run.problems.append("the cache cannot be flushed")
        found = state()
        if found["free_slots"] != found["total_slots"]:
            run.problems.append(f"slots are lost after a flush: {found}")
        if found["failed_idle_checks_total"]:
            run.problems.append(f"{found['failed_idle_checks_total']} idle checks failed")
        live = client.get("/live_stats").json()["num_live"]
        if live:
            run.problems.append(f"{live} requests are held that nobody waits for")
    return found


def judge(run: Run, last: Sample, *, warm_up_s: float) -> dict[str, dict[str, float]]:
    """Growth of each process; notes what grew too much."""
    counted = [sample for sample in run.samples if sample.seconds >= warm_up_s]
    quarter = max(1, len(counted) // 4)
    growth: dict[str, dict[str, float]] = {}
    for title in last.rss_mib:
        first_mib, last_mib = (
            statistics.mean(sample.rss_mib[title] for sample in part)
            for part in (counted[:quarter], counted[-quarter:])
        )
        share = last_mib / first_mib - 1
        growth[title] = {"first_mib": first_mib, "last_mib": last_mib, "growth": share}
        if share > MAX_GROWTH:
            run.problems.append(f"{title} grew by {share:.1%}")
        fds = counted[0].num_fds[title], last.num_fds[title]
        growth[title] |= {"first_fds": fds[0], "last_fds": fds[1]}
        if fds[1] > fds[0] + SPARE_FDS:
            run.problems.append(f"{title} had {fds[0]} open files and has {fds[1]}")
    return growth


def report(run: Run, growth: dict[str, dict[str, float]], state: dict[str, Any]) -> None:
    names = sorted({outcome for _, outcome in run.outcomes})
    print(f"{'':<12}" + "".join(f"{name:>10}" for name in names))
    for kind in sorted({kind for kind, _ in run.outcomes}):
        print(f"{kind:<12}" + "".join(f"{run.outcomes[kind, name]:>10}" for name in names))
    for title, found in growth.items():
        print(
            f"{title:<18} {found['first_mib']:8.1f} -> {found['last_mib']:8.1f} MiB  {found['growth']:+.2%}"
            f"  files {found['first_fds']:.0f} -> {found['last_fds']:.0f}"
        )
    print(f"slots free {state['free_slots']} of {state['total_slots']}, retracted {state['num_retracted_total']}")
    for problem in run.problems:
        print(f"PROBLEM: {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--warm-up", type=float, default=10, help="minutes")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--leave", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options, flags = parser.parse_known_args()
    run = Run()
    with tempfile.NamedTemporaryFile(prefix="sgl-soak-", suffix=".log", delete=False) as log:
        print(f"log of the server: {log.name}")
        server = Server(flags, log)
        try:
            asyncio.run(send_load(server, options, run))
            state = settle(server, run)
            # Kept-alive connections end by themselves.
            time.sleep(12)
            last = server.sample(0.0)
        finally:
            code = server.close()
    if code != 0:
        run.problems.append(f"the server ended with exit code {code}")
    text = Path(log.name).read_text(encoding="utf-8", errors="replace")
    for word in ("Traceback", " ERROR "):
        if word in text:
            run.problems.append(f"the log has {text.count(word)} times {word.strip()}")
    growth = judge(run, last, warm_up_s=60 * options.warm_up)
    report(run, growth, state)
    if options.json:
        outcomes = {f"{kind} {outcome}": count for (kind, outcome), count in run.outcomes.items()}
        samples = [vars(sample) for sample in run.samples]
        result = {"outcomes": outcomes, "growth": growth, "problems": run.problems, "samples": samples}
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())

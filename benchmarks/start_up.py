"""Seconds from the start of a process to its first token, with no kernel compiled before and with all of them.

    python benchmarks/start_up.py --model DIR [--load-format dummy] [--through engine|serve] [--runs 3]
        [--caches empty,filled] [--flags '{"max_running_requests": 256}'] [--json FILE]

Each run is a process of its own.  `empty` gives each a new folder for what is compiled and tuned, `filled` one folder
to all, after a run that is not counted.  Prints the parts of each start as the log has them: files, imports, tokenizer,
device, weights, memory, kernels (what was still to be waited for), graphs, grammar; what is left of the total is
Python's own start, and the first pass.
"""

import argparse
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

READY = re.compile(r"model ready slots=\d+ (.*)")
AHEAD = re.compile(r"kernels compiled ahead (.*)")
WAIT_S = 300.0


def engine_child(flags: dict[str, Any]) -> None:
    """What a run through the engine does in its process."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s %(message)s")
    from sgl_runtime.engine import Engine

    with Engine(**flags) as engine:
        engine.generate(input_ids=[11, 12, 13], sampling_params={"max_new_tokens": 1, "ignore_eos": True})
        print(f"first token {time.time()}", file=sys.stderr, flush=True)


def run_engine(flags: dict[str, Any], environment: dict[str, str]) -> tuple[float, str]:
    """Seconds to the first token, and the log."""
    begin = time.time()
    command = [sys.executable, __file__, "--child", json.dumps(flags)]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=WAIT_S, check=False)
    found = re.search(r"first token (\S+)", done.stderr)
    if found is None:
        raise SystemExit(f"a run failed:\n{done.stderr[-3000:]}")
    return float(found[1]) - begin, done.stderr


def run_server(flags: dict[str, Any], environment: dict[str, str]) -> tuple[float, str]:
    """The same, of a server, over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sgl_runtime", "serve", "--port", str(port)]
    for name, value in flags.items():
        command += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    request = {"input_ids": [11, 12, 13], "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}}
    with tempfile.TemporaryFile("w+") as log:
        begin = time.monotonic()
        server = subprocess.Popen(command, env=environment, stderr=log, text=True)
        try:
            while True:
                try:
                    httpx.post(f"http://127.0.0.1:{port}/generate", json=request, timeout=WAIT_S).raise_for_status()
                    break
                except httpx.TransportError:
                    if server.poll() is not None or time.monotonic() - begin > WAIT_S:
                        log.seek(0)
                        raise SystemExit(f"the server did not start:\n{log.read()[-3000:]}") from None
                    time.sleep(0.02)
            seconds = time.monotonic() - begin
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        return seconds, log.read()


def measure(cache: str, args: argparse.Namespace) -> dict[str, Any]:
    flags = {"model_path": str(args.model), "load_format": args.load_format, **json.loads(args.flags)}
    run = run_engine if args.through == "engine" else run_server
    totals: list[float] = []
    logs: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kernels-") as shared:
        for number in range(args.runs + (cache == "filled")):
            with tempfile.TemporaryDirectory(prefix="kernels-") as own:
                folder = shared if cache == "filled" else own
                seconds, log = run(flags, {**os.environ, "TRITON_CACHE_DIR": folder, "SGL_CACHE_DIR": f"{folder}/sgl"})
            if cache == "filled" and number == 0:
                continue
            ready, ahead = READY.search(log), AHEAD.search(log)
            totals.append(seconds)
            logs.append(ready[1] if ready else "the log has no line of it")
            print(f"  {cache:<6} {seconds:6.2f} s  {logs[-1]}", flush=True)
            if ahead:
                print(f"  {'':<6} {'':>6}    kernels compiled ahead: {ahead[1]}", flush=True)
    median = statistics.median(totals)
    print(f"{cache}: {median:.2f} s to the first token", flush=True)
    return {"cache": cache, "seconds": median, "runs": totals, "parts": logs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--load-format", default="auto", choices=["auto", "dummy"])
    parser.add_argument("--through", default="engine", choices=["engine", "serve"])
    parser.add_argument("--caches", default="empty,filled")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--flags", default="{}", help="further options of the engine, as JSON")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        engine_child(json.loads(args.child))
        return 0
    if args.model is None:
        parser.error("--model is missing")
    print(f"{args.model.name} through {args.through}, python {platform.python_version()}, {os.cpu_count()} cores")
    results = [measure(cache, args) for cache in args.caches.split(",")]
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command `sgl bench serve`."""

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sgl_runtime.errors import ConfigError
from sgl_runtime.load_test.client import Backend, LoadClient, Outcome
from sgl_runtime.load_test.report import Percentiles, Report
from sgl_runtime.load_test.workload import LoadRequest, RandomShape, arrival_times, random_requests, read_requests
from sgl_runtime.server_address import server_address

_BUSY_CLIENT = 0.8


def main(arguments: Sequence[str]) -> int:
    """Run `sgl bench`.

    Returns:
        The exit code: 0 when every request was answered, 1 when some were not, 2 for wrong flags or no server.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return asyncio.run(_serve(options))
    except ConfigError as error:
        print(f"sgl bench serve: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sgl bench", description="Measure a running server.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "Send requests to a running server and report what its clients see."
    serve = commands.add_parser("serve", help=text.lower().rstrip("."), description=text, usage="%(prog)s [options]")
    server = serve.add_argument_group("server")
    server.add_argument(
        "--base-url",
        type=server_address,
        metavar="URL",
        default="http://127.0.0.1:30000",
        help="address of the server (default: %(default)s)",
    )
    server.add_argument("--api-key", metavar="KEY", help="key that the server asks for")
    server.add_argument("--model", metavar="NAME", help="name in requests; by default the first of /v1/models")
    server.add_argument(
        "--backend", choices=get_args(Backend), default="completions",
        help="API that is used: of OpenAI completions or chat, or the native one (default: %(default)s)",
    )  # fmt: skip
    server.add_argument(
        "--timeout", metavar="X", type=_positive_float, default=600.0, help="seconds for one answer (default: 600)"
    )
    _add_work(serve)
    serve.add_argument("--output-file", metavar="FILE", type=Path, help="append the figures as a JSON line")
    return parser


def _add_work(serve: argparse.ArgumentParser) -> None:
    work = serve.add_argument_group("requests")
    work.add_argument("--num-prompts", metavar="N", type=_positive, default=200, help="how many (default: %(default)s)")
    work.add_argument(
        "--dataset-path", metavar="FILE", type=Path,
        help="file with JSON lines of prompt or messages, or a ShareGPT list; by default random token ids",
    )  # fmt: skip
    work.add_argument(
        "--random-input-len", metavar="N", type=_positive, default=512, help="tokens of a prompt (default: %(default)s)"
    )
    work.add_argument(
        "--random-output-len",
        metavar="N",
        type=_positive,
        default=128,
        help="tokens of an answer (default: %(default)s)",
    )
    work.add_argument(
        "--random-range-ratio", metavar="X", type=_share, default=1.0,
        help="shortest length as a share of the longest; 1 makes all alike (default: 1)",
    )  # fmt: skip
    work.add_argument(
        "--shared-prefix-len",
        metavar="N",
        type=_count,
        default=0,
        help="first tokens that all prompts share (default: 0)",
    )
    work.add_argument(
        "--extra-request-body", metavar="JSON", type=_object, default={}, help="JSON object of fields for every request"
    )
    work.add_argument(
        "--disable-stream", action="store_true", help="ask for whole answers; only their end is timed then"
    )
    load = serve.add_argument_group("load")
    load.add_argument(
        "--request-rate", metavar="X", type=_rate, default=math.inf, help="requests a second, Poisson; inf: all at once"
    )
    load.add_argument("--max-concurrency", metavar="N", type=_positive, help="most requests under way at a time")
    load.add_argument(
        "--warmup-requests", metavar="N", type=_count, default=1, help="requests before the clock starts (default: 1)"
    )
    load.add_argument("--seed", metavar="N", type=_count, default=0, help="for lengths, ids and arrivals (default: 0)")


async def _serve(options: argparse.Namespace) -> int:
    headers = {"content-type": "application/json"}
    if options.api_key:
        headers["authorization"] = f"Bearer {options.api_key}"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=options.base_url, headers=headers, limits=limits, timeout=options.timeout
    ) as http:
        model = options.model or await _first_model(http)
        requests = await _requests(http, options)
        client = LoadClient(
            http, backend=options.backend, model=model, streams=not options.disable_stream,
            extra=options.extra_request_body,
        )  # fmt: skip
        for request in requests[: options.warmup_requests]:
            outcome = await client.run(request)
            if outcome.error is not None:
                raise ConfigError(f"the first request failed: {outcome.error}")
        cpu_s = time.process_time()
        outcomes = await _run(client, requests, options)
        report = Report.of(outcomes, client_cpu_s=time.process_time() - cpu_s)
    _show(report, options, model)
    if options.output_file is not None:
        shown = {name: value for name, value in vars(options).items() if name not in ("api_key", "output_file")}
        line = {"options": shown, "model": model, **report.as_json()}
        with options.output_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
    return 1 if report.num_failed else 0


async def _first_model(http: httpx.AsyncClient) -> str:
    reply = await _get(http, "/v1/models")
    try:
        name: str = reply["data"][0]["id"]
    except (KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"{http.base_url}v1/models names no model; give one with --model") from error
    return name


async def _requests(http: httpx.AsyncClient, options: argparse.Namespace) -> list[LoadRequest]:
    if options.dataset_path is not None:
        return read_requests(options.dataset_path, options.num_prompts, output_len=options.random_output_len)
    if options.backend == "chat":
        raise ConfigError("random prompts are token ids, which chat does not take; give --dataset-path")
    try:
        vocab_size = int((await _get(http, "/get_model_info"))["vocab_size"])
    except (ConfigError, KeyError, TypeError):
        # Another server: every vocabulary of today has so many ids.
        vocab_size = 30_000
    shape = RandomShape(
        input_len=options.random_input_len,
        output_len=options.random_output_len,
        range_ratio=options.random_range_ratio,
        prefix_len=options.shared_prefix_len,
    )
    return random_requests(shape, options.num_prompts, vocab_size=vocab_size, seed=options.seed)


async def _get(http: httpx.AsyncClient, path: str) -> Any:
    try:
        response = await http.get(path)
        response.raise_for_status()
        return response.json()
    except httpx.HTTPStatusError as error:
        raise ConfigError(f"{http.base_url}{path[1:]} answers with status {error.response.status_code}") from error
    except httpx.HTTPError as error:
        raise ConfigError(f"no server answers at {http.base_url}: {error or type(error).__name__}") from error
    except ValueError as error:
        raise ConfigError(f"{http.base_url}{path[1:]} answers with no JSON") from error


async def _run(client: LoadClient, requests: list[LoadRequest], options: argparse.Namespace) -> list[Outcome]:
    room = asyncio.Semaphore(options.max_concurrency or len(requests))
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("requests", total=len(requests))
        begin = time.perf_counter()

        async def one(request: LoadRequest, due: float) -> Outcome:
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            async with room:
                outcome = await client.run(request)
            progress.advance(bar)
            return outcome

        times = arrival_times(len(requests), rate=options.request_rate, seed=options.seed)
        return await asyncio.gather(*(one(request, due) for request, due in zip(requests, times, strict=True)))


def _show(report: Report, options: argparse.Namespace, model: str) -> None:
    console = Console()
    num_good = report.num_requests - report.num_failed
    console.print(f"{model} at {options.base_url}, {options.backend}", highlight=False)
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(min_width=24)
    facts.add_column(justify="right")
    facts.add_row("answered", f"{num_good} of {report.num_requests}")
    facts.add_row("seconds", f"{report.seconds:.2f}")
    facts.add_row("prompt tokens", f"{report.prompt_tokens:,} ({report.cached_tokens:,} cached)")
    facts.add_row("output tokens", f"{report.output_tokens:,}")
    for name, value in report.throughput().items():
        facts.add_row(name.replace("_per_second", " a second").replace("_", " "), f"{value:,.1f}")
    console.print(facts)
    waits = Table("milliseconds", box=None, pad_edge=False)
    for heading in ("mean", "median", "p90", "p99"):
        waits.add_column(heading, justify="right", min_width=9)
    rows: list[tuple[str, Percentiles | None]] = [
        ("time to first token", report.ttft),
        ("between tokens (ITL)", report.itl),
        ("per token (TPOT)", report.tpot),
        ("whole answer", report.e2e),
    ]
    for name, found in rows:
        if found is not None:
            waits.add_row(name, *(f"{value:.2f}" for value in (found.mean, found.median, found.p90, found.p99)))
    console.print(waits)
    for error, count in report.errors.items():
        console.print(f"failed {count} times: {error}", style="red", highlight=False, markup=False)
    if report.client_share > _BUSY_CLIENT:
        console.print(
            f"The client itself was busy for {report.client_share:.0%} of the time: the server may be faster.",
            style="yellow",
        )


def _positive(text: str) -> int:
    return _bounded(text, 1)


def _count(text: str) -> int:
    return _bounded(text, 0)


def _bounded(text: str, low: int) -> int:
    if not text.isdecimal() or int(text) < low:
        raise argparse.ArgumentTypeError(f"is {text!r}; it must be an integer of at least {low}")
    return int(text)


def _positive_float(text: str) -> float:
    value = _rate(text)
    if value == math.inf:
        raise argparse.ArgumentTypeError("is inf; it must be a finite number above 0")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"is {text!r}; it must be a number above 0")
    return value


def _share(text: str) -> float:
    value = _rate(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"is {text!r}; it must be above 0, at most 1")
    return value


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("is JSON, but no object")
    return value

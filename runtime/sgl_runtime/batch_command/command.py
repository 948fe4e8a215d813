"""The command `sgl batch`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from sgl_runtime.batch_command.answer_file import AnswerFile
from sgl_runtime.batch_command.batch_file import check_requests, read_requests
from sgl_runtime.batch_command.progress import BatchProgress
from sgl_runtime.batch_command.run import BatchRun
from sgl_runtime.errors import ConfigError, SglRuntimeError
from sgl_runtime.server_address import server_address

_OWN_MODEL_URL = "http://model"
_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run `sgl batch`.

    Returns:
        The exit code: 0 when every request has a good answer, 1 when some have not, 2 where flags, files or the server
        are wrong, 130 when it was stopped.
    """
    parser = _parser()
    options, model_flags = parser.parse_known_args(arguments)
    if options.base_url and options.model_path:
        parser.error("--base-url and --model-path are both given; the requests go to one of them")
    if model_flags and not options.model_path:
        parser.error(f"{model_flags[0]} is not an option; those of sgl serve are taken with --model-path")
    try:
        ids = check_requests(options.input)
        if options.output.exists() and options.output.samefile(options.input):
            raise ConfigError(f"{str(options.output)!r} holds the requests; the answers need a file of their own")
        with AnswerFile(options.output, keeps_failed=not options.rerun_failed) as answers:
            return _run(options, model_flags, answers, ids)
    except SglRuntimeError as error:
        print(f"sgl batch: {error.message}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sgl batch",
        usage="%(prog)s INPUT -o OUTPUT (--base-url URL | --model-path MODEL) [options]",
        description="Answer the requests of a file. A run that ended early goes on where it was: requests whose"
        " custom_id the output has are not sent again.",
        epilog="With --model-path, the options of sgl serve are taken too, as in --device or --context-length.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", metavar="INPUT", type=Path, help="JSON lines of custom_id, method, url and body, as for OpenAI")
    add("-o", "--output", metavar="OUTPUT", type=Path, required=True, help="file that gets a line for each answer")
    add(
        "--base-url",
        metavar="URL",
        type=server_address,
        help="the server that answers (default: http://127.0.0.1:30000)",
    )
    add("--model-path", metavar="MODEL", help="answer in this process instead, with this model")
    add("--api-key", metavar="KEY", help="key that the server asks for")
    add(
        "--max-concurrency",
        metavar="N",
        type=_positive,
        default=64,
        help="most requests at a time (default: %(default)s)",
    )
    add(
        "--retry",
        metavar="N",
        type=_count,
        default=3,
        help="times that a request is sent again when the server is full or away (default: %(default)s)",
    )
    add("--rerun-failed", action="store_true", help="answer again what the output has errors for")
    add(
        "--timeout",
        metavar="X",
        type=_positive_float,
        default=3600.0,
        help="seconds for one answer (default: %(default).0f)",
    )
    return parser


def _run(options: argparse.Namespace, model_flags: Sequence[str], answers: AnswerFile, ids: set[str]) -> int:
    console = Console(stderr=True)
    num_skipped, num_bad = len(ids & answers.done), len(ids & answers.failed)
    if num_skipped == len(ids):
        errors = f"; {num_bad} of them are errors, which --rerun-failed sends again" if num_bad else ""
        console.print(f"all {len(ids)} requests have an answer{errors}", highlight=False, soft_wrap=True)
        return 1 if num_bad else 0
    runner = _Runner(options, answers, console, num_requests=len(ids), num_skipped=num_skipped)
    try:
        if options.model_path:
            # The runtime takes long to import, and a server has one of its own.
            from sgl_runtime.batch_command.own_model import run_on_own_model

            run_on_own_model(["--model-path", options.model_path, *model_flags], runner.run_on_model)
        else:
            asyncio.run(runner.run_on_server())
    except KeyboardInterrupt:
        runner.show_summary(was_stopped=True)
        return _INTERRUPTED
    except SglRuntimeError:
        runner.show_summary(was_stopped=True)
        raise
    runner.show_summary(was_stopped=False)
    return 1 if num_bad else runner.exit_code


class _Runner:
    """One run of the command."""

    def __init__(
        self, options: argparse.Namespace, answers: AnswerFile, console: Console, *, num_requests: int, num_skipped: int
    ) -> None:
        self.exit_code = 1
        self._options = options
        self._answers = answers
        self._console = console
        self._num_requests = num_requests
        self._num_skipped = num_skipped
        self._progress: BatchProgress | None = None

    async def run_on_server(self) -> None:
        """Send the requests to a server.

        Raises:
            ConfigError: none answers.
        """
        headers = {"authorization": f"Bearer {self._options.api_key}"} if self._options.api_key else {}
        url = self._options.base_url or "http://127.0.0.1:30000"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with self._client(base_url=url, headers=headers, limits=limits) as http:
            try:
                status = (await http.get("/v1/models")).status_code
            except httpx.HTTPError as error:
                raise ConfigError(f"no server answers at {url}: {error or type(error).__name__}") from error
            if status == 401:
                raise ConfigError(f"the server at {url} asks for another key; give it with --api-key")
            await self._run(http)

    async def run_on_model(self, app: Any) -> None:
        """Send the requests to an application in this process."""
        async with self._client(base_url=_OWN_MODEL_URL, transport=httpx.ASGITransport(app)) as http:
            await self._run(http)

    def show_summary(self, *, was_stopped: bool) -> None:
        """Say what has become of the batch, if it has begun."""
        if self._progress is not None:
            self._progress.summary(was_stopped=was_stopped)

    def _client(self, **settings: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=httpx.Timeout(self._options.timeout, connect=30.0), **settings)

    async def _run(self, http: httpx.AsyncClient) -> None:
        def write(answer: dict[str, Any]) -> None:
            self._answers.write(answer)
            progress.update()

        http.headers["content-type"] = "application/json"
        run = BatchRun(http, write, max_retries=self._options.retry)
        progress = BatchProgress(
            self._console, run.counts, num_requests=self._num_requests, num_skipped=self._num_skipped
        )
        self._progress = progress
        requests = read_requests(self._options.input, skipped=set(self._answers.done))
        with progress:
            await run.run(requests, concurrency=self._options.max_concurrency)
        self.exit_code = 1 if run.counts.num_failed else 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value

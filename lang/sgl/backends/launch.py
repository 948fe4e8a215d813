"""Runtime: a server of sgl_runtime that is started for this program and stopped with it."""

import asyncio
import atexit
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from sgl.backends.base import Prompt
from sgl.backends.engine import RUNTIME_PACKAGE
from sgl.backends.payload import error_from_reply
from sgl.backends.runtime import RuntimeEndpoint
from sgl.errors import BackendError, reject
from sgl.event_loop import event_loop_thread

HOST = "127.0.0.1"
POLL_INTERVAL_S = 0.1
STOP_TIMEOUT_S = 15.0
SHOWN_LOG_CHARS = 4000


class Runtime:
    """Starts `python -m sgl_runtime serve` on a free port and waits until it is healthy.  A backend as it stands.

    Use it with `with`, or call `shutdown`; at the latest the end of the program stops the server.

    Args:
        log_level: The server's log level.
        launch_timeout: Seconds to wait for it.
        **server_args: Its options by name: `model_path="smollm2"` is `--model-path smollm2`; True gives a flag alone.

    Attributes:
        url: Its address.
        endpoint: The backend.

    Raises:
        BackendError: the server ended or was not healthy in time; the message ends with its log.
    """

    def __init__(self, log_level: str = "error", launch_timeout: float = 300.0, **server_args: Any) -> None:
        if "model_path" not in server_args:
            raise reject("model_path", None, "given, as in Runtime(model_path='smollm2')")
        port = server_args.pop("port", None) or _free_port()
        self.url = f"http://{HOST}:{port}"
        self._server_args = server_args
        options = {"host": HOST, "port": port, "log_level": log_level, **server_args}
        self._log = tempfile.NamedTemporaryFile(prefix="sgl-runtime-", suffix=".log")  # noqa: SIM115 - closed by shutdown
        self._process = subprocess.Popen(
            [sys.executable, "-m", RUNTIME_PACKAGE, "serve", *command_line(options)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        atexit.register(self.shutdown)
        try:
            self._wait_until_healthy(launch_timeout)
            self.endpoint = RuntimeEndpoint(self.url)
        except BaseException:
            self.shutdown()
            raise

    def generate(self, prompt: str | list[str], sampling_params: dict[str, Any] | None = None, **fields: Any) -> str:
        """The server's reply to a prompt without a program, as JSON text.

        Args:
            prompt: Text, or a list of texts.
            sampling_params: As in docs/protocol.md, as are the other fields (return_logprob, ...).
        """
        return self._json_of("/generate", {"text": prompt, "sampling_params": sampling_params or {}, **fields})

    async def async_generate(self, prompt: str, sampling_params: dict[str, Any] | None = None) -> AsyncIterator[str]:
        """What the model says to a prompt without a program, piece by piece, for tasks of any event loop."""
        payload = {"text": prompt, "sampling_params": sampling_params or {}, "stream": True}
        events = self.endpoint.stream("/generate", payload)
        loop = event_loop_thread()

        async def step() -> dict[str, Any] | None:
            return await anext(events, None)

        size = 0
        try:
            while (event := await asyncio.wrap_future(loop.start(step()))) is not None:
                if "error" in event:
                    raise error_from_reply(event, status=None)
                if piece := event["text"][size:]:
                    size += len(piece)
                    yield piece
        finally:
            await asyncio.wrap_future(loop.start(events.aclose()))

    add_request = async_generate

    def encode(self, prompt: str | list[str]) -> str:
        """The server's embedding of a prompt, as JSON text; its error where the model makes none."""
        return self._json_of("/encode", {"text": prompt})

    def cache_prefix(self, prefix: str) -> None:
        """Put a text into the prefix cache."""
        event_loop_thread().wait(self.endpoint.commit(Prompt(pending=prefix)))

    def start_profile(self) -> None:
        """Let the server begin a profile; its error where it has none."""
        self._json_of("/start_profile", {})

    def stop_profile(self) -> None:
        """Let the server end its profile."""
        self._json_of("/stop_profile", {})

    def get_tokenizer(self) -> Any:
        """The model's tokenizer, loaded by package transformers from `tokenizer_path` or `model_path`."""
        options = self._server_args
        loader = import_module("transformers").AutoTokenizer
        return loader.from_pretrained(options.get("tokenizer_path") or options["model_path"])

    async def get_server_info(self) -> dict[str, Any]:
        """The server's configuration and counters, for tasks of any event loop."""
        return await asyncio.wrap_future(event_loop_thread().start(self.endpoint.get_server_info()))

    def _json_of(self, path: str, payload: dict[str, Any]) -> str:
        return json.dumps(event_loop_thread().wait(self.endpoint.call(path, payload)), ensure_ascii=False)

    def shutdown(self) -> None:
        """Stop the server and wait for it.  Calling it twice does no harm."""
        atexit.unregister(self.shutdown)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.endpoint.close()
        self.shutdown()

    def _wait_until_healthy(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._is_healthy():
            if self._process.poll() is not None:
                raise BackendError(f"the server ended with exit code {self._process.returncode}\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise BackendError(f"the server was not healthy within {timeout_s} seconds\n{self._log_tail()}")
            time.sleep(POLL_INTERVAL_S)

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _log_tail(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-SHOWN_LOG_CHARS:]


def command_line(options: dict[str, Any]) -> list[str]:
    """Command-line arguments of options by name: True gives a flag alone, False and None give nothing."""
    arguments: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port

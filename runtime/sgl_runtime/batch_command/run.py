"""Running the requests of a batch: so many at a time, again where it may help, each answer written when it is there."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from sgl_runtime.batch_command.batch_file import BatchRequest
from sgl_runtime.errors import ConfigError
from sgl_runtime.server.generate_request import new_rid

# The server was full, slow or not there: another time it may answer.
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_WAIT_S = 0.5
_MAX_WAIT_S = 30.0
_NO_ANSWER = "no_answer"
_NO_CONNECTION = "no_connection"


@dataclass(kw_only=True)
class BatchCounts:
    """What has become of a batch so far.

    Attributes:
        num_answered: Requests whose answer is no error.
        num_failed: All others that have ended.
        num_retries: Times that a request was sent again.
        input_tokens, output_tokens: As the server counted them.
    """

    num_answered: int = 0
    num_failed: int = 0
    num_retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class BatchRun:
    """Sends requests to one server.

    Args:
        http: Where they go, with base address, key and time limit.
        write: Takes each answer, in the order in which they come.
        max_retries: How often a request is sent again that may be answered another time.

    Attributes:
        counts: What has become of them so far.
    """

    def __init__(self, http: httpx.AsyncClient, write: Callable[[dict[str, Any]], None], *, max_retries: int) -> None:
        self.counts = BatchCounts()
        self._http = http
        self._write = write
        self._max_retries = max_retries
        # Waits differ, so that requests that were refused together do not come back together.
        self._random = random.Random(0)

    async def run(self, requests: Iterator[BatchRequest], *, concurrency: int) -> None:
        """Until all have ended.

        Args:
            requests: Taken one by one.
            concurrency: Most at a time.

        Raises:
            ConfigError: an answer cannot be written, or the server is gone.
        """

        async def work() -> None:
            for request in requests:
                await self._answer(request)

        workers = [asyncio.create_task(work()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _answer(self, request: BatchRequest) -> None:
        response, error = await self._send(request)
        for retry in range(self._max_retries):
            if response is not None and response["status_code"] not in _TRANSIENT:
                break
            self.counts.num_retries += 1
            wait_s = min(_MAX_WAIT_S, _FIRST_WAIT_S * 2**retry) * (0.5 + self._random.random() / 2)
            await asyncio.sleep(wait_s)
            response, error = await self._send(request)
        if error is not None and error["code"] == _NO_CONNECTION:
            # It would be the same with all others.
            raise ConfigError(f"the server at {self._http.base_url} is gone: {error['message']}")
        self._count(response)
        self._write(
            {"id": f"batch_req_{new_rid()}", "custom_id": request.custom_id, "response": response, "error": error}
        )

    async def _send(self, request: BatchRequest) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The response and the error of an answer; there is one of them."""
        try:
            reply = await self._http.post(request.url, content=request.body)
            body = msgspec.json.decode(reply.content)
        except httpx.ConnectError as error:
            return None, {"code": _NO_CONNECTION, "message": str(error)}
        except httpx.HTTPError as error:
            return None, {"code": _NO_ANSWER, "message": f"{type(error).__name__}: {error}".removesuffix(": ")}
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return None, {"code": _NO_ANSWER, "message": f"status {reply.status_code} without JSON: {error}"}
        request_id = reply.headers.get("x-request-id", "")
        return {"status_code": reply.status_code, "request_id": request_id, "body": body}, None

    def _count(self, response: dict[str, Any] | None) -> None:
        if response is None or response["status_code"] != 200:
            self.counts.num_failed += 1
            return
        self.counts.num_answered += 1
        body = response["body"]
        usage = body.get("usage") if isinstance(body, dict) else None
        if not isinstance(usage, dict):
            return
        self.counts.input_tokens += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        self.counts.output_tokens += usage.get("completion_tokens") or usage.get("output_tokens") or 0

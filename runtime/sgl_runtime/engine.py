"""Engine: the runtime inside the caller's process, with the same requests and replies as the server.

The scheduler and the detokenizer share one thread, the TokenizerManager runs on an event loop in another.  No
sockets, and no child processes but those that compile large grammars.
"""

import atexit
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Event, Thread
from typing import Any, TypeVar

from starlette.types import ASGIApp

from sgl_runtime.config_flags import build_config
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.errors import OverloadedError, SglRuntimeError
from sgl_runtime.ipc.messages import DetokenizerOutput, SchedulerInput, SchedulerOutput
from sgl_runtime.ipc.thread_inbox import ThreadInbox
from sgl_runtime.server.app import create_app
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.serving.background_loop import BackgroundLoop
from sgl_runtime.serving.factories import Factories, ServedParts
from sgl_runtime.serving.pulse import Pulse
from sgl_runtime.serving.scheduler_loop import SchedulerLoop
from sgl_runtime.serving.served_model import effective_settings, served_model_info

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Engine:
    """Generates text in this process.

    Args:
        model_path: `smollm2`, a folder, a `.gguf` file, or a hub id (owner/name).
        factories: How the model's parts are built.
        flags: Options by the names of the command line's flags, with underscores (`max_total_tokens=4096`).

    Raises:
        ConfigError: an option is unknown or wrong.
        ModelLoadError: the model cannot be found or read.

    Example:
        >>> with Engine("smollm2") as engine:
        ...     print(engine.generate("The capital of France is", {"max_new_tokens": 8})["text"])
    """

    def __init__(self, model_path: str, *, factories: Factories | None = None, **flags: Any) -> None:
        config = build_config({"model_path": model_path, **flags})
        factories = factories or Factories()
        host = factories.build_host(config)
        built: Future[ServedParts] = Future()
        loop: Future[SchedulerLoop] = Future()
        build = partial(factories.build_scheduler, config, host)
        self._thread = Thread(target=self._main, args=(build, built, loop), name="sgl scheduler", daemon=True)
        self._thread.start()
        parts = built.result()
        self._scheduler = parts.scheduler
        self._inbox: ThreadInbox[SchedulerInput] = ThreadInbox()
        self._detokenizer = Detokenizer(host.tokenizer.vocabulary)
        model_info = served_model_info(config, host, parts.facts)
        self._books = RequestBooks.open(config.logs, model_name=model_info.served_model_name)
        self._manager = TokenizerManager(
            tokenizer=host.tokenizer,
            model_info=model_info,
            send=self._inbox.put,
            max_live_requests=config.scheduler.max_live_requests,
            features=config.features,
            watch=self._books.watch,
            num_tokenizer_workers=config.server.tokenizer_workers,
        )
        settings = effective_settings(config, parts.facts)
        self._api = NativeApi(self._manager, settings, self._books, grammar=config.grammar)
        self._background = BackgroundLoop("sgl api")
        self._pulse = Pulse(
            lambda heartbeat: self._background.call_soon(self._manager.deliver, [heartbeat]),
            max_turn_s=config.connections.watchdog_timeout,
        )
        self._stopped = Event()
        self._pulse.start()
        loop.set_result(
            SchedulerLoop(parts.scheduler, inbox=self._inbox, deliver=self._deliver, begin_turn=self._pulse.turn)
        )
        atexit.register(self.shutdown)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        stream: bool = False,
        rid: str | list[str] | None = None,
        **fields: Any,
    ) -> Any:
        """Generate, and wait for it.

        Args:
            prompt: Text, or a list of texts for a batch.
            sampling_params: As in docs/protocol.md; one object, or one for each prompt.
            input_ids: Prompt as ids, instead of a text or in front of it.
            return_logprob: Put log probabilities into `meta_info`.
            logprob_start_len: First prompt position whose log probability is wanted.
            stream: Return an iterator over the growing replies.
            rid: Request id.
            **fields: Other fields of a request of docs/protocol.md, as in `top_logprobs_num=5` or `priority=1`.

        Returns:
            The reply of `/generate`; for a batch, or where a prompt has several outputs, a list of them; with `stream`
            an iterator.

        Raises:
            SglRuntimeError: the request is wrong or failed.
        """
        named = _payload(prompt, sampling_params, input_ids, return_logprob, logprob_start_len, rid)
        payload = {**named, **fields}
        if stream:
            return self._iterate(payload)
        return self.call_and_wait("/generate", payload)

    async def async_generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        stream: bool = False,
        rid: str | list[str] | None = None,
        **fields: Any,
    ) -> Any:
        """`generate` for use in any event loop; with `stream` the result is an async iterator."""
        named = _payload(prompt, sampling_params, input_ids, return_logprob, logprob_start_len, rid)
        payload = {**named, **fields}
        if stream:
            return self.stream("/generate", payload)
        return await self.call("/generate", payload)

    def encode(
        self,
        prompt: str | list[str] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        rid: str | list[str] | None = None,
        dimensions: int | None = None,
        **fields: Any,
    ) -> Any:
        """Make vectors of texts, with a model that does.

        Args:
            prompt: A text, or a list of texts.
            input_ids: Token ids in place of text, taken as they are.
            rid: Request id.
            dimensions: Keep only so many numbers of each vector.
            **fields: Other fields of `/encode` of docs/protocol.md.

        Returns:
            The reply of `/encode`; for a list of inputs a list of them.

        Raises:
            SglRuntimeError: the request is wrong or failed.
        """
        named = {"text": prompt, "input_ids": input_ids, "rid": rid, "dimensions": dimensions}
        return self.call_and_wait("/encode", {**named, **fields})

    async def call(self, path: str, payload: Any = None) -> Any:
        """The reply of a path of docs/protocol.md, from any event loop.

        Raises:
            SglRuntimeError: the payload is wrong, or the request failed.
        """
        self._check_open()
        return await self._background.await_result(self._api.call(path, payload))

    def call_and_wait(self, path: str, payload: Any = None) -> Any:
        """The reply of a path of docs/protocol.md.

        Raises:
            SglRuntimeError: the payload is wrong, or the request failed.
        """
        self._check_open()
        return self._background.result(self._api.call(path, payload))

    async def stream(self, path: str, payload: Any) -> AsyncIterator[dict[str, Any]]:
        """The growing replies of `/generate`, in any event loop.

        Raises:
            SglRuntimeError: the payload is wrong, or the request failed.
        """
        self._check_open()
        async for reply in self._background.iterate(self._api.stream(path, payload)):
            yield reply

    def run_with_application(self, work: Callable[[ASGIApp], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine that asks this engine over HTTP, without a socket; an interrupt cancels it.

        Args:
            work: Is given the application that a server would have.

        Returns:
            Its result.
        """
        self._check_open()
        return self._background.result(work(create_app(self._api, has_web=False)))

    def flush_cache(self) -> dict[str, Any]:
        """Empty the prefix cache; refused while requests run."""
        reply: dict[str, Any] = self.call_and_wait("/flush_cache")
        return reply

    def get_server_info(self) -> dict[str, Any]:
        """The effective configuration and the scheduler's counters."""
        reply: dict[str, Any] = self.call_and_wait("/get_server_info")
        return reply

    def get_model_info(self) -> dict[str, Any]:
        """Facts of the served model."""
        reply: dict[str, Any] = self.call_and_wait("/get_model_info")
        return reply

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text."""
        tokens: list[int] = self.call_and_wait("/tokenize", {"text": text, "add_special_tokens": add_special_tokens})[
            "tokens"
        ]
        return tokens

    def abort(self, rid: str) -> list[str]:
        """End a request; the ids of those that were live."""
        aborted: list[str] = self.call_and_wait("/abort_request", {"rid": rid})["aborted"]
        return aborted

    def shutdown(self) -> None:
        """End every request and both threads; a second call does nothing."""
        if self._stopped.is_set():
            return
        atexit.unregister(self.shutdown)
        self._background.result(self._manager.drain(grace_s=0.0))
        self._background.result(self._books.close())
        self._background.result(self._api.close())
        self._stopped.set()
        self._inbox.wake()
        self._thread.join()
        self._scheduler.close()
        self._pulse.stop()
        self._background.close()

    def _iterate(self, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._check_open()
        return self._background.iterate_blocking(self._api.stream("/generate", payload))

    def _check_open(self) -> None:
        if self._stopped.is_set():
            raise OverloadedError("the engine was shut down")

    def _main(
        self, build: Callable[[], ServedParts], built: "Future[ServedParts]", loop: "Future[SchedulerLoop]"
    ) -> None:
        # Weights are loaded where passes run: each thread that computes brings helpers of its own, and with more of
        # those than cores OpenMP lets none of them wait awake, which makes every pass slower.
        try:
            built.set_result(build())
        except BaseException as error:
            built.set_exception(error)
            return
        try:
            loop.result().run(self._stopped.is_set)
        except BaseException as error:
            logger.exception("scheduler thread failed")
            cause = SglRuntimeError(f"the scheduler failed: {type(error).__name__}: {error}")
            self._background.call_soon(self._manager.fail_all, cause)

    def _deliver(self, messages: list[SchedulerOutput]) -> None:
        outputs: list[DetokenizerOutput] = []
        for message in messages:
            outputs.extend(self._detokenizer.accept(message))
        if outputs:
            self._background.call_soon(self._manager.deliver, outputs)


def _payload(
    prompt: str | list[str] | None,
    sampling_params: dict[str, Any] | Sequence[dict[str, Any]] | None,
    input_ids: list[int] | list[list[int]] | None,
    return_logprob: bool,
    logprob_start_len: int | None,
    rid: str | list[str] | None,
) -> dict[str, Any]:
    return {
        "text": prompt,
        "sampling_params": sampling_params,
        "input_ids": input_ids,
        "return_logprob": return_logprob,
        "logprob_start_len": logprob_start_len,
        "rid": rid,
    }

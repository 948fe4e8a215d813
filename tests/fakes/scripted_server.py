"""The HTTP application in a thread, over a scripted scheduler in another."""

import asyncio
import socket
import threading
from typing import Any

from fakes.byte_tokenizer import ByteTokenizer
from fakes.scripted_composition import ScriptedHost, ScriptedParts
from sgl_runtime.config_flags import build_config
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.ipc.messages import SchedulerInput, SchedulerOutput
from sgl_runtime.ipc.thread_inbox import ThreadInbox
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.server.app import create_app
from sgl_runtime.server.http_server import HttpServer
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.request_traces import RequestTraces
from sgl_runtime.server.tls import tls_context
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.serving.scheduler_loop import SchedulerLoop
from sgl_runtime.serving.served_model import effective_settings, served_model_info


class ScriptedServer:
    """Use as a context manager; `url` answers as soon as it is entered."""

    def __init__(
        self, *, traces: RequestTraces | None = None, pooling: PoolingInfo | None = None, **flags: Any
    ) -> None:
        self._traces = traces
        self._pooling = pooling
        self._config = build_config({"model_path": "scripted", **flags})
        self.scheduler = ScriptedParts().scheduler
        self.tokenizer = ByteTokenizer()
        self.facts = ScriptedParts().facts
        # How long requests get when the server ends.
        self.grace_s = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Connections take it over; without it small writes wait for the client's kernel.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._inbox: ThreadInbox[SchedulerInput] = ThreadInbox()
        self._detokenizer = Detokenizer(ByteTokenizer().vocabulary)
        self._built = threading.Event()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run_api), threading.Thread(target=self._run_scheduler)]

    def __enter__(self) -> "ScriptedServer":
        self._threads[0].start()
        assert self._built.wait(10)
        self._threads[1].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()
        self._threads[0].join()
        self._stopped.set()
        self._inbox.wake()
        self._threads[1].join()

    def _run_api(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        host, facts = ScriptedHost(self.tokenizer, pooling=self._pooling), self.facts
        self.books = RequestBooks.open(self._config.logs, model_name="scripted", traces=self._traces)
        self.manager = TokenizerManager(
            tokenizer=host.tokenizer,
            model_info=served_model_info(self._config, host, facts),
            send=self._inbox.put,
            max_live_requests=self._config.scheduler.max_live_requests,
            features=self._config.features,
            watch=self.books.watch,
        )
        access, connections = self._config.access, self._config.connections
        settings = effective_settings(self._config, facts)
        api = NativeApi(self.manager, settings, self.books, grammar=self._config.grammar)
        has_web = not self._config.server.disable_web
        self.api = api
        app = create_app(api, access=access, connections=connections, books=self.books, has_web=has_web)
        self.server = HttpServer(
            app,
            drain=lambda grace_s: self.manager.drain(grace_s=min(grace_s, self.grace_s)),
            limits=connections,
            tls=tls_context(access),
        )
        self._built.set()
        await self.server.serve([self._listener])
        await api.close()
        await self.books.close()

    def _run_scheduler(self) -> None:
        loop = SchedulerLoop(self.scheduler, inbox=self._inbox, deliver=self._deliver, begin_turn=lambda: None)
        loop.run(self._stopped.is_set)

    def _deliver(self, messages: list[SchedulerOutput]) -> None:
        outputs = [output for message in messages for output in self._detokenizer.accept(message)]
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.manager.deliver, outputs)

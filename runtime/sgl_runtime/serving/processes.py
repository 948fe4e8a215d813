"""One main function for each process of the server: builds its parts from its sections, and runs."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
import zmq

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.ipc.channels import Addresses, LoopPullChannel, PullChannel, PushChannel
from sgl_runtime.ipc.codec import detokenizer_output_codec, scheduler_input_codec, scheduler_output_codec
from sgl_runtime.ipc.messages import DetokenizerOutput
from sgl_runtime.server.app import create_app
from sgl_runtime.server.http_server import HttpServer
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.serving.child_process import ChildReady, run_child
from sgl_runtime.serving.collector import spare_collector
from sgl_runtime.serving.factories import Factories, ServedHost
from sgl_runtime.serving.process_group import ProcessGroup
from sgl_runtime.serving.pulse import Pulse
from sgl_runtime.serving.scheduler_loop import SchedulerLoop
from sgl_runtime.serving.served_model import effective_settings, served_model_info
from sgl_runtime.serving.watchdog import Watchdog
from sgl_runtime.tokenizer.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

API_TITLE = "sgl::api"
SCHEDULER_TITLE = "sgl::scheduler"
DETOKENIZER_TITLE = "sgl::detokenizer"

DEATH_GRACE_S = 1.0
"""How long requests get to take their error when another process has died."""


@dataclass(frozen=True)
class ProcessPlan:
    """What every process is given.

    Attributes:
        config: All sections.
        factories: How the model's parts are built.
        addresses: Where each process receives.
        leftovers: Files and folders that do not outlive the server.
    """

    config: RuntimeConfig
    factories: Factories
    addresses: Addresses
    leftovers: tuple[Path, ...]

    def run_child(self, body: Callable[[], None], *, title: str, first_word: Connection) -> None:
        """Run the main function of a child process; does not return."""
        run_child(body, title=title, logs=self.config.logs, leftovers=self.leftovers, first_word=first_word)


def scheduler_main(plan: ProcessPlan, first_word: Connection) -> None:
    """The scheduler process."""

    def body() -> None:
        host = plan.factories.build_host(plan.config)
        parts = plan.factories.build_scheduler(plan.config, host)
        context: zmq.Context[Any] = zmq.Context()
        inbox = PullChannel(context, plan.addresses.scheduler, scheduler_input_codec())
        outbox = PushChannel(context, plan.addresses.detokenizer, scheduler_output_codec())
        # A socket belongs to one thread, so the pulse has one of its own.
        pulse_outbox = PushChannel(context, plan.addresses.detokenizer, scheduler_output_codec())
        limit_s = plan.config.connections.watchdog_timeout
        pulse = Pulse(lambda heartbeat: pulse_outbox.send([heartbeat]), max_turn_s=limit_s)
        watchdog = Watchdog(timeout_s=limit_s)

        def begin_turn() -> None:
            pulse.turn()
            watchdog.turn()

        loop = SchedulerLoop(parts.scheduler, inbox=inbox, deliver=outbox.send, begin_turn=begin_turn)
        spare_collector()
        pulse.start()
        watchdog.start()
        first_word.send(ChildReady(parts.facts))
        first_word.close()
        loop.run(lambda: False)

    plan.run_child(body, title=SCHEDULER_TITLE, first_word=first_word)


def detokenizer_main(plan: ProcessPlan, vocabulary: Vocabulary, first_word: Connection) -> None:
    """The detokenizer process; it gets the vocabulary alone and loads no tokenizer."""

    def body() -> None:
        detokenizer = Detokenizer(vocabulary)
        context: zmq.Context[Any] = zmq.Context()
        inbox = PullChannel(context, plan.addresses.detokenizer, scheduler_output_codec())
        outbox = PushChannel(context, plan.addresses.api, detokenizer_output_codec())
        first_word.send(ChildReady({}))
        first_word.close()
        while True:
            outputs: list[DetokenizerOutput] = []
            for message in inbox.receive():
                outputs.extend(detokenizer.accept(message))
            if outputs:
                outbox.send(outputs)

    plan.run_child(body, title=DETOKENIZER_TITLE, first_word=first_word)


class ApiProcess:
    """The API process: HTTP and the TokenizerManager, and the watch over the other processes.

    Args:
        plan: As for every process.
        host: Gives the tokenizer.
        facts: What the scheduler told of itself.
        group: The other processes.
    """

    def __init__(self, plan: ProcessPlan, host: ServedHost, facts: dict[str, Any], group: ProcessGroup) -> None:
        self._plan = plan
        self._host = host
        self._facts = facts
        self._group = group
        self._death: str | None = None

    def run(self, listener: socket.socket, tls: ssl.SSLContext | None) -> str | None:
        """Serve until a signal comes or another process ends; which one ended and how.

        Args:
            listener: A bound socket.
            tls: Certificates; None to speak without TLS.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener, tls))
        return self._death

    async def _serve(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        plan, config = self._plan, self._plan.config
        context: zmq.Context[Any] = zmq.Context()
        outbox = PushChannel(context, plan.addresses.scheduler, scheduler_input_codec())
        inbox = LoopPullChannel(context, plan.addresses.api, detokenizer_output_codec())
        model_info = served_model_info(config, self._host, self._facts)
        books = RequestBooks.open(config.logs, model_name=model_info.served_model_name)
        manager = TokenizerManager(
            tokenizer=self._host.tokenizer,
            model_info=model_info,
            send=outbox.send,
            max_live_requests=config.scheduler.max_live_requests,
            features=config.features,
            watch=books.watch,
            num_tokenizer_workers=config.server.tokenizer_workers,
        )
        api = NativeApi(manager, effective_settings(config, self._facts), books, grammar=config.grammar)
        app = create_app(
            api,
            access=config.access,
            connections=config.connections,
            books=books,
            has_web=not config.server.disable_web,
        )

        async def drain(grace_s: float) -> None:
            await manager.drain(grace_s=grace_s)

        server = HttpServer(app, drain=drain, limits=config.connections, tls=tls)
        # The server puts its own handlers in place of these, and raises what it caught again when it has ended:
        # it must not be an end by signal then.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)
        inbox.open(manager.deliver)
        try:
            with self._watch(manager, server, books):
                await server.serve([listener])
            await books.close()
        finally:
            await api.close()
            inbox.close()
            outbox.close()
            context.term()

    @contextmanager
    def _watch(self, manager: TokenizerManager, server: HttpServer, books: RequestBooks) -> Iterator[None]:
        """While inside, the death of another process ends every request and the server."""
        loop = asyncio.get_running_loop()
        sentinels = self._group.sentinels()

        def on_death(sentinel: int) -> None:
            loop.remove_reader(sentinel)
            if self._death is None:
                self._death = self._group.describe_end(sentinels[sentinel])
                logger.error("%s; ending the server", self._death)
                manager.fail_all(SglRuntimeError(f"the server is ending: {self._death}"))
                books.dump.write_crash()
            server.stop(grace_s=DEATH_GRACE_S)

        for sentinel in sentinels:
            loop.add_reader(sentinel, on_death, sentinel)
        try:
            yield
        finally:
            for sentinel in sentinels:
                loop.remove_reader(sentinel)

"""A real model behind the HTTP application, in one event loop and without a socket."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sgl_runtime.composition import ModelHost, build_scheduler
from sgl_runtime.config_flags import build_config
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.ipc.messages import SchedulerInput, SchedulerOutput
from sgl_runtime.ipc.thread_inbox import ThreadInbox
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.server.app import create_app
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.serving.scheduler_loop import SchedulerLoop
from sgl_runtime.serving.served_model import effective_settings, served_model_info


@dataclass
class ServedModel:
    """Attributes are the client of the application, and what stands behind it."""

    client: httpx.AsyncClient
    manager: TokenizerManager
    scheduler: Scheduler

    async def post(self, path: str, payload: Any) -> tuple[int, Any]:
        """Status and reply of a path."""
        response = await self.client.post(path, json=payload)
        return response.status_code, response.json()


@asynccontextmanager
async def served_model(folder: Path, **flags: Any) -> AsyncIterator[ServedModel]:
    """Serve a model folder; at the end every slot must be there."""
    config = build_config({"model_path": str(folder), "max_total_tokens": 1024, **flags})
    host = ModelHost.open(config)
    parts = build_scheduler(config, host)
    inbox: ThreadInbox[SchedulerInput] = ThreadInbox()
    detokenizer = Detokenizer(host.tokenizer.vocabulary)
    manager = TokenizerManager(
        tokenizer=host.tokenizer,
        model_info=served_model_info(config, host, parts.facts),
        send=inbox.put,
        features=config.features,
    )
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def deliver(messages: list[SchedulerOutput]) -> None:
        outputs = [output for message in messages for output in detokenizer.accept(message)]
        loop.call_soon_threadsafe(manager.deliver, outputs)

    turns = SchedulerLoop(parts.scheduler, inbox=inbox, deliver=deliver, begin_turn=lambda: None)
    thread = threading.Thread(target=turns.run, args=(stopped.is_set,))
    thread.start()
    app = create_app(NativeApi(manager, effective_settings(config, parts.facts)))
    try:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://served") as client:
            yield ServedModel(client, manager, parts.scheduler)
    finally:
        stopped.set()
        inbox.wake()
        await asyncio.to_thread(thread.join)
        parts.scheduler.check()
        parts.scheduler.close()

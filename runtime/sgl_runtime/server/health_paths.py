"""Paths that say whether the server lives, and whether it takes requests."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from sgl_runtime.errors import OverloadedError
from sgl_runtime.server.encode_request import EncodeInput, encode_requests
from sgl_runtime.server.generate_request import GenerateRequest, parse_generate
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.tokenizer_manager import TokenizerManager

PROBE_LIMIT_S = 20.0
"""How long the one token of `/health_generate` may take."""

# In front of what waits at the usual priority, and never in the place of what runs.
_PROBE_PRIORITY = 1


class HealthPaths:
    """Signs of life: the heartbeat of the scheduler's loop, and one token through all processes.

    Args:
        manager: Knows the heartbeat.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager
        self._probe: asyncio.Task[float] | None = None

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""

        def path(answer: Any) -> NativePath:
            return NativePath(answer=answer, methods=("GET",), takes_body=False)

        return {
            "/health": path(self._health),
            "/ping": path(self._health),
            "/ready": path(self._ready),
            "/health_generate": path(self._health_generate),
        }

    async def _health(self, payload: Any) -> dict[str, Any]:
        """Whether the scheduler's loop turns."""
        self._manager.check_health()
        return {"status": "ok"}

    async def _ready(self, payload: Any) -> dict[str, Any]:
        """Whether the server takes requests."""
        self._manager.check_ready()
        return {"status": "ready"}

    async def _health_generate(self, payload: Any) -> dict[str, Any]:
        """Whether a token comes through all processes in time."""
        self._manager.check_ready()
        # All who ask at a time share one probe, so that asking often costs no more.
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(self._generate_token())
            # Those who asked may all have left when it fails.
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())
        return {"status": "ok", "seconds": await asyncio.shield(self._probe)}

    async def _generate_token(self) -> float:
        begin = time.monotonic()
        requests = self._probe_requests()
        try:
            async with (
                asyncio.timeout(PROBE_LIMIT_S),
                self._manager.submit(requests, stream=False, is_probe=True) as submission,
            ):
                await submission.finish()
        except TimeoutError:
            raise OverloadedError(f"no token came within {PROBE_LIMIT_S:.0f} s") from None
        return time.monotonic() - begin

    def _probe_requests(self) -> list[GenerateRequest]:
        """A request for one token, or for the vector of one where the model generates none."""
        if not self._manager.model_info.is_generation:
            probe = EncodeInput(field="input_ids", input_ids=[0])
            return encode_requests([probe], {"priority": _PROBE_PRIORITY})
        sampling = {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True}
        return parse_generate({"input_ids": [0], "sampling_params": sampling, "priority": _PROBE_PRIORITY}).requests

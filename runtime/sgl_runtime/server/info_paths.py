"""Paths that tell what the server serves."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.version import distribution_version


class InfoPaths:
    """The model, the configuration and the counters.

    Args:
        manager: Knows the model and the scheduler's signs of life.
        settings: The effective configuration.
    """

    def __init__(self, manager: TokenizerManager, settings: dict[str, Any]) -> None:
        self._manager = manager
        self._settings = settings
        self._started = time.monotonic()

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/get_model_info": NativePath(answer=self._get_model_info, methods=("GET",), takes_body=False),
            "/get_server_info": NativePath(answer=self._get_server_info, methods=("GET",), takes_body=False),
            "/model_info": NativePath(answer=self._get_model_info, methods=("GET",), takes_body=False),
            "/server_info": NativePath(answer=self._get_server_info, methods=("GET",), takes_body=False),
        }

    async def _get_model_info(self, payload: Any) -> dict[str, Any]:
        """Facts of the served model."""
        return asdict(self._manager.model_info)

    async def _get_server_info(self, payload: Any) -> dict[str, Any]:
        """The effective configuration, and the scheduler's counters."""
        state = {"uptime_seconds": time.monotonic() - self._started, **await self._manager.questions.stats()}
        return {**self._settings, "version": distribution_version(), "internal_states": [state]}

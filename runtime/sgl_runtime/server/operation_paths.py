"""Paths for whoever runs the server: what it writes down, where its time goes, how busy it is."""

import gc
from collections.abc import Mapping
from typing import Any

from sgl_runtime.config_values import cache_folder
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.messages import PROFILE_ACTIVITIES
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import (
    checked_boolean,
    checked_fields,
    checked_integer,
    checked_name,
    checked_text,
)
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.tokenizer_manager import TokenizerManager

MAX_PROFILE_STEPS = 100_000


class OperationPaths:
    """Logging that is switched at run time, profiles, load.

    Args:
        manager: Asks the scheduler.
        books: What is written down of requests; None where nothing is.
    """

    def __init__(self, manager: TokenizerManager, books: RequestBooks | None) -> None:
        self._manager = manager
        self._books = books

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/configure_logging": NativePath(answer=self._configure_logging, is_admin=True),
            "/start_profile": NativePath(answer=self._start_profile, methods=("GET", "POST"), is_admin=True),
            "/stop_profile": NativePath(answer=self._stop_profile, methods=("GET", "POST"), is_admin=True),
            "/freeze_gc": NativePath(answer=self._freeze_gc, methods=("GET", "POST"), is_admin=True),
            "/get_load": NativePath(answer=self._get_load, methods=("GET",), takes_body=False),
        }

    async def _configure_logging(self, payload: Any) -> dict[str, Any]:
        """Switch the log lines and the dump of requests."""
        names = ("log_requests", "log_requests_level", "dump_requests_folder", "dump_requests_threshold")
        fields = checked_fields(payload, names)
        if self._books is None:
            raise InvalidRequestError("nothing is written down of requests here; a server does that")
        log, dump = self._books.log, self._books.dump
        is_on = checked_boolean("log_requests", fields.get("log_requests", log.is_on))
        level = checked_integer("log_requests_level", fields.get("log_requests_level", log.level), low=0, high=3)
        folder = dump.folder
        if "dump_requests_folder" in fields:
            # An empty name: no more files.
            folder = checked_text("dump_requests_folder", fields["dump_requests_folder"]) or None
        threshold = fields.get("dump_requests_threshold", dump.threshold)
        threshold = checked_integer("dump_requests_threshold", threshold, low=1)
        log.is_on, log.level, dump.folder, dump.threshold = is_on, level, folder, threshold
        return dict(zip(names, (is_on, level, folder, threshold), strict=True))

    async def _start_profile(self, payload: Any) -> dict[str, Any]:
        """Record where the time of passes goes."""
        names = ("output_dir", "num_steps", "activities", "record_shapes", "with_stack")
        given = checked_fields({} if payload is None else payload, names)
        activities = given.get("activities", list(PROFILE_ACTIVITIES))
        known = isinstance(activities, list) and all(name in PROFILE_ACTIVITIES for name in activities)
        if not known or not activities:
            raise reject("activities", activities, f"a list of {' and '.join(PROFILE_ACTIVITIES)}")
        num_steps = given.get("num_steps")
        if num_steps is not None:
            num_steps = checked_integer("num_steps", num_steps, low=1, high=MAX_PROFILE_STEPS)
        message = await self._manager.questions.start_profile(
            output_dir=checked_name("output_dir", given.get("output_dir", str(cache_folder() / "profiles"))),
            num_steps=num_steps,
            activities=tuple(activities),
            record_shapes=checked_boolean("record_shapes", given.get("record_shapes", False)),
            with_stack=checked_boolean("with_stack", given.get("with_stack", False)),
        )
        return {"success": True, "message": message}

    async def _stop_profile(self, payload: Any) -> dict[str, Any]:
        """Write what was recorded."""
        checked_fields({} if payload is None else payload, ())
        return {"success": True, "message": await self._manager.questions.stop_profile()}

    async def _freeze_gc(self, payload: Any) -> dict[str, Any]:
        """Let the collector of the API process pass over all objects that are there."""
        checked_fields({} if payload is None else payload, ())
        gc.collect()
        gc.freeze()
        return {"success": True, "message": f"{gc.get_freeze_count()} objects of the API process are passed over"}

    async def _get_load(self, payload: Any) -> dict[str, Any]:
        """How busy the scheduler is."""
        stats = await self._manager.questions.stats()
        total = stats.get("total_slots", 0)
        running, waiting = stats["num_running"], stats["num_waiting"]
        return {
            "num_reqs": running + waiting,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_tokens": round(stats.get("token_usage", 0.0) * total),
            "max_total_num_tokens": total,
            "token_usage": stats.get("token_usage", 0.0),
        }

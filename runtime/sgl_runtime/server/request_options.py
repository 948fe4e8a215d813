"""Options of `/generate` that a batch may give once for all prompts, or in a list with one for each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.request_parts import LogitProcessorCall, SessionTurn
from sgl_runtime.server.field_checks import (
    MAX_INTEGER,
    checked_boolean,
    checked_fields,
    checked_id,
    checked_integer,
    checked_name,
    token_ids,
)

MAX_TOP_LOGPROBS = 100
MAX_PROBE_IDS = 1000


def _boolean(path: str, value: Any) -> bool:
    return value is not None and checked_boolean(path, value)


@dataclass(frozen=True, kw_only=True)
class IntegerOption:
    """Checks integers from `low` to `high`; `default` stands for null."""

    low: int
    high: int = MAX_INTEGER
    default: int

    def __call__(self, path: str, value: Any) -> int:
        """The integer.

        Raises:
            InvalidRequestError: it is something else, or outside.
        """
        return self.default if value is None else checked_integer(path, value, low=self.low, high=self.high)


def _probe_ids(path: str, value: Any) -> tuple[int, ...]:
    ids = tuple(token_ids(path, [] if value is None else value))
    if len(ids) > MAX_PROBE_IDS:
        raise InvalidRequestError(f"{path} holds {len(ids)} ids; at most {MAX_PROBE_IDS} are taken", param=path)
    return ids


def _session_turn(path: str, value: Any) -> SessionTurn | None:
    if value is None:
        return None
    fields = checked_fields(value, ("id", "rid", "offset", "replace", "drop_previous_output"), path=path)
    offset = fields.get("offset")
    if offset is not None:
        offset = checked_integer(f"{path}.offset", offset, low=-MAX_INTEGER)
    return SessionTurn(
        id=checked_id(f"{path}.id", fields.get("id")),
        rid=checked_id(f"{path}.rid", fields["rid"]) if "rid" in fields else None,
        # As clients of sessions know it, an offset of 0 is none.
        offset=offset or None,
        replace=checked_boolean(f"{path}.replace", fields.get("replace", False)),
        drop_previous_output=checked_boolean(f"{path}.drop_previous_output", fields.get("drop_previous_output", False)),
    )


def _logit_processor(path: str, value: Any) -> LogitProcessorCall | None:
    """A registered name, or the JSON text of an object whose `callable` is a pickle in hexadecimal digits."""
    if value is None:
        return None
    text = checked_name(path, value)
    if not text.startswith("{"):
        return LogitProcessorCall(name=text)
    try:
        pickled = json.loads(text)["callable"]
        bytes.fromhex(pickled)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidRequestError(
            f'{path} is no JSON object {{"callable": "hexadecimal digits of a pickle"}}: {error!r}', param=path
        ) from error
    return LogitProcessorCall(name=pickled, is_pickled=True)


OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "return_logprob": _boolean,
    "logprob_start_len": IntegerOption(low=-1, default=-1),
    "top_logprobs_num": IntegerOption(low=0, high=MAX_TOP_LOGPROBS, default=0),
    "token_ids_logprob": _probe_ids,
    "extra_key": lambda path, value: None if value is None else checked_name(path, value),
    "return_hidden_states": _boolean,
    "priority": IntegerOption(low=-MAX_INTEGER, default=0),
    "session_params": _session_turn,
    "custom_logit_processor": _logit_processor,
}

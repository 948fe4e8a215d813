"""Sessions, pauses and flushes: the same answers from an Engine and over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., tuple[int, Any]]


def test_sessions_and_pauses_answer_the_same_way(call: Call) -> None:
    assert call("/open_session", {"capacity_of_str_len": 9, "session_id": "a"}) == (200, "a")
    status, made = call("/open_session", {"capacity_of_str_len": 9})
    assert (status, type(made)) == (200, str)
    assert call("/close_session", {"session_id": "a"}) == (200, {"success": True, "message": "done"})
    for payload in ({}, {"mode": "abort"}, {"mode": "retract"}, {"mode": "in_place"}):
        assert call("/pause_generation", payload) == (200, {"success": True, "message": "done"})
    assert call("/continue_generation", {}) == (200, {"success": True, "message": "done"})


@pytest.mark.parametrize(
    ("path", "payload", "param"),
    [
        ("/open_session", {}, "capacity_of_str_len"),
        ("/open_session", {"capacity_of_str_len": 0}, "capacity_of_str_len"),
        ("/open_session", {"capacity_of_str_len": 5, "session_id": ""}, "session_id"),
        ("/open_session", {"capacity_of_str_len": 5, "timeout": -1}, "timeout"),
        ("/open_session", {"capacity_of_str_len": 5, "id": "x"}, "id"),
        ("/close_session", {}, "session_id"),
        ("/pause_generation", {"mode": 1}, "mode"),
        ("/pause_generation", {"mode": ["abort"]}, "mode"),
        ("/continue_generation", {"mode": "abort"}, "mode"),
        ("/flush_cache", {"timeout": "soon"}, "timeout"),
        ("/kv_events", {"since": -1}, "since"),
        ("/kv_events", {"limit": 0}, "limit"),
    ],
)
def test_wrong_controls_are_named(call: Call, path: str, payload: Any, param: str) -> None:
    status, reply = call(path, payload)
    assert (status, reply["error"]["param"]) == (400, param)

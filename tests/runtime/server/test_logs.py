"""The form of log lines."""

import json
import logging
import sys

import pytest
import requests

from fakes.scripted_server import ScriptedServer
from fakes.waiting import wait_for
from sgl_runtime.logs import HTTP_LOGGER, JsonFormatter
from sgl_runtime.server import http_log


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord("some.logger", logging.WARNING, "file", 1, message, arguments, more.get("exc_info"))  # type: ignore[arg-type]


def test_a_json_line_is_one_object() -> None:
    line = JsonFormatter("sgl::api").format(record('said "%s"\nand more', "x"))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "WARNING",
        "process": "sgl::api",
        "logger": "some.logger",
        "message": 'said "x"\nand more',
    }


def test_a_json_line_holds_the_traceback_and_any_text() -> None:
    try:
        raise ValueError("bad \ud800")
    except ValueError:
        line = JsonFormatter("p").format(record("half \udfff", exc_info=sys.exc_info()))
    found = json.loads(line)
    assert "ValueError: bad \\ud800" in found["exception"]
    assert found["message"] == "half \\udfff"


def test_http_lines_have_a_level_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    assert http_log.logger.name == HTTP_LOGGER
    with ScriptedServer() as server:
        caplog.set_level(logging.INFO, HTTP_LOGGER)
        requests.get(server.url + "/health", timeout=20)
        requests.post(server.url + "/generate", json={"text": 1}, headers={"x-request-id": "me"}, timeout=20)
        (line,) = http_lines(caplog)
        assert "method=POST path=/generate status=400 seconds=" in line
        assert line.endswith("request_id=me")
        caplog.clear()
        requests.get(server.url + "/a%0Ab", timeout=20)
        (line,) = http_lines(caplog)
        assert r"path='/a\nb' status=404" in line
        caplog.clear()
        caplog.set_level(logging.DEBUG, HTTP_LOGGER)
        requests.get(server.url + "/health", timeout=20)
        (line,) = http_lines(caplog)
        assert "path=/health status=200" in line


def http_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """They are written when the reply has been sent."""

    def lines() -> list[str]:
        return [entry.getMessage() for entry in caplog.records if entry.name == HTTP_LOGGER]

    wait_for(lines)
    return lines()

"""A server and an Engine over the same scripted scheduler."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from fakes.scripted_composition import SCRIPTED
from fakes.scripted_server import ScriptedServer
from sgl_runtime.engine import Engine
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.error_reply import error_object

GET_PATHS = ("/health", "/get_model_info", "/get_server_info")
Call = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("scripted", factories=SCRIPTED) as engine:
        yield engine


@pytest.fixture(params=["http", "engine"])
def call(request: pytest.FixtureRequest, server: ScriptedServer, engine: Engine) -> Call:
    """Status and reply of a path."""

    def over_http(path: str, payload: Any = None) -> tuple[int, Any]:
        method = "GET" if path in GET_PATHS else "POST"
        response = requests.request(method, server.url + path, json=payload, timeout=20)
        return response.status_code, response.json()

    def in_process(path: str, payload: Any = None) -> tuple[int, Any]:
        try:
            return 200, asyncio.run(engine.call(path, payload))
        except SglRuntimeError as error:
            return error.status, error_object(error)

    return over_http if request.param == "http" else in_process

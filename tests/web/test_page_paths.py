"""The native paths that the web page needs: validation of constraints, the load, and a look into requests."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from fakes.hostile_constraints import HOSTILE
from fakes.scripted_server import ScriptedServer
from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.constraint_check import check, place_of


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(request_history=3) as server:
        yield server


def post(server: ScriptedServer, path: str, body: Any, **options: Any) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=60, **options)

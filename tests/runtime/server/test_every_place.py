"""In every place of a body another value: the server answers, and what is wrong is a 400 that says so."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.chat_server import ChatServer
from fakes.hostile_bodies import places
from fakes.request_examples import EXAMPLES

ODD: list[Any] = [[], {}, -1, "\x00x", [[1, None]], {"type": []}, 10**30, True]
# These stop the server for others, or leave files.
LEFT_OUT = ("/pause_generation", "/start_profile", "/configure_logging")


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes", reasoning_parser="qwen3") as server:
        yield server


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path not in LEFT_OUT])
def test_any_value_in_any_place_is_answered(server: ChatServer, path: str) -> None:
    with requests.Session() as session:
        for number, example in enumerate(EXAMPLES[path]):
            answer = session.post(server.url + path, json=example, timeout=20)
            assert answer.status_code in (200, 400), (example, answer.text)
            for place in range(len(places(example))):
                for turn in range(3):
                    body = json.loads(json.dumps(example))
                    container, key = places(body)[place]
                    container[key] = ODD[(place * 3 + turn + number) % len(ODD)]
                    answer = session.post(server.url + path, json=body, timeout=20)
                    assert answer.status_code in (200, 400, 404), (body, answer.text)
                    if answer.status_code == 400:
                        assert answer.json()["error"]["message"], body

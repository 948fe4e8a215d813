"""Choices that think first: what becomes of them when the client leaves, and under one rid."""

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from fakes.chat_server import ChatServer
from sgl_runtime.ipc.messages import AbortRequest

BODY: dict[str, Any] = {
    "model": "x",
    "messages": [{"role": "user", "content": "FOREVER"}],
    "response_format": {"type": "json_object"},
    "stream": True,
}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(reasoning_parser="qwen3") as server:
        yield server


def wait_until_nothing_runs(server: ChatServer) -> None:
    for _ in range(2000):
        if not server.scheduler.running and server.manager.num_live == 0:
            return
        threading.Event().wait(0.005)
    raise AssertionError("requests are left")


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_ends_the_thinking(server: ChatServer, n: int) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        stream = client.chat.completions.create(**BODY, n=n)
        next(iter(stream))
        stream.close()
        wait_until_nothing_runs(server)
    aborted = {message.rid for message in server.scheduler.accepted if isinstance(message, AbortRequest)}
    assert len(aborted) == n


def test_an_abort_by_rid_ends_the_reply(server: ChatServer) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        stream = client.chat.completions.create(**BODY, extra_body={"rid": "mine"})
        chunks = iter(stream)
        next(chunks)
        client.post("../abort_request", body={"rid": "mine"}, cast_to=object)
        assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "abort"
        wait_until_nothing_runs(server)

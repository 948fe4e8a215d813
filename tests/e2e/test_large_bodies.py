"""Small and large bodies that ask for very much: each is answered soon, and others are not held up meanwhile."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.hostile_connections import request_bytes
from fakes.raw_client import exchange
from fakes.server_process import ServerProcess
from fakes.server_watch import ServerWatch

MANY = 100_000
# Each of these took ten seconds and more, or had no end, and nothing else was answered meanwhile.
LIMIT_S = 5.0
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def watch() -> Iterator[ServerWatch]:
    server = ServerProcess(main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


def sampled(**params: Any) -> dict[str, Any]:
    return {"text": "a", "sampling_params": {"max_new_tokens": 2, **params}}


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value


USER = {"role": "user", "content": "a"}
NAMES = [f"z{number}" for number in range(MANY)]
CASES: dict[str, tuple[str, Any, int, str]] = {
    "prompts": ("/generate", {"text": [""] * MANY}, 503, "100000 outputs"),
    "outputs": ("/generate", {"text": ["a"] * 800, "sampling_params": {"n": 128}}, 503, "102400 outputs"),
    "completions": ("/v1/completions", {"prompt": ["a"] * 800, "n": 128}, 503, "102400 outputs"),
    "items": ("/score", {"query": "a", "items": ["b"] * MANY, "label_token_ids": [1]}, 503, "100000 outputs"),
    "choices": ("/generate", sampled(choices=[*NAMES, NAMES[-1]]), 400, "more than once"),
    "stops": ("/generate", sampled(stop=NAMES), 400, "100000 strings"),
    "long stop": ("/generate", sampled(stop="a" * MANY), 400, "100000 characters"),
    "stop ids": ("/generate", sampled(stop_token_ids=[1] * MANY), 400, "100000 token ids"),
    "regex": ("/generate", sampled(regex="a" * 2_000_000), 400, "2000000 characters"),
    "schema": ("/generate", sampled(json_schema={"enum": NAMES * 3}), 400, "characters"),
    "wrong value": ("/generate", sampled(top_p=NAMES * 5), 400, "must be a number"),
    "deep value": ("/generate", sampled(top_p=nested(16)), 400, "must be a number"),
    "deeper value": ("/generate", sampled(top_p=nested(17)), 413, "lists and objects"),
    "messages": ("/v1/chat/completions", {"messages": [USER] * MANY}, 400, "100000 messages"),
    "blocks": ("/v1/messages", {"messages": [USER] * MANY, "max_tokens": 1}, 400, "the context holds"),
    "texts": ("/tokenize", {"text": [""] * MANY}, 400, "100000 texts"),
    "ids": ("/detokenize", {"tokens": [1] * 2_000_000}, 400, "2000000 token ids"),
    "text": (
        "/parse_function_call",
        {"text": "a" * 2_000_000, "tool_call_parser": "hermes"},
        400,
        "2000000 characters",
    ),
    "rid": ("/generate", {"text": "a", "rid": "a" * 2_000_000}, 400, "2000000 characters"),
    "field": ("/generate", {"text": "a", "b" * 2_000_000: 1}, 400, "is not a known field"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_too_much_is_refused_soon(watch: ServerWatch, case: str) -> None:
    path, body, status, words = CASES[case]
    begin = time.monotonic()
    reply = asyncio.run(exchange(watch.server.port, request_bytes(path, body), limit_s=60))
    assert time.monotonic() - begin < LIMIT_S
    assert reply is not None
    message = reply.content["error"]["message"]
    assert (reply.status, words in message) == (status, True), message
    assert len(message) < 1000


def test_others_are_answered_while_a_long_text_is_parsed(watch: ServerWatch) -> None:
    body = {"text": "<tool_call>" * 80_000, "tool_call_parser": "hermes"}

    async def run() -> int:
        parsing = asyncio.create_task(
            exchange(watch.server.port, request_bytes("/parse_function_call", body), limit_s=120)
        )
        num_answered = 0
        while not parsing.done():
            reply = await exchange(watch.server.port, HEALTH)
            assert reply is not None
            assert reply.status == 200
            num_answered += 1
        reply = parsing.result()
        assert reply is not None
        assert json.loads(reply.body)["calls"] == []
        return num_answered

    assert asyncio.run(run()) > 10


def test_as_many_prompts_as_are_taken_are_answered(watch: ServerWatch) -> None:
    body = {"text": ["a"] * 2000, "sampling_params": {"max_new_tokens": 1}}
    reply = asyncio.run(exchange(watch.server.port, request_bytes("/generate", body), limit_s=60))
    assert reply is not None
    assert len(reply.content) == 2000
    watch.assert_whole()

"""Clients that leave, abort, send nonsense and come in crowds: the server serves on and loses nothing."""

import asyncio
import json
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import psutil
import pytest
import requests

from fakes.server_process import REAL, ServerProcess

pytestmark = pytest.mark.model

CONTEXT = 192
TOTAL = 2048


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ["--max-total-tokens", str(TOTAL), "--context-length", str(CONTEXT), "--max-running-requests", "24"]
    server = ServerProcess(*flags, model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        yield server
        assert "Traceback" not in server.log, server.log
        assert " ERROR " not in server.log, server.log
    finally:
        server.close()


def state_of(server: ServerProcess) -> dict[str, Any]:
    info = requests.get(server.url + "/get_server_info", timeout=60).json()
    state: dict[str, Any] = info["internal_states"][0]
    return state


def assert_idle_and_whole(server: ServerProcess) -> None:
    """Wait until nothing runs; then every slot is free or cached, and after a flush free."""
    deadline = time.monotonic() + 30
    while (state := state_of(server))["num_running"] or state["num_waiting"]:
        assert time.monotonic() < deadline, state
        threading.Event().wait(0.02)
    assert state["free_slots"] + state["cached_slots"] == state["total_slots"] == TOTAL
    assert requests.post(server.url + "/flush_cache", timeout=60).json()["success"]
    assert state_of(server)["free_slots"] == TOTAL
    assert requests.get(server.url + "/health", timeout=60).status_code == 200


async def events(client: httpx.AsyncClient, payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("POST", "/generate", json={**payload, "stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                return
            if line:
                reply = json.loads(line.removeprefix("data: "))
                assert "error" not in reply, reply
                yield reply


async def read_stream(client: httpx.AsyncClient, payload: dict[str, Any]) -> dict[str, Any]:
    """The last reply of a stream whose texts and ids only ever grew."""
    text, ids, reply = "", [], None
    async for reply in events(client, payload):
        assert reply["text"].startswith(text)
        assert reply["output_ids"][: len(ids)] == ids
        text, ids = reply["text"], reply["output_ids"]
    assert reply is not None
    assert reply["meta_info"]["finish_reason"] is not None
    return reply


async def leave_early(client: httpx.AsyncClient, rng: random.Random) -> None:
    payload = {"text": "Tell me a long story.", "sampling_params": {"ignore_eos": True}}
    num_events = rng.randrange(8)
    async for reply in events(client, payload):
        if len(reply["output_ids"]) > num_events:
            break


async def leave_before_the_answer(client: httpx.AsyncClient, rng: random.Random) -> None:
    payload = {"text": ["Once", "Twice"], "sampling_params": {"ignore_eos": True}}
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/generate", json=payload, timeout=httpx.Timeout(60, read=rng.uniform(0.01, 0.1)))


async def abort(client: httpx.AsyncClient, rng: random.Random) -> None:
    rid = f"abort-{rng.random()}"
    payload = {"text": "Count to a thousand: 1, 2,", "rid": rid, "sampling_params": {"ignore_eos": True}}
    replies: list[dict[str, Any]] = []
    async for reply in events(client, payload):
        if not replies:
            answer = await client.post("/abort_request", json={"rid": rid})
            assert answer.json() == {"aborted": [rid]}
        replies.append(reply)
    assert replies[-1]["meta_info"]["finish_reason"]["type"] == "abort"


async def stop_across_tokens(client: httpx.AsyncClient, rng: random.Random) -> None:
    stops = ["e" + rng.choice("abcdefst "), rng.choice("aeiou") + "n t", ". The", "th"]
    params = {"stop": stops, "sampling_seed": rng.randrange(1000), "max_new_tokens": 32}
    reply = await read_stream(client, {"text": "The history of the region begins", "sampling_params": params})
    assert not any(stop in reply["text"] for stop in stops)
    assert reply["meta_info"]["finish_reason"].get("matched") in [*stops, 0, 2, None]


async def noise(client: httpx.AsyncClient, rng: random.Random) -> None:
    params = {"temperature": 8.0, "max_new_tokens": 24, "sampling_seed": rng.randrange(1000)}
    reply = await read_stream(client, {"text": "日本語 👩‍👩‍👧 ру́сский", "sampling_params": params})
    assert reply["meta_info"]["completion_tokens"] <= 24


async def run_to_the_limit(client: httpx.AsyncClient, rng: random.Random) -> None:
    payload = {"text": "word " * rng.randrange(150, 185), "sampling_params": {"ignore_eos": True}}
    meta = (await read_stream(client, payload))["meta_info"]
    assert meta["finish_reason"]["type"] == "length"
    assert meta["prompt_tokens"] + meta["completion_tokens"] == CONTEXT


async def score_only(client: httpx.AsyncClient, rng: random.Random) -> None:
    payload = {
        "text": "A short sentence.",
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    reply = await read_stream(client, payload)
    assert reply["output_ids"] == []
    assert len(reply["meta_info"]["input_token_logprobs"]) == reply["meta_info"]["prompt_tokens"]


async def constrained(client: httpx.AsyncClient, rng: random.Random) -> None:
    params = [
        {"regex": "[a-z]{3}-[0-9]{2}", "max_new_tokens": 20},
        {"choices": ["yes", "no", "perhaps"]},
        {"json_schema": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, "max_new_tokens": 20},
    ]
    response = await client.post("/generate", json={"text": ["a", "b", "c"], "sampling_params": params})
    assert response.status_code == 200, response.text
    first, second, third = (reply["text"] for reply in response.json())
    assert len(first) == 6
    assert second in ("yes", "no", "perhaps")
    assert isinstance(json.loads(third), list)


BEHAVIOURS = [
    leave_early,
    leave_before_the_answer,
    abort,
    stop_across_tokens,
    noise,
    run_to_the_limit,
    score_only,
    constrained,
]


@pytest.mark.slow
def test_fifty_clients_of_all_kinds_at_once(server: ServerProcess) -> None:
    async def crowd() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
            rngs = [random.Random(seed) for seed in range(50)]
            await asyncio.gather(*(BEHAVIOURS[index % len(BEHAVIOURS)](client, rng) for index, rng in enumerate(rngs)))

    asyncio.run(crowd())
    assert_idle_and_whole(server)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'"text"',
        b'{"text": "\xff\xfe"}',
        b"\x00\x01\x02",
        b"[" * 100_000,
        b'{"text": "a", "sampling_params": ' + b'{"json_schema": {"a": ' * 2000 + b"1" + b"}}" * 2000 + b"}",
        b'{"text": "a", "sampling_params": {"temperature": NaN}}',
        b'{"text": "a", "sampling_params": {"temperature": 1e999}}',
        b'{"text": "a", "sampling_params": {"max_new_tokens": ' + b"9" * 5000 + b"}}",
        b'{"text": "a", "sampling_params": {"stop": [""]}}',
        b'{"text": "a", "sampling_params": [{}, {}]}',
        b'{"text": "\\ud800"}',
        b'{"input_ids": [1, 999999999]}',
        b'{"input_ids": [-1]}',
        b'{"input_ids": [1.5]}',
        b'{"input_ids": [[]]}',
        b'{"text": ["a", ""]}',
        b'{"text": []}',
        b'{"text": "a", "rid": 7}',
        b'{"text": ["a", "b"], "rid": ["x", "x"]}',
        b'{"text": "a", "n": 2}',
        b'{"text": "a", "logprob_start_len": -2}',
        b'{"text": "a", "return_logprob": true, "logprob_start_len": 99}',
        b'{"text": "a", "sampling_params": {"stop_regex": "[ab]*a[ab]{30}"}}',
        b'{"text": "a", "sampling_params": {"stop_regex": "' + b"(" * 9000 + b'"}}',
        b'{"text": "a", "sampling_params": {"n": 1000000}}',
        b'{"text": "a", "return_logprob": false, "token_ids_logprob": [' + b"1, " * 900 + b"1]}",
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_a_senseless_body_is_refused_with_one_sentence(server: ServerProcess, body: bytes) -> None:
    response = requests.post(server.url + "/generate", data=body, timeout=60)
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert message
    assert "\n" not in message
    assert len(message) < 500


def test_a_huge_prompt_is_refused_with_both_numbers(server: ServerProcess) -> None:
    response = requests.post(server.url + "/generate", json={"text": "word " * 400_000}, timeout=120)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "the prompt has 400001 tokens; the context holds 192" in error["message"]


def test_an_unknown_field_is_named(server: ServerProcess) -> None:
    for payload, name in (
        ({"text": "a", "max_tokens": 1}, "max_tokens"),
        ({"text": "a", "sampling_params": {"top_q": 1}}, "sampling_params.top_q"),
    ):
        response = requests.post(server.url + "/generate", json=payload, timeout=60)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == name
        assert name in response.json()["error"]["message"]


def test_a_rid_in_flight_is_refused_and_free_again_afterwards(server: ServerProcess) -> None:
    payload = {"text": "Go on:", "rid": "mine", "sampling_params": {"max_new_tokens": 2}}
    # While nothing runs, the first one stays in flight for as long as the test needs.
    requests.post(server.url + "/pause_generation", json={"mode": "in_place"}, timeout=60).raise_for_status()
    try:
        statuses: list[int] = []
        first = threading.Thread(
            target=lambda: statuses.append(
                requests.post(server.url + "/generate", json=payload, timeout=60).status_code
            )
        )
        first.start()
        while (state := state_of(server))["num_running"] + state["num_waiting"] < 1:
            pass
        second = requests.post(server.url + "/generate", json=payload, timeout=60)
        assert second.status_code == 400
        assert "'mine' belongs to a request that still runs" in second.json()["error"]["message"]
    finally:
        requests.post(server.url + "/continue_generation", json={}, timeout=60).raise_for_status()
    first.join()
    assert statuses == [200]
    assert_idle_and_whole(server)
    assert requests.post(server.url + "/generate", json=payload, timeout=60).status_code == 200


def test_abort_all_ends_everybody(server: ServerProcess) -> None:
    replies: list[requests.Response] = []

    def ask(number: int) -> None:
        payload = {"text": f"Number {number}", "sampling_params": {"ignore_eos": True}}
        replies.append(requests.post(server.url + "/generate", json=payload, timeout=120))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    while (state := state_of(server))["num_running"] + state["num_waiting"] < 30:
        threading.Event().wait(0.01)
    aborted = requests.post(server.url + "/abort_request", json={"abort_all": True}, timeout=60).json()["aborted"]
    for thread in threads:
        thread.join(60)
    assert len(aborted) == 30
    assert {reply.json()["meta_info"]["finish_reason"]["type"] for reply in replies} == {"abort"}
    assert_idle_and_whole(server)


@pytest.mark.slow
def test_sigterm_under_load_ends_everybody_and_leaves_nothing(tmp_path: Any) -> None:
    server = ServerProcess("--max-total-tokens", str(TOTAL), "--shutdown-timeout", "2", model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        children = list(server.children().values())
        outcomes: list[str] = []

        def ask(number: int) -> None:
            payload = {"text": f"Number {number}", "stream": number % 2 == 0, "sampling_params": {"ignore_eos": True}}
            try:
                with requests.post(server.url + "/generate", json=payload, stream=True, timeout=60) as response:
                    outcomes.append(f"{response.status_code} {response.content[-200:].decode(errors='replace')}")
            except requests.RequestException as error:
                outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        while (state := state_of(server))["num_running"] + state["num_waiting"] < 20:
            threading.Event().wait(0.01)
        server.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert server.wait_ended() == 0, server.log
        assert time.monotonic() - begin < 15
        for thread in threads:
            thread.join(60)
        assert len(outcomes) == 20
        assert all("shutting down" in outcome for outcome in outcomes), outcomes
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive
        assert "Traceback" not in server.log, server.log
    finally:
        server.close()

"""What the clients of `soak.py` send: one function for each kind of request."""

import asyncio
import enum
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

_SENTENCE = "the of and to in that it with as for was on are by be this from at have or an they which one you were"
WORDS = _SENTENCE.split()
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    },
}


class Outcome(enum.Enum):
    """How a request went."""

    OK = "ok"
    REFUSED = "refused"
    BUSY = "busy"
    LEFT = "left"
    WRONG = "wrong"


class UnexpectedReplyError(Exception):
    """The server answered with what it should not."""


class SoakClient:
    """Sends one request after another.

    Args:
        http: The connection.
        rng: Decides what is sent.
        leave: Share of the requests whose client hangs up.
    """

    def __init__(self, http: httpx.AsyncClient, rng: random.Random, *, leave: float) -> None:
        self.http = http
        self.rng = rng
        self._leave = leave
        self._is_leaving = False
        self._number = 0

    async def once(self, kind: str) -> tuple[Outcome, str]:
        """Send a request of a kind; how it went, and what was wrong."""
        send = next(each.send for each in KINDS if each.name == kind)
        self._is_leaving = self.rng.random() < self._leave
        # Some hang up before their request has been read, most while it runs.
        limit_s = self.rng.choice([0.0, 0.01, 0.1, 0.5, 1.5]) * self.rng.random() if self._is_leaving else 110.0
        try:
            async with asyncio.timeout(limit_s):
                return await send(self), ""
        except TimeoutError:
            return (Outcome.LEFT, "") if self._is_leaving else (Outcome.WRONG, f"no reply within {limit_s:.0f} s")
        except (UnexpectedReplyError, httpx.TransportError, KeyError, ValueError) as error:
            return Outcome.WRONG, repr(error)

    def text(self, most: int = 60) -> str:
        """Some words; many prompts begin alike."""
        front = "You are a helpful assistant. Answer in short sentences. " * self.rng.randrange(3)
        return front + " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def rid(self) -> str:
        self._number += 1
        return f"soak-{self.rng.getrandbits(64):x}-{self._number}"

    async def post(self, path: str, body: dict[str, Any], *, expected: int = 200) -> httpx.Response:
        response = await self.http.post(path, json=body)
        if response.status_code != expected and response.status_code != 503:
            raise UnexpectedReplyError(f"{path} {json.dumps(body)[:300]}: {response.status_code} {response.text[:300]}")
        return response

    async def run(self, path: str, body: dict[str, Any], *, pause_s: float = 0.0) -> Outcome:
        """Send a request as a stream or not; a stream may be read slowly."""
        if not (pause_s or self.rng.random() < 0.5):
            return Outcome.BUSY if (await self.post(path, body)).status_code == 503 else Outcome.OK
        async with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            if response.status_code == 503:
                return Outcome.BUSY
            if response.status_code != 200:
                text = (await response.aread()).decode()[:300]
                raise UnexpectedReplyError(f"{path} {json.dumps(body)[:300]}: {response.status_code} {text}")
            async for line in response.aiter_lines():
                if line.startswith("data: {") and '"error":{' in line:
                    raise UnexpectedReplyError(f"{path}: {line[:300]}")
                if pause_s:
                    await asyncio.sleep(pause_s)
        return Outcome.OK


async def generate(client: SoakClient) -> Outcome:
    rng = client.rng
    params = {
        "max_new_tokens": rng.randint(0, 40),
        "temperature": rng.choice([0.0, 0.7, 1.0, 2.0]),
        "n": rng.choice([1, 1, 1, 2, 4]),
        "top_p": rng.choice([1.0, 0.9]),
        "top_k": rng.choice([-1, 40]),
        "stop": rng.choice([[], ["the", "\n\n"], [". "]]),
        "stop_regex": rng.choice([[], [r"\d+"]]),
        "frequency_penalty": rng.choice([0.0, 0.5]),
        "repetition_penalty": rng.choice([1.0, 1.1]),
    }
    body: dict[str, Any] = {"sampling_params": params, "priority": rng.choice([0, 0, 1])}
    match rng.randrange(4):
        case 0:
            body["input_ids"] = [rng.randrange(1000, 40_000) for _ in range(rng.randint(1, 400))]
        case 1:
            body["text"] = [client.text() for _ in range(rng.randint(1, 4))]
        case _:
            body["text"] = client.text(200)
    if rng.random() < 0.3:
        body |= {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": rng.choice([-1, 0])}
    return await client.run("/generate", body)


async def completions(client: SoakClient) -> Outcome:
    rng = client.rng
    body: dict[str, Any] = {"prompt": client.text(), "max_tokens": rng.randint(1, 24), "n": rng.choice([1, 2])}
    if rng.random() < 0.3:
        body |= {"echo": True, "logprobs": 1}
    return await client.run("/v1/completions", body)


async def chat(client: SoakClient) -> Outcome:
    messages = [{"role": "user", "content": client.text()}]
    body = {"messages": messages, "max_tokens": client.rng.randint(1, 32), "n": client.rng.choice([1, 1, 2])}
    return await client.run("/v1/chat/completions", {**body, "logprobs": client.rng.random() < 0.2})


async def schema(client: SoakClient) -> Outcome:
    names = client.rng.sample(WORDS, 3)
    properties = {name: {"type": client.rng.choice(["integer", "boolean"])} for name in names}
    wanted = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": wanted}}
    messages = [{"role": "user", "content": client.text(20)}]
    return await client.run("/v1/chat/completions", {"messages": messages, "max_tokens": 60, "response_format": form})


async def regex(client: SoakClient) -> Outcome:
    pattern = f"[a-z]{{{client.rng.randint(1, 9)}}}-[0-9]{{{client.rng.randint(1, 5)}}}(x|yz)+"
    params = {"regex": pattern, "max_new_tokens": 30}
    return await client.run("/generate", {"text": client.text(10), "sampling_params": params})


async def tools(client: SoakClient) -> Outcome:
    messages = [{"role": "user", "content": "What is the weather in " + client.text(3)}]
    choice = client.rng.choice(["auto", "required", "none"])
    body = {"messages": messages, "tools": [TOOL], "tool_choice": choice, "max_tokens": 48}
    return await client.run("/v1/chat/completions", body)


async def responses(client: SoakClient) -> Outcome:
    store = client.rng.random() < 0.3
    return await client.run("/v1/responses", {"input": client.text(), "max_output_tokens": 16, "store": store})


async def messages(client: SoakClient) -> Outcome:
    body = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": client.text()}]}
    return await client.run("/v1/messages", body)


async def session(client: SoakClient) -> Outcome:
    """A few turns; who leaves inside of one leaves the session to its timeout."""
    opened = await client.post("/open_session", {"capacity_of_str_len": 20_000, "timeout": 20})
    if opened.status_code == 503:
        return Outcome.BUSY
    name = opened.json()
    for _ in range(client.rng.randint(1, 4)):
        body = {"text": client.text(20), "session_params": {"id": name}, "sampling_params": {"max_new_tokens": 8}}
        outcome = await client.run("/generate", body)
        if outcome is not Outcome.OK:
            break
    await client.post("/close_session", {"session_id": name})
    return Outcome.OK


async def abort(client: SoakClient) -> Outcome:
    rid = client.rid()
    params = {"max_new_tokens": 200, "ignore_eos": True, "n": client.rng.choice([1, 3])}
    running = asyncio.create_task(
        client.post("/generate", {"text": client.text(), "rid": rid, "sampling_params": params})
    )
    try:
        await asyncio.sleep(client.rng.random())
        await client.post("/abort_request", {"rid": rid})
        return Outcome.BUSY if (await running).status_code == 503 else Outcome.OK
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def wrong(client: SoakClient) -> Outcome:
    path, body = client.rng.choice(
        [
            ("/generate", {"text": "a", "sampling_params": {"top_p": 2}}),
            ("/generate", {"text": "a", "sampling_params": {"regex": "(" + client.text(3)}}),
            ("/generate", {"text": "word " * 2000}),
            ("/v1/embeddings", {"input": client.text()}),
            ("/v1/rerank", {"query": "a", "documents": ["b"]}),
            ("/v1/chat/completions", {"messages": []}),
            ("/v1/messages", {"messages": [{"role": "user", "content": 5}], "max_tokens": 1}),
            ("/v1/responses", {"input": []}),
        ]
    )
    await client.post(path, body, expected=400)
    return Outcome.REFUSED


async def slow(client: SoakClient) -> Outcome:
    params = {"max_new_tokens": 30, "ignore_eos": True, "n": 2}
    return await client.run("/generate", {"text": client.text(), "sampling_params": params}, pause_s=0.1)


async def control(client: SoakClient) -> Outcome:
    path = client.rng.choice(
        ["/get_server_info", "/metrics", "/health_generate", "/v1/models", "/get_load", "/live_stats"]
    )
    answer = await client.http.get(path)
    if answer.status_code not in (200, 503):
        raise UnexpectedReplyError(f"{path}: {answer.status_code}")
    await client.post("/tokenize", {"text": client.text()})
    if client.rng.random() < 0.1:
        await client.post("/flush_cache", {"timeout": 0.1})
    return Outcome.OK


@dataclass(frozen=True)
class Kind:
    """A kind of request, and how often it comes."""

    name: str
    weight: int
    send: Callable[[SoakClient], Awaitable[Outcome]]


KINDS = [
    Kind("generate", 20, generate),
    Kind("completions", 10, completions),
    Kind("chat", 12, chat),
    Kind("schema", 8, schema),
    Kind("regex", 8, regex),
    Kind("tools", 6, tools),
    Kind("responses", 6, responses),
    Kind("messages", 6, messages),
    Kind("session", 6, session),
    Kind("abort", 6, abort),
    Kind("wrong", 8, wrong),
    Kind("slow", 4, slow),
    Kind("control", 6, control),
]

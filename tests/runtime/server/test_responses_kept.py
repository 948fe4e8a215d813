"""Responses that are kept, gone on from, made in the background, and cut to fit; and clients that go away."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.chat_server import ChatServer, prompt_text
from sgl_runtime.errors import OverloadedError
from sgl_runtime.server.chat.chat_service import ChatService
from sgl_runtime.server.response_store import ResponseStore, StoredResponse
from sgl_runtime.server.responses_api import ResponsesApi

CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
TOOLS: list[dict[str, Any]] = [{"type": "function", "name": "now", "parameters": {"type": "object"}}]
# A prompt with this word never ends; it stays after the first tokens.
ENDLESS = "FOREVER"


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(reasoning_parser="qwen3", tool_call_parser="hermes") as server:
        server.scheduler.hold_after = 3
        yield server


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    server.say("ok")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def contents(server: ChatServer) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in server.template.rendered[-1][0]]


def eventually(found: Callable[[], Any]) -> Any:
    """What a look finds, as soon as it finds something; each look is a round trip to the server."""
    for _ in range(2000):
        if result := found():
            return result
    raise AssertionError("it never came")


def test_a_conversation_goes_on_from_a_response(server: ChatServer, client: Any) -> None:
    server.say("<think>hm</think>" + CALL)
    first = client.responses.create(model="x", input="what time?", instructions="be kind", tools=TOOLS)
    call = first.output[1]
    server.say("noon")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "12:00"}
    second = client.responses.create(model="x", input=[output], previous_response_id=first.id, tools=TOOLS)
    assert second.previous_response_id == first.id
    messages = server.template.rendered[-1][0]
    assert contents(server) == [("user", "what time?"), ("assistant", ""), ("tool", "12:00")]
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == call.call_id
    client.responses.create(model="x", input="sure?", previous_response_id=second.id, instructions="be brief")
    assert contents(server)[0] == ("system", "be brief")
    assert contents(server)[-2:] == [("assistant", "noon"), ("user", "sure?")]
    # The same by sending back what came.
    history = [{"role": "user", "content": "what time?"}, *first.output, output]
    client.responses.create(model="x", input=history, tools=TOOLS)
    assert server.template.rendered[-1][0] == messages


def test_kept_responses_are_found_and_forgotten(server: ChatServer, client: Any) -> None:
    made = client.responses.create(model="x", input="hi")
    assert client.responses.retrieve(made.id) == made
    streamed = list(client.responses.create(model="x", input="hi", stream=True))[-1].response
    assert client.responses.retrieve(streamed.id).to_dict() == streamed.to_dict()
    client.responses.delete(made.id)
    for act in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError, match="is not kept"):
            act(made.id)
    with pytest.raises(openai.BadRequestError, match="which is not kept") as caught:
        client.responses.create(model="x", input="hi", previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"
    unkept = client.responses.create(model="x", input="hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)
    with pytest.raises(openai.BadRequestError, match="only responses that were created with background"):
        client.responses.cancel(streamed.id)


def test_input_items_come_in_pages(server: ChatServer, client: Any) -> None:
    first = client.responses.create(model="x", input=[{"role": "user", "content": str(n)} for n in range(4)])
    second = client.responses.create(model="x", input="last", previous_response_id=first.id)

    def texts(page: Any) -> list[str]:
        return [item.content[0].text for item in page]

    assert texts(client.responses.input_items.list(second.id, order="asc")) == ["0", "1", "2", "3", "ok", "last"]
    page = client.responses.input_items.list(second.id, limit=2)
    assert (texts(page.data), page.has_more) == (["last", "ok"], True)
    assert texts(page) == ["last", "ok", "3", "2", "1", "0"], "the client turns the pages"
    for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after")):
        reply = requests.get(f"{server.url}/v1/responses/{second.id}/input_items?{query}", timeout=20)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_background_responses_are_polled(server: ChatServer, client: Any) -> None:
    begun = client.responses.create(model="x", input="hi", background=True)
    assert (begun.status, begun.output, begun.usage) == ("queued", [], None)
    done = eventually(lambda: (r := client.responses.retrieve(begun.id)).status == "completed" and r)
    assert done.output_text == "ok"
    assert client.responses.cancel(begun.id).status == "completed"


def test_background_responses_are_cancelled(server: ChatServer, client: Any) -> None:
    begun = client.responses.create(model="x", input=ENDLESS, background=True)
    partial = eventually(lambda: (r := client.responses.retrieve(begun.id)).output_text == "xxx" and r)
    assert partial.status == "in_progress"
    with pytest.raises(openai.BadRequestError, match="which is not finished"):
        client.responses.create(model="x", input="hi", previous_response_id=begun.id)
    assert len(client.responses.input_items.list(begun.id).data) == 1
    cancelled = client.responses.cancel(begun.id)
    assert (cancelled.status, cancelled.output_text, cancelled.output[0].status) == ("cancelled", "xxx", "incomplete")
    assert client.responses.retrieve(begun.id).status == "cancelled"
    assert server.manager.num_live == 0
    at_once = client.responses.create(model="x", input=ENDLESS, background=True)
    client.responses.delete(at_once.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(at_once.id)
    assert server.manager.num_live == 0


def test_background_streams_are_left_and_taken_up_again(server: ChatServer, client: Any) -> None:
    seen = []
    with client.responses.create(model="x", input=ENDLESS, background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    response_id, last = seen[0].response.id, seen[-1].sequence_number
    assert client.responses.retrieve(response_id).status == "in_progress"
    with client.responses.stream(response_id=response_id, starting_after=last - 1) as again:
        assert next(iter(again)).to_dict()["sequence_number"] == last
    client.responses.cancel(response_id)
    done = client.responses.create(model="x", input="hi", background=True, stream=True)
    events = [event.to_dict() for event in done]
    kept = client.responses.retrieve(events[0]["response"]["id"], stream=True, starting_after=3)
    assert [event.to_dict() for event in kept] == events[4:]
    plain = client.responses.create(model="x", input="hi", background=True)
    with pytest.raises(openai.BadRequestError, match="can be followed"):
        list(client.responses.retrieve(plain.id, stream=True))


def test_a_failed_background_response_says_why(server: ChatServer, client: Any) -> None:
    begun = client.responses.create(model="x", input="hi", background=True, extra_body={"regex": "("})
    failed = eventually(lambda: (r := client.responses.retrieve(begun.id)).status == "failed" and r)
    assert (failed.error.code, failed.error.message) == ("invalid_prompt", "regex: unclosed group at 0")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_response(server: ChatServer, stream: bool) -> None:
    body = {"model": "x", "input": ENDLESS, "stream": stream}
    with pytest.raises((requests.Timeout, requests.ConnectionError)):
        requests.post(f"{server.url}/v1/responses", json=body, timeout=0.2)
    eventually(lambda: requests.get(f"{server.url}/health", timeout=20).ok and not server.scheduler.running)
    assert server.manager.num_live == 0


def test_truncation_leaves_out_the_oldest_turns(server: ChatServer, client: Any) -> None:
    turns = [
        message
        for number in range(40)
        for message in (
            {"role": "user", "content": f"question {number} " + "x" * 200},
            {"role": "assistant", "content": f"answer {number} " + "y" * 200},
        )
    ]
    body = {"model": "x", "instructions": "be kind", "input": [*turns, {"role": "user", "content": "last"}]}
    with pytest.raises(openai.BadRequestError, match="the context holds 8000"):
        client.responses.create(**body)
    response = client.responses.create(**body, truncation="auto", max_output_tokens=1000)
    assert response.truncation == "auto"
    prompt = prompt_text(server.scheduler.requests[-1])
    assert prompt.startswith("<turn>system\nbe kind")
    assert "last" in prompt
    assert "question 39" in prompt
    assert "question 0" not in prompt
    assert prompt.count("question") == prompt.count("answer"), "what is left begins with a question"
    assert 6500 < response.usage.input_tokens <= 7000
    with pytest.raises(openai.BadRequestError, match="the context holds 8000"):
        client.responses.create(model="x", input="z" * 9000, truncation="auto")


def stored(name: str, size: int, events: int = 0) -> StoredResponse:
    return StoredResponse(response={"id": name, "x": "y" * size}, items=[], events=[b"e"] * events)


def test_the_store_keeps_what_was_used_last() -> None:
    store = ResponseStore(max_responses=3, max_bytes=10_000)
    for name in "abc":
        store.put(stored(name, 10))
    assert store.get("a") is not None
    store.put(stored("d", 10))
    assert [name for name in "abcd" if store.get(name)] == ["a", "c", "d"]
    store.put(stored("e", 9_960))
    store.check()
    assert [name for name in "acde" if store.get(name)] == ["e"]
    store.put(stored("f", 10, events=10_000))
    assert store.get("f") is None
    assert len(store) == 1
    assert store.remove("e")
    assert not store.remove("e")
    store.check()


def test_too_many_in_the_background_are_refused(server: ChatServer) -> None:
    async def run() -> None:
        api = ResponsesApi(server.manager, ChatService(server.manager), max_background=1)
        body = {"input": ENDLESS, "background": True}
        begun = await api.reply(await api.prepare(body))
        with pytest.raises(OverloadedError, match="1 responses are made in the background"):
            await api.prepare(body)
        await api.delete(begun["id"])
        await api.prepare(body)

    asyncio.run_coroutine_threadsafe(run(), server.loop).result(20)


def test_streams_in_the_background_have_a_limit(server: ChatServer) -> None:
    async def run() -> tuple[str, str]:
        api = ResponsesApi(server.manager, ChatService(server.manager), max_stream_bytes=100)
        prepared = await api.prepare({"input": ENDLESS, "background": True, "stream": True})
        events = [data async for data in api.stream(prepared)]
        response = api.retrieve(prepared.writer.response_id)
        return events[-1].partition(b"\n")[0].decode(), response["error"]["message"]

    last, message = asyncio.run_coroutine_threadsafe(run(), server.loop).result(20)
    assert last == "event: response.failed"
    assert message.startswith("the streams of responses in the background take")
    assert server.manager.num_live == 0


def test_loops_stay_clean(server: ChatServer) -> None:
    """Nothing that the tests above began still runs."""

    async def names() -> list[str]:
        return [str(task.get_coro()) for task in asyncio.all_tasks()]

    running = asyncio.run_coroutine_threadsafe(names(), server.loop).result(20)
    assert not [name for name in running if "ResponsesApi" in name]

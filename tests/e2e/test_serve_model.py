"""The whole server on the small real model, used as a client uses it."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.server_process import REAL, ServerProcess

pytestmark = pytest.mark.model

FRANCE = [{"role": "user", "content": "Name the capital of France."}]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess("--max-total-tokens", "4096", model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        yield server
    finally:
        server.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def generate(server: ServerProcess, **payload: Any) -> Any:
    response = requests.post(server.url + "/generate", json=payload, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def test_openai_client_completes_and_streams_the_same_text(client: Any) -> None:
    options = {"model": "smollm2", "messages": FRANCE, "temperature": 0, "max_tokens": 16}
    whole = client.chat.completions.create(**options)
    assert "Paris" in whole.choices[0].message.content
    chunks = client.chat.completions.create(**options, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == whole.choices[0].message.content
    again = client.chat.completions.create(**options)
    assert again.usage.prompt_tokens_details.cached_tokens > 20


def test_response_format_gives_valid_json(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "married": {"type": "boolean"}},
        "required": ["name", "married"],
    }
    reply = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "Invent a person."}],
        temperature=0,
        max_tokens=80,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema}},
    )
    assert set(json.loads(reply.choices[0].message.content)) == {"name", "married"}


def test_ids_go_on_where_text_went_on(server: ServerProcess) -> None:
    greedy = {"temperature": 0, "max_new_tokens": 6}
    first = generate(server, text="The capital of France is", sampling_params=greedy, return_text_ids=True)
    assert first["text"].startswith(" Paris")
    ids = first["text_ids"] + first["text_output_ids"]
    second = generate(server, input_ids=ids, sampling_params=greedy)
    longer = generate(server, text="The capital of France is", sampling_params={**greedy, "max_new_tokens": 12})
    assert first["text"] + second["text"] == longer["text"]
    assert second["meta_info"]["cached_tokens"] > 0


def test_bad_requests_leave_the_server_serving(server: ServerProcess) -> None:
    for payload, code in (
        ({"text": "a", "sampling_params": {"regex": "(a"}}, "bad_grammar"),
        ({"text": "a", "sampling_params": {"json_schema": {"type": "strange"}}}, "bad_grammar"),
        ({"text": "word " * 9000}, "context_length_exceeded"),
        ({"text": ""}, "invalid_request"),
        ({"text": "a", "max_tokens": 1}, "invalid_request"),
    ):
        response = requests.post(server.url + "/generate", json=payload, timeout=60)
        assert (response.status_code, response.json()["error"]["code"]) == (400, code)
    assert generate(server, text="Hi", sampling_params={"max_new_tokens": 1})["output_ids"]
    state = requests.get(server.url + "/get_server_info", timeout=60).json()["internal_states"][0]
    assert state["num_running"] == state["num_waiting"] == 0
    assert state["free_slots"] + state["cached_slots"] == state["total_slots"]
    assert "idle check failed" not in server.log


def test_prompt_scores_agree_with_the_scores_given_while_generating(server: ServerProcess) -> None:
    reply = generate(
        server,
        text="One two three four",
        sampling_params={"temperature": 0, "max_new_tokens": 4},
        return_logprob=True,
        return_text_ids=True,
    )
    start = len(reply["text_ids"])
    scored = generate(
        server,
        input_ids=reply["text_ids"] + reply["output_ids"],
        sampling_params={"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=start,
    )
    given = [entry[0] for entry in reply["meta_info"]["output_token_logprobs"]]
    assert [entry[0] for entry in scored["meta_info"]["input_token_logprobs"]] == pytest.approx(given, abs=1e-3)


def test_outputs_stops_and_likeliest_tokens_cross_the_processes(server: ServerProcess, client: Any) -> None:
    sampling = {
        "n": 2,
        "sampling_seed": 3,
        "max_new_tokens": 40,
        "regex": "[a-z]{5} [0-9]{3} END",
        "stop_regex": "[0-9]+ E",
    }
    replies = generate(server, text="Count:", sampling_params=sampling)
    assert [reply["index"] for reply in replies] == [0, 1]
    for reply in replies:
        reason = reply["meta_info"]["finish_reason"]
        assert len(reply["text"]) == 6
        assert (reason["type"], reason["matched"][3:], reason["regex"]) == ("stop", " E", "[0-9]+ E")
    assert generate(server, text="Count:", sampling_params=sampling)[1]["text"] == replies[1]["text"]
    chat = client.chat.completions.create(
        model="smollm2", messages=FRANCE, max_tokens=2, n=2, logprobs=True, top_logprobs=20, seed=1
    )
    assert chat.usage.prompt_tokens_details.cached_tokens <= chat.usage.prompt_tokens
    for choice in chat.choices:
        for entry in choice.logprobs.content:
            top = [other.logprob for other in entry.top_logprobs]
            assert len(top) == 20
            assert top == sorted(top, reverse=True)
            assert entry.logprob <= top[0] + 1e-6

"""The official `openai` package against the server."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.byte_tokenizer import BOS_ID
from fakes.scripted_server import ScriptedServer

USER = [{"role": "user", "content": "say:hello wörld"}]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_chat(client: Any) -> None:
    reply = client.chat.completions.create(model="scripted", messages=USER, temperature=0)
    assert reply.id.startswith("chatcmpl-")
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == "hello wörld"
    assert reply.choices[0].finish_reason == "stop"
    # <turn>user\n..<end><turn>assistant\n, where the special tokens count one each.
    assert reply.usage.prompt_tokens == len("user\nsay:hello wörld".encode()) + len("assistant\n") + 3
    assert reply.usage.completion_tokens == len("hello wörld".encode()) + 1
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens == 3


def test_chat_stream(client: Any) -> None:
    chunks = list(
        client.chat.completions.create(
            model="scripted", messages=USER, stream=True, stream_options={"include_usage": True}
        )
    )
    *texts, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in texts) == "hello wörld"
    assert texts[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in texts][-1] == "stop"
    assert (last.choices, last.usage.completion_tokens) == ([], 13)
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_logprobs(client: Any) -> None:
    reply = client.chat.completions.create(
        model="scripted", messages=USER, logprobs=True, top_logprobs=20, max_completion_tokens=2
    )
    entries = reply.choices[0].logprobs.content
    assert [(entry.token, entry.logprob, entry.bytes) for entry in entries] == [("h", -0.5, [104]), ("e", -0.5, [101])]
    top = [(other.token, other.logprob, other.bytes) for other in entries[0].top_logprobs]
    assert top[:2] == [("h", -0.5, [104]), ("i", -1.5, [105])]
    assert len(top) == 20
    chunks = client.chat.completions.create(
        model="scripted", messages=USER, logprobs=True, top_logprobs=2, max_completion_tokens=2, stream=True
    )
    streamed = [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content]
    assert [[other.token for other in entry.top_logprobs] for entry in streamed] == [["h", "i"], ["e", "f"]]
    assert reply.choices[0].finish_reason == "length"


def test_completion_of_text_ids_and_lists(client: Any) -> None:
    def texts(prompt: Any) -> list[str]:
        reply = client.completions.create(model="scripted", prompt=prompt, max_tokens=50)
        assert [choice.index for choice in reply.choices] == list(range(len(reply.choices)))
        return [choice.text for choice in reply.choices]

    assert texts("say:abc") == ["abc"]
    assert texts([*b"say:abc"]) == ["abc"]
    assert texts(["say:abc", "say:d"]) == ["abc", "d"]
    assert texts([[*b"say:abc"], [*b"say:d"]]) == ["abc", "d"]


def test_completion_defaults_to_sixteen_tokens(client: Any) -> None:
    reply = client.completions.create(model="scripted", prompt="say:" + "a" * 40)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("a" * 16, "length")


def test_completion_logprobs(client: Any) -> None:
    reply = client.completions.create(model="scripted", prompt="say:ab", logprobs=0)
    logprobs = reply.choices[0].logprobs
    assert (logprobs.tokens, logprobs.token_logprobs) == (["a", "b", "</s>"], [-0.5, -0.5, -0.5])
    assert (logprobs.text_offset, logprobs.top_logprobs) == ([0, 1, 2], None)
    reply = client.completions.create(model="scripted", prompt="say:ab", logprobs=2, max_tokens=1)
    assert reply.choices[0].logprobs.top_logprobs == [{"a": -0.5, "b": -1.5}]


def test_echo_puts_the_prompt_in_front(client: Any) -> None:
    options = {"model": "scripted", "prompt": "say:ab", "echo": True}
    assert client.completions.create(**options).choices[0].text == "say:abab"
    reply = client.completions.create(**options, logprobs=1, max_tokens=1)
    shown = reply.choices[0].logprobs
    assert reply.choices[0].text == "say:aba"
    assert shown.tokens == [*"say:aba"]
    # The token that begins every sequence is not in the text, but the first letter is likely or not behind it.
    assert shown.token_logprobs == [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -0.5]
    assert shown.text_offset == [*range(7)]
    assert shown.top_logprobs[1] == {"a": -2.0}
    chunks = list(client.completions.create(**options, logprobs=1, max_tokens=1, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "say:aba"
    assert [token for chunk in chunks for token in chunk.choices[0].logprobs.tokens] == [*"say:aba"]


def test_echo_of_ids_without_output_scores_the_prompt(client: Any) -> None:
    ids = [BOS_ID, *"é!".encode()]
    reply = client.completions.create(model="scripted", prompt=ids, echo=True, logprobs=1, max_tokens=0)
    assert reply.choices[0].text == "<s>é!"
    assert reply.choices[0].logprobs.token_logprobs == [None, -1.0, -2.0, -3.0]
    assert reply.choices[0].logprobs.top_logprobs[0] is None
    assert reply.usage.completion_tokens == 0
    reply = client.completions.create(model="scripted", prompt=["say:a", "say:b"], n=2, echo=True)
    assert [choice.text for choice in reply.choices] == ["say:aa", "say:aa", "say:bb", "say:bb"]


def test_several_choices_have_their_own_seeds_and_one_prompt(client: Any) -> None:
    options = {"model": "scripted", "prompt": ["SEED one", "SEED two"], "n": 3, "seed": 5, "max_tokens": 50}
    reply = client.completions.create(**options)
    texts = [choice.text for choice in reply.choices]
    assert [choice.index for choice in reply.choices] == list(range(6))
    assert texts[0] == "5"
    assert len(set(texts)) == 3
    assert texts[:3] == texts[3:]
    assert reply.usage.prompt_tokens == 2 * len("SEED one") + 2
    assert reply.usage.prompt_tokens_details.cached_tokens == 2 * 3
    assert reply.usage.completion_tokens == sum(len(text) + 1 for text in texts)
    streamed = [""] * 6
    for chunk in client.completions.create(**options, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts
    chat = client.chat.completions.create(model="scripted", messages=USER, n=2)
    assert [(choice.index, choice.message.content) for choice in chat.choices] == [
        (0, "hello wörld"),
        (1, "hello wörld"),
    ]


def test_a_stop_regex_cuts_what_it_matches(client: Any) -> None:
    reply = client.chat.completions.create(model="scripted", messages=USER, extra_body={"stop_regex": "l+o ?w"})
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("he", "stop")


@pytest.mark.parametrize("stop", ["wör", ["zzz", "wör"]])
def test_streamed_completion_equals_the_whole_one(client: Any, stop: Any) -> None:
    options = {"model": "scripted", "prompt": ["say:hello wörld", "say:wöx"], "stop": stop, "max_tokens": 50}
    whole = client.completions.create(**options)
    streamed = ["", ""]
    finished: dict[int, str] = {}
    for chunk in client.completions.create(**options, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
            if choice.finish_reason:
                finished[choice.index] = choice.finish_reason
    assert streamed == [choice.text for choice in whole.choices] == ["hello ", "wöx"]
    assert finished == {0: "stop", 1: "stop"}


def test_extra_fields_reach_the_sampler(client: Any, server: ScriptedServer) -> None:
    schema = {"type": "object", "properties": {}}
    client.chat.completions.create(
        model="scripted",
        messages=USER,
        seed=7,
        top_p=0.5,
        max_tokens=4,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        extra_body={"top_k": 3, "min_p": 0.25},
    )
    sampling = server.scheduler.accepted[-1].sampling
    assert (sampling.sampling_seed, sampling.top_p, sampling.top_k, sampling.min_p) == (7, 0.5, 3, 0.25)
    assert (sampling.max_new_tokens, json.loads(sampling.json_schema)) == (4, schema)
    client.completions.create(model="scripted", prompt="a", extra_body={"regex": "a+"})
    assert server.scheduler.accepted[-1].sampling.regex == "a+"


def test_text_parts_of_a_message_are_joined(client: Any) -> None:
    parts = [{"type": "text", "text": "say:"}, {"type": "text", "text": "ok"}]
    reply = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": parts}])
    assert reply.choices[0].message.content == "ok"


WRONG = [
    ("chat/completions", {"messages": []}, "messages", "non-empty list"),
    ("chat/completions", {"messages": [{"role": "user"}]}, "messages[0].content", "must be a string"),
    ("chat/completions", {"messages": [{"role": "robot", "content": "a"}]}, "messages", "'robot' is not known"),
    ("chat/completions", {"messages": USER, "tempurature": 1}, "tempurature", "not a known field"),
    ("chat/completions", {"messages": USER, "n": 0}, "n", "n is 0; it must be an integer from 1 to 128"),
    ("chat/completions", {"messages": USER, "temperature": -1}, "temperature", "temperature is -1"),
    ("chat/completions", {"messages": USER, "seed": -1}, "seed", "seed is -1"),
    ("chat/completions", {"messages": USER, "max_tokens": "a"}, "max_tokens", "max_tokens is 'a'"),
    ("chat/completions", {"messages": USER, "top_logprobs": 1}, "top_logprobs", "unless logprobs is true"),
    ("chat/completions", {"messages": USER, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "is 21; it must"),
    ("chat/completions", {"messages": USER, "logprobs": 1}, "logprobs", "true or false"),
    ("chat/completions", {"messages": USER, "stream_options": {}}, "stream_options", "when stream is true"),
    ("chat/completions", {"messages": USER, "frequency_penalty": 3.5}, "frequency_penalty", "is 3.5"),
    (
        "chat/completions",
        {"messages": USER, "response_format": {"type": "xml"}},
        "response_format.type",
        '"json_schema"',
    ),
    (
        "chat/completions",
        {"messages": USER, "response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "schema",
    ),
    (
        "chat/completions",
        {"messages": USER, "regex": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        "regex",
        "give one",
    ),
    ("completions", {}, "prompt", "must be a string"),
    ("completions", {"prompt": []}, "prompt", "must be a string"),
    ("completions", {"prompt": [1, "a"]}, "prompt[1]", "prompt[1] is 'a'"),
    ("completions", {"prompt": [999]}, "prompt[0]", "prompt[0] is 999"),
    ("completions", {"prompt": "a" * 300}, "prompt", "has 301 tokens; the context holds 200"),
    ("completions", {"prompt": "a", "logprobs": 21}, "logprobs", "logprobs is 21; it must be an integer from 0 to 20"),
    ("completions", {"prompt": "a", "lora_path": "x"}, "lora_path", "has no adapters"),
    ("completions", {"prompt": "a", "json_schema_lenient": True}, "json_schema_lenient", "is set without json_schema"),
    ("completions", {"prompt": "a", "stop_regex": "("}, "stop_regex", "stop_regex '(': regex:"),
    ("completions", {"prompt": "a", "echo": 1}, "echo", "echo is 1; it must be true or false"),
    ("completions", {"prompt": "a", "regex": "("}, "regex", "unclosed group"),
    ("completions", {"prompt": ["a", "b"], "regex": "("}, "regex", "unclosed group"),
]


@pytest.mark.parametrize(("path", "body", "param", "message"), WRONG)
def test_wrong_field_is_named_as_the_client_wrote_it(
    server: ScriptedServer, path: str, body: Any, param: str, message: str
) -> None:
    for stream in ({}, {"stream": True}):
        if "stream_options" in body and stream:
            continue
        response = requests.post(f"{server.url}/v1/{path}", json={**body, **stream}, timeout=20)
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param)
        assert message in error["message"]
        assert "sampling_params" not in error["message"]


def test_client_raises_its_own_error(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature is 1000"):
        client.chat.completions.create(model="scripted", messages=USER, temperature=1000)
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="a")
    with pytest.raises(openai.BadRequestError, match="makes no vectors"):
        client.embeddings.create(model="scripted", input="a")

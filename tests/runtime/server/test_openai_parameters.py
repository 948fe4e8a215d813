"""Every parameter of OpenAI's chat and completion paths, with the official client where it knows them."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.byte_tokenizer import BOS_ID
from fakes.chat_server import ChatServer, prompt_text

USER = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture(autouse=True)
def plain_answers(server: ChatServer) -> None:
    server.say("a fine answer")


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def post(server: ChatServer, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    reply = requests.post(f"{server.url}/v1/{path}", json=body, timeout=20)
    return reply.status_code, reply.json()


def test_every_chat_parameter_at_once(client: Any, server: ChatServer) -> None:
    reply = client.chat.completions.create(
        model="whatever the client calls it",
        messages=[{"role": "developer", "content": "be kind"}, {"role": "user", "content": "hi", "name": "Ann"}],
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias={"97": 5, "98": -5.5},
        logprobs=True,
        top_logprobs=2,
        max_completion_tokens=9,
        max_tokens=5,
        metadata={"a": "b"},
        modalities=["text"],
        n=2,
        parallel_tool_calls=False,
        prediction={"type": "content", "content": "guess"},
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        reasoning_effort="low",
        response_format={"type": "text"},
        safety_identifier="s",
        seed=3,
        service_tier="auto",
        stop=["zz"],
        store=True,
        temperature=0.5,
        tool_choice="auto",
        top_p=0.5,
        user="u",
        verbosity="low",
        extra_body={
            "top_k": 3,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "min_tokens": 2,
            "stop_token_ids": [5],
            "ignore_eos": False,
            "skip_special_tokens": True,
            "priority": 4,
            "cache_salt": "salt",
            "rid": "mine",
            "documents": [{"text": "d"}],
            "stream_options": None,
        },
    )
    assert (reply.id, len(reply.choices)) == ("chatcmpl-mine", 2)
    assert reply.model == "scripted"
    assert reply.system_fingerprint.startswith("sgl-")
    message = server.scheduler.requests[-2]
    sampling = message.sampling
    assert (sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (9, 0.5, 0.5, 3)
    assert (sampling.min_p, sampling.repetition_penalty, sampling.min_new_tokens) == (0.1, 1.1, 2)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.5, -0.5)
    assert sampling.logit_bias == ((97, 5.0), (98, -5.5))
    assert (sampling.stop, sampling.stop_token_ids, sampling.sampling_seed) == (("zz",), (5,), 3)
    assert (message.priority, message.extra_key) == (4, "salt")
    options = server.template.rendered[-1][1]
    assert (options["reasoning_effort"], options["documents"]) == ("low", [{"text": "d"}])
    assert server.template.rendered[-1][0][0]["role"] == "system"
    assert server.template.rendered[-1][0][1]["name"] == "Ann"


def test_every_completion_parameter_at_once(client: Any, server: ChatServer) -> None:
    reply = client.completions.create(
        model="x",
        prompt="p",
        best_of=1,
        echo=False,
        frequency_penalty=0.5,
        logit_bias={"97": 1},
        logprobs=1,
        max_tokens=4,
        n=1,
        presence_penalty=0.5,
        seed=1,
        stop="q",
        suffix="",
        temperature=0.0,
        top_p=1.0,
        user="u",
    )
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("a fi", "length")
    assert reply.usage.prompt_tokens_details.cached_tokens == 3
    assert reply.system_fingerprint.startswith("sgl-")
    assert server.scheduler.requests[-1].sampling.stop == ("q",)


@pytest.mark.parametrize(
    ("field", "value", "kind", "wanted"),
    [
        ("response_format", {"type": "json_object"}, "json_schema", {"type": "object"}),
        (
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "description": "d", "strict": True, "schema": SCHEMA},
            },
            "json_schema",
            SCHEMA,
        ),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}}, "json_schema", SCHEMA),
        (
            "response_format",
            {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<a"]},
            "structural_tag",
            {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<a"]},
        ),
        ("structured_outputs", {"json": SCHEMA}, "json_schema", SCHEMA),
        ("structured_outputs", {"json": json.dumps(SCHEMA)}, "json_schema", SCHEMA),
        ("structured_outputs", {"json_object": True, "regex": None}, "json_schema", {"type": "object"}),
        ("structured_outputs", {"regex": "a+"}, "regex", "a+"),
        ("structured_outputs", {"choice": ["a", "b"]}, "choices", ["a", "b"]),
        ("structured_outputs", {"grammar": 'root ::= "a"'}, "ebnf", 'root ::= "a"'),
        ("structured_outputs", {"structural_tag": {"triggers": ["<a"], "structures": []}}, "structural_tag", {"triggers": ["<a"], "structures": []}),
        ("choices", ["x"], "choices", ["x"]),
        ("ebnf", 'root ::= "a"', "ebnf", 'root ::= "a"'),
    ],
)  # fmt: skip
def test_constraints(server: ChatServer, field: str, value: Any, kind: str, wanted: Any) -> None:
    for path, prompt in (("chat/completions", {"messages": USER}), ("completions", {"prompt": "p"})):
        status, reply = post(server, path, {**prompt, field: value})
        assert status == 200, reply
        sampling = server.scheduler.requests[-1].sampling
        found = {"choices": list(sampling.choices or ()), "regex": sampling.regex, "ebnf": sampling.ebnf}
        for name in ("json_schema", "structural_tag"):
            text = {"json_schema": sampling.json_schema, "structural_tag": sampling.structural_tag}[name]
            found[name] = None if text is None else json.loads(text)
        assert sampling.grammar_kind == kind
        assert found[kind] == wanted


def test_a_stream_tells_usage_as_it_is_asked(client: Any) -> None:
    for create, prompt in (
        (client.chat.completions.create, {"messages": USER}),
        (client.completions.create, {"prompt": "p"}),
    ):
        chunks = list(create(model="x", **prompt, stream=True))
        assert all(chunk.usage is None for chunk in chunks)
        chunks = list(create(model="x", **prompt, stream=True, stream_options={"include_usage": True}))
        assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
        options = {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False}
        chunks = list(create(model="x", **prompt, stream=True, stream_options=options))
        counts = [chunk.usage.completion_tokens for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-2:] == [counts[-1]] * 2
        assert chunks[-1].choices == []


def test_exactly_n_choices_whole_and_streamed(client: Any) -> None:
    for n in (1, 4):
        reply = client.chat.completions.create(model="x", messages=USER, n=n)
        assert [choice.index for choice in reply.choices] == list(range(n))
        stream = client.chat.completions.create(
            model="x", messages=USER, n=n, stream=True, stream_options={"include_usage": True}
        )
        ends = []
        usage = None
        for chunk in stream:
            ends += [choice.index for choice in chunk.choices if choice.finish_reason]
            usage = chunk.usage or usage
        assert sorted(ends) == list(range(n))
        assert usage == reply.usage
        assert reply.usage.completion_tokens == n * (len("a fine answer") + 1)


def test_the_likeliest_of_several_outputs_are_shown(client: Any, server: ChatServer) -> None:
    texts = {0: "one", 1: "two", 2: "three", 3: "four"}
    server.say(lambda message: texts[int(message.rid.partition("-")[2] or 0)])
    reply = client.completions.create(model="x", prompt="p", best_of=4, n=2)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert {choice.text for choice in reply.choices} <= set(texts.values())
    assert reply.choices[0].logprobs is None
    assert reply.usage.completion_tokens == sum(len(text) + 1 for text in texts.values())


def test_an_empty_prompt_is_the_token_that_begins_every_text(client: Any, server: ChatServer) -> None:
    reply = client.completions.create(model="x", prompt="", max_tokens=3)
    assert (reply.choices[0].text, reply.usage.prompt_tokens) == ("a f", 1)
    assert server.scheduler.requests[-1].input_ids == [BOS_ID]
    with pytest.raises(openai.BadRequestError, match=r"the prompt at \[1\] is empty") as caught:
        client.completions.create(model="x", prompt=[[1], []])
    assert caught.value.param == "prompt[1]"
    with pytest.raises(
        openai.BadRequestError, match=r"^Error code: 400 - prompt\[1\] is \[1\]; it must be a"
    ) as caught:
        client.completions.create(model="x", prompt=["a", [1]])
    assert caught.value.param == "prompt[1]"
    status, reply = post(server, "completions", {})
    assert (status, reply["error"]["message"].partition(";")[0]) == (400, "prompt is missing")


def test_a_text_that_was_cut_within_a_character_is_told(server: ChatServer) -> None:
    for text, byte in ((r"a\ud83d", 12), (r"\ud83d\ude00\uD83D and more", 23), (r"\\ud83d\\\ud83d", 20)):
        body = f'{{"prompt":"{text}"}}'.encode()
        reply = requests.post(f"{server.url}/v1/completions", data=body, timeout=20)
        assert reply.status_code == 400
        assert f"stands at byte {byte}; texts must be valid Unicode" in reply.json()["error"]["message"]
    reply = requests.post(f"{server.url}/v1/completions", data=rb'{"prompt":"\\ud83d', timeout=20)
    assert "surrogate" not in reply.json()["error"]["message"]


def test_offsets_count_the_characters_of_the_text(client: Any, server: ChatServer) -> None:
    server.say("é</s>😀b")
    for options in ({"prompt": "aö"}, {"prompt": [*"aö".encode()]}):
        body = {"model": "x", **options, "echo": True, "logprobs": 0, "extra_body": {"ignore_eos": True}}
        choice = client.completions.create(max_tokens=8, **body).choices[0]
        assert (choice.text, choice.logprobs.text_offset) == ("aöé😀b", [0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4])
        chunks = client.completions.create(max_tokens=8, stream=True, **body)
        streamed = [offset for chunk in chunks for offset in chunk.choices[0].logprobs.text_offset]
        assert streamed == choice.logprobs.text_offset
    # What ends within a character shows as one.
    choice = client.completions.create(model="x", prompt="p", max_tokens=5, logprobs=0, extra_body=body["extra_body"])
    assert choice.choices[0].text == "é�"
    assert choice.choices[0].logprobs.text_offset == [0, 0, 1, 1, 1]


def test_a_prompt_and_output_past_the_context_name_all_numbers(client: Any) -> None:
    limit = 8000
    with pytest.raises(
        openai.BadRequestError, match="has 101 tokens and 7900 more are asked for, 8001 in all"
    ) as caught:
        client.completions.create(model="x", prompt="a" * 100, max_tokens=limit - 100)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")
    assert str(limit) in caught.value.message
    reply = client.completions.create(model="x", prompt="a" * 100, max_tokens=limit - 101)
    assert reply.choices[0].finish_reason == "stop"
    with pytest.raises(openai.BadRequestError, match=f"{limit} more are asked for") as caught:
        client.chat.completions.create(model="x", messages=USER, max_completion_tokens=limit)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_completion_tokens")
    with pytest.raises(openai.BadRequestError, match="the context holds 8000") as caught:
        client.chat.completions.create(model="x", messages=[{"role": "user", "content": "a" * limit}])
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    # What nobody asked for is cut to what fits.
    assert client.completions.create(model="x", prompt="a" * (limit - 2)).choices[0].finish_reason == "length"


def test_a_message_may_be_gone_on_with(client: Any, server: ChatServer) -> None:
    messages = [*USER, {"role": "assistant", "content": "It is \n"}]
    client.chat.completions.create(model="x", messages=messages, extra_body={"continue_final_message": True})
    assert prompt_text(server.scheduler.requests[-1]).endswith("<turn>assistant\nIt is \n")
    client.chat.completions.create(model="x", messages=USER, extra_body={"add_generation_prompt": False})
    assert prompt_text(server.scheduler.requests[-1]).endswith("<end>")


def test_models_by_name(client: Any) -> None:
    assert client.models.retrieve("scripted").id == "scripted"
    with pytest.raises(openai.NotFoundError, match="is not served") as caught:
        client.models.retrieve("owner/other")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_chat_rids_are_unique_while_they_run(server: ChatServer) -> None:
    assert post(server, "chat/completions", {"messages": USER, "rid": "r"})[1]["id"] == "chatcmpl-r"
    assert post(server, "chat/completions", {"messages": USER, "rid": ""})[1]["error"]["param"] == "rid"


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("chat/completions", {"mesages": USER}, "mesages", "did you mean messages?"),
    ("chat/completions", {"messages": USER, "max_token": 5}, "max_token", "did you mean max_tokens?"),
    ("chat/completions", {"messages": USER, "qqqqqq": 5}, "qqqqqq", "known: model"),
    ("chat/completions", {"messages": USER, "modalities": ["text", "audio"]}, "modalities", '["text"]'),
    ("chat/completions", {"messages": USER, "audio": {}}, "audio", "text alone"),
    ("chat/completions", {"messages": USER, "web_search_options": {}}, "web_search_options", "searches nothing"),
    ("chat/completions", {"messages": USER, "guided_json": {}}, "guided_json", "structured_outputs.json"),
    ("chat/completions", {"messages": USER, "documents": {}}, "documents", "a list"),
    ("chat/completions", {"messages": USER, "separate_reasoning": 1}, "separate_reasoning", "true or false"),
    ("chat/completions", {"messages": USER, "stream": "yes"}, "stream", "true or false"),
    (
        "chat/completions",
        {"messages": USER, "add_generation_prompt": True, "continue_final_message": True},
        "add_generation_prompt",
        "both true",
    ),
    ("chat/completions", {"messages": USER, "continue_final_message": True}, "continue_final_message", "assistant"),
    (
        "chat/completions",
        {"messages": USER, "stream": True, "stream_options": {"usage": True}},
        "stream_options.usage",
        "include_usage",
    ),
    (
        "chat/completions",
        {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
        "response_format.json_schema.strict",
        "true or false",
    ),
    ("chat/completions", {"messages": USER, "structured_outputs": {}}, "structured_outputs", "one of json"),
    ("chat/completions", {"messages": USER, "structured_outputs": {"xml": 1}}, "structured_outputs.xml", "json"),
    (
        "chat/completions",
        {"messages": USER, "structured_outputs": {"regex": "a", "choice": ["b"]}},
        "structured_outputs",
        "one of",
    ),
    ("chat/completions", {"messages": USER, "structured_outputs": {"regex": "("}}, "structured_outputs.regex", "group"),
    (
        "chat/completions",
        {"messages": USER, "structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs.regex",
        "give one",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0]",
        "text alone",
    ),
    ("completions", {"prompt": "p", "suffix": "s"}, "suffix", "goes on with a text"),
    ("completions", {"prompt": "p", "best_of": 0}, "best_of", "from 1 to 128"),
    ("completions", {"prompt": "p", "n": 3, "best_of": 2}, "best_of", "from 3 to 128"),
    ("completions", {"prompt": "p", "best_of": 2, "stream": True}, "best_of", "a stream"),
    ("completions", {"prompt": "p", "messages": USER}, "messages", "not a known field"),
]


@pytest.mark.parametrize(("path", "body", "param", "message"), WRONG)
def test_what_is_wrong_is_named(server: ChatServer, path: str, body: Any, param: str, message: str) -> None:
    status, reply = post(server, path, body)
    assert (status, reply["error"]["param"]) == (400, param)
    assert message in reply["error"]["message"]
    assert reply["error"]["type"] == "invalid_request_error"


def test_a_null_is_the_same_as_nothing(server: ChatServer) -> None:
    nothing = dict.fromkeys(
        (
            "tools",
            "tool_choice",
            "functions",
            "audio",
            "stop",
            "seed",
            "response_format",
            "stream_options",
            "n",
            "stream",
        )
    )
    assert post(server, "chat/completions", {"messages": USER, **nothing})[0] == 200

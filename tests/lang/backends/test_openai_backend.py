"""Programs on other vendors' models: what is sent, what comes of it, and what is refused before anything is sent."""

import sys
from types import SimpleNamespace
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

import sgl
from sgl.event_loop import event_loop_thread

pytestmark = pytest.mark.timeout(30)


class Person(BaseModel):
    name: str
    age: int


@sgl.function
def dialogue(s):
    s += sgl.system("Be brief.")
    s += sgl.user("Name a fruit.") + "\n"
    with s.assistant():
        s += sgl.gen("fruit", max_tokens=20, stop=["!"], temperature=0.5, seed=7)
    s += sgl.user("Another one.")
    s += sgl.assistant(sgl.gen("other"))


@sgl.function
def completion(s):
    s += "The sky is" + sgl.gen("color", max_tokens=9) + " and the sea is" + sgl.gen("sea")


def answers(body):
    return "pear" if "messages" in body and len(body["messages"]) > 2 else "apple" if "messages" in body else " blue"


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_model_gets_the_messages(openai_stub, stream):
    with openai_stub(answers) as server:
        backend = sgl.OpenAI("some-model", base_url=server.url)
        state = dialogue.run(backend=backend, stream=stream)
        assert (state["fruit"], state["other"]) == ("apple", "pear")
        assert [message["content"] for message in state.messages()][1:] == [
            "Name a fruit.",
            "apple",
            "Another one.",
            "pear",
        ]
        (path, first, key), (_, second, _) = server.requests
        backend.close()
    assert (path, key) == ("/v1/chat/completions", "Bearer none")
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    assert first == {
        "model": "some-model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a fruit."}],
        "max_completion_tokens": 20,
        "stop": ["!"],
        "temperature": 0.5,
        "seed": 7,
        **streamed,
    }
    assert second["messages"][2:] == [
        {"role": "assistant", "content": "apple"},
        {"role": "user", "content": "Another one."},
    ]
    assert second["max_completion_tokens"] == 128
    meta = state.get_meta_info("fruit")
    assert meta["finish_reason"] == {"type": "stop", "matched": None}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (5, 5, 3)
    assert meta["sampling_params"]["seed"] == 7
    assert backend.token_usage == sgl.Usage(num_calls=2, prompt_tokens=10, cached_tokens=6, completion_tokens=9)
    backend.token_usage.reset()
    assert backend.token_usage == sgl.Usage()


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_model_gets_the_text(openai_stub, stream):
    with openai_stub(answers) as server:
        backend = sgl.OpenAI("gpt-3.5-turbo-instruct", base_url=server.url, api_key="key")
        state = completion.run(backend=backend, stream=stream)
        assert state.text() == "The sky is blue and the sea is blue"
        assert [(path, body["prompt"], key) for path, body, key in server.requests] == [
            ("/v1/completions", "The sky is", "Bearer key"),
            ("/v1/completions", "The sky is blue and the sea is", "Bearer key"),
        ]
        backend.close()


def test_streams_come_to_the_final_text(openai_stub):
    @sgl.function
    async def program(s):
        s += sgl.user("Say it.")
        s += sgl.assistant(sgl.gen("x"))
        pieces = [piece async for piece in s.text_iter("x")]
        assert "".join(pieces) == await s["x"] == "a few letters"

    with openai_stub(lambda body: "a few letters") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        program.run(backend=backend, stream=True).sync()
        backend.close()


def test_values_of_types_come_by_response_format(openai_stub):
    @sgl.function
    def program(s):
        s += sgl.user("Invent a person.")
        s += sgl.assistant(sgl.gen("x", type=Person))

    with openai_stub(lambda body: '{"name": "Ann", "age": 3}') as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        assert program.run(backend=backend)["x"] == Person(name="Ann", age=3)
        (_, body, _) = server.requests[0]
        backend.close()
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["name", "age"]
    assert body["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: sgl.select("x", ["a", "b"]), "'m' at .* does not support select .variable 'x'."),
        (lambda: sgl.gen("x", regex="a+"), "a gen whose output must match a regex .*it enforces json_schema"),
        (lambda: sgl.gen("x", type=Literal["a", "b"]), "must match a"),
        (lambda: sgl.gen("x", tools=[sorted_words]), r"gen\(tools=\.\.\.\)"),
        (lambda: sgl.gen("x", top_k=5), "gen 'x' sets top_k, which .* does not take; it takes frequency_penalty"),
    ],
)
def test_what_a_model_cannot_do_is_refused_before_anything_is_sent(openai_stub, expression, message):
    @sgl.function
    def program(s):
        s += sgl.user("first") + sgl.assistant_begin()
        s += expression()

    with openai_stub(answers) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.UnsupportedError, match=message):
            program.run(backend=backend)
        assert server.requests == []
        backend.close()


def sorted_words(text: str) -> str:
    """Sorts."""
    return text


def test_options_of_runs_are_refused_too(openai_stub):
    @sgl.function
    def outer(s):
        s += sgl.user("first")
        dialogue(s, min_p=0.5)

    with openai_stub(answers) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.UnsupportedError, match="run sets top_k"):
            dialogue.run(backend=backend, top_k=3)
        with pytest.raises(sgl.UnsupportedError, match="program 'dialogue' sets min_p"):
            outer.run(backend=backend)
        assert dialogue.run(backend=backend, top_k=-1, min_p=0.0)["fruit"] == "apple"
        backend.close()


def test_extensions_are_sent_to_servers_that_have_them(openai_stub):
    extensions = ("regex", "json_schema", "top_k", "min_new_tokens", "stop_token_ids")

    @sgl.function
    def program(s):
        s += "a" + sgl.gen("x", regex="b+", top_k=5, min_tokens=1, stop_token_ids=[2])
        s += sgl.gen("y", json_schema={"type": "string"}, logit_bias={3: 1.5})

    with openai_stub(lambda body: "b") as server:
        backend = sgl.OpenAI("m", False, base_url=server.url, extensions=extensions)
        assert program.run(backend=backend).text() == "abb"
        (_, first, _), (_, second, _) = server.requests
        backend.close()
    assert [first[name] for name in ("regex", "top_k", "min_tokens", "stop_token_ids")] == ["b+", 5, 1, [2]]
    assert second["response_format"]["json_schema"]["schema"] == {"type": "string"}
    assert second["logit_bias"] == {"3": 1.5}
    with pytest.raises(sgl.ArgumentError, match="extensions is 'ebnf'; it must be among top_k"):
        sgl.OpenAI("m", base_url="http://127.0.0.1:1/v1", extensions=["ebnf"])


def within(role, before="", after=""):
    @sgl.function
    def program(s):
        s += before
        s += sgl.user("q")
        if role is None:
            s += sgl.gen("x")
        else:
            with getattr(s, role)():
                s += after
                s += sgl.gen("x")

    return program


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (within(None), "speaks in role 'assistant', and the gen stands outside of roles"),
        (within("user"), "the gen stands in role 'user'"),
        (within("assistant", after="Sure: "), "begins with 'Sure: ' before the gen"),
        (within("assistant", before="Hello"), "text outside of roles"),
    ],
)
def test_a_chat_that_the_api_cannot_carry_is_an_error_with_its_place(openai_stub, program, message):
    with openai_stub(answers) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.ProgramError, match=rf"gen 'x' at .*{message}"):
            program.run(backend=backend)["x"]
        assert server.requests == []
        backend.close()


@pytest.mark.parametrize("stream", [False, True])
def test_errors_keep_status_and_code(openai_stub, stream):
    error = {"status": 400, "message": "no such thing", "code": "bad_value", "param": "stop", "type": "error"}
    with openai_stub(lambda body: error) as server:
        backend = sgl.OpenAI("m", base_url=server.url, max_retries=0)
        state = dialogue.run(backend=backend, stream=stream)
        with pytest.raises(sgl.ProgramError, match=r"gen 'fruit' at .*no such thing") as caught:
            state["fruit"]
        backend.close()
    cause = caught.value.__cause__
    assert isinstance(cause, sgl.BackendError)
    assert (cause.status, cause.code, cause.param) == (400, "bad_value", "stop")
    assert isinstance(cause.__cause__, openai.BadRequestError)


def test_a_stream_that_breaks_off_and_a_server_that_is_not_there_are_errors(openai_stub):
    with openai_stub(answers, breaks_off=True) as server:
        backend = sgl.OpenAI("m", base_url=server.url, max_retries=0)
        state = dialogue.run(backend=backend, stream=True)
        with pytest.raises(sgl.ProgramError, match="ended before the output was complete"):
            state["fruit"]
    with pytest.raises(sgl.ProgramError, match=r"at http://127.* cannot be reached"):
        dialogue.run(backend=backend)["fruit"]
    backend.close()


def test_logprobs_and_limits_are_in_the_meta_info(openai_stub):
    @sgl.function
    def chat(s):
        s += sgl.user("q") + sgl.assistant(sgl.gen("x", max_tokens=2, return_logprob=True))

    @sgl.function
    def plain(s):
        s += "q" + sgl.gen("x", max_tokens=2, return_logprob=True)

    with openai_stub(lambda body: "abc") as server:
        for program, is_chat in ((chat, True), (plain, False)):
            backend = sgl.OpenAI("m", is_chat, base_url=server.url)
            meta = program.run(backend=backend).get_meta_info("x")
            assert meta["output_token_logprobs"] == [[-0.5, None, "a"], [-0.5, None, "b"]]
            assert meta["finish_reason"]["type"] == "length"
            backend.close()


def test_forks_join_their_messages(openai_stub):
    @sgl.function
    def program(s):
        s += sgl.user("q")
        forks = s.fork(2)
        forks += lambda index: sgl.assistant(sgl.gen("v"))
        forks.join("concatenate")
        s += sgl.user("more") + sgl.assistant(sgl.gen("x"))

    with openai_stub(answers) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = program.run(backend=backend)
        assert (state["x"], len(server.requests)) == ("pear", 3)
        assert [message["role"] for message in server.requests[-1][1]["messages"]] == [
            "user",
            "assistant",
            "assistant",
            "user",
        ]
        assert sgl.flush_cache(backend) is False
        assert sgl.get_server_info(backend)["token_usage"]["num_calls"] == 3
        backend.close()


def test_no_key_is_said_at_once(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(sgl.SglError, match=r"chat model 'gpt-4o' of OpenAI: .*OPENAI_API_KEY"):
        sgl.OpenAI("gpt-4o")


def stand_in_for_litellm(client):
    """Package litellm as far as the backend uses it, carried by the official client."""

    async def acompletion(*, api_key, vendor_option, timeout, **fields):
        assert (api_key, vendor_option) == ("key", 1)
        return await client.chat.completions.create(**fields)

    return SimpleNamespace(acompletion=acompletion, get_model_info=lambda model: {"supports_assistant_prefill": False})


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_carries_the_same(openai_stub, monkeypatch, stream):
    with openai_stub(answers) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="none")
        monkeypatch.setitem(sys.modules, "litellm", stand_in_for_litellm(client))
        backend = sgl.LiteLLM("vendor/model", api_key="key", vendor_option=1)
        state = dialogue.run(backend=backend, stream=stream)
        assert (state["fruit"], state["other"]) == ("apple", "pear")
        assert {body["model"] for _, body, _ in server.requests} == {"vendor/model"}
        with pytest.raises(sgl.UnsupportedError, match="'vendor/model' through litellm does not support select"):
            picking.run(backend=backend)
        event_loop_thread().wait(client.close())


@sgl.function
def picking(s):
    s += "q" + sgl.select("x", ["a", "b"])


def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    for name, make in (("litellm", sgl.LiteLLM), ("openai", sgl.OpenAI)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(sgl.SglError, match=rf"package '{name}' is not installed; .*pip install 'sgl\[vendors\]'"):
            make("vendor/model")


def test_cancelling_a_state_ends_its_request(openai_stub):
    with openai_stub(lambda body: "x" * 10_000_000) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = dialogue.run(backend=backend, stream=True)
        pieces = state.text_iter("fruit")
        assert next(pieces)
        state.cancel()
        assert server.has_lost_client.wait(10)
        with pytest.raises(sgl.ProgramError, match="was cancelled"):
            state["fruit"]
        backend.close()

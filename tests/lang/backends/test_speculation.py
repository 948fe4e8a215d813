"""Speculation for vendors that bill by the call (A8), and gens inside assistant messages."""

import asyncio
import threading

import pytest

import sgl
from sgl.sampling import RUN_DEFAULTS
from sgl.speculation import Continuation

pytestmark = pytest.mark.timeout(30)

REPLY = " Ann\nAge: 33\nCity: Oslo\nAnd more."


@sgl.function(num_api_spec_tokens=40)
def fields(s, key="Name"):
    s += f"A person.\n{key}:" + sgl.gen("name", stop="\n") + "\nAge:" + sgl.gen("age", stop="\n")
    s += "\nCity:" + sgl.gen("city", stop="\n")


def completion(server, **options):
    return sgl.OpenAI("m", False, base_url=server.url, **options)


def test_one_call_serves_the_gens_behind_it(openai_stub):
    with openai_stub(lambda body: REPLY) as server:
        backend = completion(server)
        state = fields.run(backend=backend)
        assert [state[name] for name in ("name", "age", "city")] == [" Ann", " 33", " Oslo"]
        assert state.text() == "A person.\nName: Ann\nAge: 33\nCity: Oslo"
        ((path, body, _),) = server.requests
        backend.close()
    assert (path, body["max_tokens"], "stop" in body) == ("/v1/completions", 128, False)
    metas = [state.get_meta_info(name) for name in ("name", "age", "city")]
    # The stub's tokens are letters.
    assert [meta["completion_tokens"] for meta in metas] == [4, 3, 5]
    assert [meta["is_speculated"] for meta in metas] == [False, True, True]
    assert metas[1]["finish_reason"] == {"type": "stop", "matched": "\n"}
    assert "output_token_logprobs" not in metas[0]
    assert backend.token_usage == sgl.Usage(num_calls=1, prompt_tokens=5, cached_tokens=3, completion_tokens=len(REPLY))
    assert (state.usage().num_calls, state.usage().completion_tokens) == (1, len(REPLY))


def test_limits_are_counted_in_tokens(openai_stub):
    @sgl.function(num_api_spec_tokens=40)
    def program(s):
        s += "p" + sgl.gen("x", max_tokens=3, return_logprob=True) + sgl.gen("y", max_tokens=200, temperature=0.5)

    with openai_stub(lambda body: "abcdef") as server:
        backend = completion(server)
        state = program.run(backend=backend)
        assert (state["x"], state["y"]) == ("abc", "abcdef")
        assert [body["max_tokens"] for _, body, _ in server.requests] == [40, 200]
        backend.close()
    meta = state.get_meta_info("x")
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert [token[2] for token in meta["output_token_logprobs"]] == ["a", "b", "c"]


def test_text_that_deviates_is_discarded_and_asked_for(openai_stub):
    def answer(body):
        return " Oslo\n" if body["prompt"].endswith("City:") else " Ann\nAge: 33\nTown: Rome\n"

    with openai_stub(answer) as server:
        backend = completion(server)
        state = fields.run(backend=backend)
        assert state.text() == "A person.\nName: Ann\nAge: 33\nCity: Oslo"
        assert [body["prompt"][-5:] for _, body, _ in server.requests] == ["Name:", "City:"]
        backend.close()


def test_gens_that_need_their_own_call_get_it(openai_stub):
    @sgl.function(num_api_spec_tokens=40)
    def program(s):
        s += "p" + sgl.gen("x", stop="c") + sgl.gen("y", regex="c+") + sgl.gen("z", stop="c", temperature=0.1)

    with openai_stub(lambda body: "ccc" if "regex" in body else "abcd") as server:
        backend = completion(server, extensions=["regex"])
        state = program.run(backend=backend)
        assert [state[name] for name in "xyz"] == ["ab", "ccc", "ab"]
        assert len(server.requests) == 3
        backend.close()


def test_batches_forks_and_tasks_keep_their_words_apart(openai_stub):
    def answer(body):
        number = body["prompt"].partition("#")[2].partition(":")[0]
        return f" {number}a\nAge: {number}b\nCity: {number}c\n"

    @sgl.function(num_api_spec_tokens=50)
    async def tasks(s, number):
        s += f"#{number}:" + sgl.gen("name", stop="\n") + "\nAge:" + sgl.gen("age", stop="\n")
        assert await s["name"] == f" {number}a"

    @sgl.function(num_api_spec_tokens=50)
    def forking(s):
        s += "#"
        forks = s.fork(8)
        forks += lambda index: f"{index}:" + sgl.gen("name", stop="\n") + "\nAge:" + sgl.gen("age", stop="\n")
        forks.join()

    with openai_stub(answer) as server:
        backend = completion(server)
        states = fields.run_batch([{"key": f"#{number}"} for number in range(20)], num_threads=8, backend=backend)
        assert [state["city"] for state in states] == [f" {number}c" for number in range(20)]
        assert len(server.requests) == 20
        assert forking.run(backend=backend)["age"] == [f" {number}b" for number in range(8)]
        assert len(server.requests) == 28
        results = asyncio.run(tasks.arun_batch([(number,) for number in range(20)], backend=backend))
        assert len(results) == 20
        assert len(server.requests) == 48
        backend.close()


@sgl.function(num_api_spec_tokens=60)
def chat(s):
    s += sgl.user("Describe a person, line by line: Name, Age.")
    s += sgl.assistant("Name:" + sgl.gen("name", stop="\n") + "\nAge:" + sgl.gen("age"))


def test_a_chat_model_writes_the_whole_message(openai_stub):
    with openai_stub(lambda body: "Name: Ann\nAge: 33") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = chat.run(backend=backend)
        assert (state["name"], state["age"]) == (" Ann", " 33")
        assert state.messages()[1]["content"] == "Name: Ann\nAge: 33"
        ((_, body, _),) = server.requests
        backend.close()
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert body["max_completion_tokens"] == 128


def test_a_chat_model_is_asked_again_until_it_says_what_the_program_says(openai_stub):
    replies = iter(["Hello!", "Name: Ann, 33", "Name: Ann\nAge: 33"])
    with openai_stub(lambda body: next(replies)) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        assert chat.run(backend=backend)["age"] == " 33"
        assert (len(server.requests), backend.token_usage.num_calls) == (3, 3)
        backend.close()
    with openai_stub(lambda body: "Hello!") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.ProgramError, match=r"gen 'name' at .*begins with 'Name:' before the gen"):
            chat.run(backend=backend)["age"]
        assert len(server.requests) == 3
        with pytest.raises(sgl.ProgramError, match="begins with 'Name:'"):
            chat.run(backend=backend, temperature=0.0)["age"]
        # What samples nothing says the same again.
        assert len(server.requests) == 4
        backend.close()


def test_a_body_may_read_between_the_gens_of_a_message(openai_stub):
    @sgl.function(num_api_spec_tokens=60)
    def program(s):
        s += sgl.user("Describe a person.")
        with s.assistant():
            s += "Name:" + sgl.gen("name", stop="\n")
            s += "\nAge of" + s["name"] + ":" + sgl.gen("age", stop="\n")

    with openai_stub(lambda body: "Name: Ann\nAge of Ann: 33\n") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        assert program.run(backend=backend)["age"] == " 33"
        assert len(server.requests) == 1
        backend.close()


@pytest.mark.parametrize("extension", ["prefix", "continue_final_message"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_goes_on_inside_messages_takes_gens_anywhere(openai_stub, extension, stream):
    @sgl.function
    def program(s):
        s += sgl.user("Describe a person.")
        s += sgl.assistant("Name:" + sgl.gen("name", stop="\n") + "\nAge:" + sgl.gen("age", stop="\n"))

    def answer(body):
        return {"Name:": " Ann", "Name: Ann\nAge:": " 33"}[body["messages"][-1]["content"]]

    with openai_stub(answer) as server:
        backend = sgl.OpenAI("m", base_url=server.url, extensions=[extension])
        state = program.run(backend=backend, stream=stream)
        assert (state["name"], state["age"]) == (" Ann", " 33")
        body = server.requests[1][1]
        backend.close()
    last = {"role": "assistant", "content": "Name: Ann\nAge:"}
    if extension == "prefix":
        assert body["messages"][-1] == {**last, "prefix": True}
    else:
        assert body["messages"][-1] == last
        assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_a_chat_with_prefixes_falls_back_to_them(openai_stub):
    def answer(body):
        return {"Name:": " Ann\nYears: 3", "Name: Ann\nAge:": " 33"}[body["messages"][-1]["content"]]

    with openai_stub(answer) as server:
        backend = sgl.OpenAI("m", base_url=server.url, extensions=["prefix"])
        assert chat.run(backend=backend)["age"] == " 33"
        assert len(server.requests) == 2
        backend.close()


def test_it_is_refused_with_streams_and_without_effect_where_prefixes_are_cached(openai_stub):
    with openai_stub(lambda body: REPLY) as server:
        backend = completion(server)
        with pytest.raises(sgl.ArgumentError, match="num_api_spec_tokens is 40 and stream is True"):
            fields.run(backend=backend, stream=True)
        backend.close()
    scripted = sgl.ScriptedBackend([" Ann", " 33", " Oslo"])
    assert fields.run(backend=scripted, stream=True).text().endswith("City: Oslo")
    assert len(scripted.model.calls) == 3


def test_it_stays_with_bound_programs_and_is_checked(openai_stub):
    with openai_stub(lambda body: REPLY) as server:
        backend = completion(server)
        fields.bind(key="Name").options(temperature=0.5).run(backend=backend).sync()
        assert len(server.requests) == 1
        backend.close()
    with pytest.raises(sgl.ArgumentError, match="num_api_spec_tokens is 0; it must be an integer from 1"):
        sgl.function(num_api_spec_tokens=0)


def test_a_call_that_takes_too_long_is_given_up(openai_stub):
    release = threading.Event()

    @sgl.function(num_api_spec_tokens=20)
    def program(s):
        s += "p" + sgl.gen("x", timeout_s=0.05)

    def answer(body):
        assert release.wait(10)
        return "late"

    with openai_stub(answer) as server:
        backend = completion(server)
        with pytest.raises(sgl.ProgramError, match=r"gen 'x' at .*no complete output within 0\.05 seconds"):
            program.run(backend=backend)["x"]
        release.set()
        backend.close()


def continuation(text, pieces=None, count=0):
    tokens = tuple([-1.0, None, piece] for piece in pieces or ())
    return Continuation(text, True, RUN_DEFAULTS, count / max(1, len(text)), tokens)


def test_tokens_used_in_part_count_whole():
    left = continuation("ab cd ef", ["ab", " cd", " ef"]).behind(3)
    assert (left.text, [token[2] for token in left.tokens]) == ("cd ef", [" cd", " ef"])
    assert [left.num_tokens(size) for size in range(6)] == [0, 1, 1, 2, 2, 2]
    assert [left.cut_at(count) for count in (1, 2, 3)] == [2, 5, None]
    estimated = continuation("abcdefgh", count=4)
    assert [estimated.num_tokens(size) for size in (0, 2, 8)] == [0, 1, 4]
    assert estimated.cut_at(1) is None


def test_threads_of_one_backend_do_not_meet(openai_stub):
    """What SGLang keeps on the backend object and mixes up."""
    both = threading.Barrier(2, timeout=10)

    def answer(body):
        both.wait()
        letter = body["prompt"][0]
        return f"{letter}\n-{letter}\n"

    @sgl.function(num_api_spec_tokens=20)
    def program(s, letter):
        s += letter + ":" + sgl.gen("x", stop="\n") + "\n-" + sgl.gen("y", stop="\n")

    with openai_stub(answer) as server:
        backend = completion(server)
        states = program.run_batch([("a",), ("b",)], num_threads=2, backend=backend)
        assert [(state["x"], state["y"]) for state in states] == [("a", "a"), ("b", "b")]
        backend.close()

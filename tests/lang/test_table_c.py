"""Rows of table C that no other module is about; test_defect_map.py says where each row has its test."""

import asyncio

import pytest

import sgl
from sgl.backends.native import NativeBackend
from sgl.backends.scripted_tokenizer import WordTokenizer

pytestmark = pytest.mark.timeout(60)


class Short:
    """A server whose context holds so many tokens, as a real one says it."""

    def __init__(self, context_length):
        self.model, self.context_length = sgl.ScriptedBackend("long " * 50).model, context_length

    async def call(self, path, payload):
        if path == "/generate":
            size = len(payload.get("text", "")) + len(payload.get("input_ids", ()))
            if size >= self.context_length:
                raise sgl.BackendError(
                    f"the prompt has {size} tokens, and the context holds {self.context_length}",
                    status=400,
                    code="context_length_exceeded",
                )
            sampling = payload["sampling_params"]
            limit = min(sampling["max_new_tokens"], self.context_length - size)
            payload = {**payload, "sampling_params": {**sampling, "max_new_tokens": limit}}
        return await self.model.call(path, payload)

    def stream(self, path, payload):
        return self.model.stream(path, payload)


@sgl.function
def asking(s, prompt, limit):
    s += prompt + sgl.gen("x", max_tokens=limit, ignore_eos=True)


def test_c9_a_limit_past_the_context_is_lowered_with_a_note():
    state = asking.run("prompt", 100, backend=Short(40))
    meta = state.get_meta_info("x")
    assert meta["finish_reason"] == {"type": "length", "length": 34}
    assert meta["note"] == "max_tokens 100 was lowered to 34: the context holds no more"
    assert len(state["x"]) == 34
    assert "note" not in asking.run("prompt", 20, backend=Short(40)).get_meta_info("x")
    with pytest.raises(sgl.ProgramError, match="the prompt has 60 tokens, and the context holds 40"):
        asking.run("p" * 60, 5, backend=Short(40))["x"]


@pytest.mark.model
def test_c9_a_limit_past_the_context_of_the_real_model_is_lowered_with_a_note():
    with sgl.Engine(model_path="smollm2", max_total_tokens=32) as engine:
        meta = asking.run("One, two, three,", 1000, backend=engine).get_meta_info("x")
        assert meta["prompt_tokens"] + meta["completion_tokens"] <= 32
        assert meta["note"].startswith("max_tokens 1000 was lowered to ")
        with pytest.raises(sgl.ProgramError, match="32"):
            asking.run("One, two, three, " * 10, 5, backend=engine)["x"]


@pytest.mark.model
def test_c11_a_pattern_is_compiled_once_and_says_how_long_it_took(engine):
    @sgl.function
    def program(s):
        s += "A code: " + sgl.gen("x", regex="[A-Z]{3}-[0-9]{4,6}#[a-f]+;", max_tokens=40)

    first, again = (program.run(backend=engine).get_meta_info("x")["grammar_compile_time"] for _ in range(2))
    assert first > 0.0
    assert again == 0.0


@pytest.mark.parametrize("limit", range(12))
def test_c12_a_limit_is_hard_and_what_it_cuts_is_flagged(limit):
    @sgl.function
    def program(s):
        s += "v: " + sgl.gen("x", type=list[int], max_tokens=limit)

    state = program.run(backend=sgl.ScriptedBackend("[1, 23, 4]"))
    meta = state.get_meta_info("x")
    assert meta["completion_tokens"] == min(limit, 10)
    assert state.get("x", str) == "[1, 23, 4]"[:limit]
    if limit < 10:
        with pytest.raises(sgl.TruncatedError, match=f"was cut after {limit} tokens"):
            state["x"]
    else:
        assert state["x"] == [1, 23, 4]


def test_c23_every_variable_says_what_was_cached_and_scoring_reuses_its_prompt():
    @sgl.function
    def program(s):
        s += "A prompt of many words that is scored again and again" + sgl.gen("warm", max_tokens=1)
        for number in range(3):
            s += " Pick" + sgl.select(f"x{number}", [" one", " two"])

    state = program.run(backend=sgl.ScriptedBackend(" ok", tokenizer=WordTokenizer()))
    for number in range(3):
        meta = state.get_meta_info(f"x{number}")
        assert all(request["cached_tokens"] >= 11 + 2 * number for request in meta["requests"])
        assert meta["cached_tokens"] == sum(request["cached_tokens"] for request in meta["requests"])


@sgl.function
def everything(s):
    s += sgl.user("Say " + sgl.gen("a", regex="one"))
    forks = s.fork(2)
    forks += lambda index: f" {index}" + sgl.gen("b", regex="two", stop="w")
    forks.join()
    s += sgl.assistant(sgl.select("c", ["x"]) + sgl.gen("d", type=bool, seed=1, max_tokens=5))


def test_c24_a_server_and_an_object_in_this_process_keep_the_same_contract():
    class InProcess:
        """What an engine is: the paths of the protocol, called without a socket."""

        def __init__(self):
            self.model = sgl.ScriptedBackend("True").model

        async def call(self, path, payload):
            return await self.model.call(path, payload)

        def stream(self, path, payload):
            return self.model.stream(path, payload)

    def outcome(backend):
        state = everything.run(backend=backend)
        finish = [state.get_meta_info(name)["finish_reason"] for name in ("a", "d")]
        return state.text(), [state[name] for name in "abcd"], finish, state.messages()

    assert outcome(InProcess()) == outcome(NativeBackend(InProcess())) == outcome(sgl.ScriptedBackend("True"))


def test_c29_a_backend_that_cannot_is_asked_nothing():
    class NoGrammar(sgl.ScriptedBackend):
        @property
        def capabilities(self):
            return sgl.Capabilities(shown_as="this server", constraints=frozenset(), has_select=False)

    @sgl.function
    def program(s, expression):
        s += "prompt" + sgl.gen("first")
        s += expression

    backend = NoGrammar("x")
    for expression, message in (
        (sgl.gen("x", regex="a+"), "this server does not support a gen whose output must match a regex .variable 'x'"),
        (sgl.select("y", ["a"]), "this server does not support select .variable 'y'"),
    ):
        with pytest.raises(sgl.UnsupportedError, match=message):
            program.run(sgl.gen("same") + expression, backend=backend)
        with pytest.raises(sgl.UnsupportedError, match=message):
            asyncio.run(program.arun(expression, backend=backend))
    assert all("regex" not in call.sampling for call in backend.model.calls)

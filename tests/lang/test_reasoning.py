"""Thinking told apart from answers: row 17 of table C, and the defects of A7."""

import asyncio
from typing import Literal

import pytest

import sgl
from sgl.reasoning import REASONING_PARSERS, ReasoningMarks, split_reply
from sgl.sampling import RUN_DEFAULTS
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS as SERVED_PARSERS

pytestmark = [pytest.mark.timeout(20), pytest.mark.usefixtures("no_thread_left")]


def thinking_backend(answers=("let me see", "42"), parser="qwen3", **options):
    return sgl.ScriptedBackend(list(answers), reasoning_parser=parser, **options)


@sgl.function
def ask(s, **options):
    s += sgl.user("How many?")
    with s.assistant():
        s += "Sure. "
        s += sgl.separate_reasoning("It is " + sgl.gen("x", **options) + "!")


TEXT = "<|user|>\nHow many?<|end|>\n<|assistant|>\nSure. It is <think>\nlet me see</think>\n\n42!<|end|>\n"


@pytest.mark.parametrize("stream", [False, True])
def test_a7_answer_and_thinking_are_two_variables_and_the_programs_text_stays(stream):
    state = ask.run(backend=thinking_backend(), stream=stream)
    assert (state["x"], state["x_reasoning_content"]) == ("42", "let me see")
    assert state.variables() == ["x_reasoning_content", "x"]
    assert state.text() == TEXT
    assert state.messages()[1] == {"role": "assistant", "content": "Sure. It is 42!"}
    assert state.get_meta_info("x_reasoning_content")["completion_tokens"] == len("let me see") + 1


def test_thinking_and_answer_stream_by_themselves_and_together():
    state = ask.run(backend=thinking_backend(), stream=True)
    pieces = {name: list(state.text_iter(name)) for name in ("x", "x_reasoning_content", None)}
    assert len(pieces["x_reasoning_content"]) >= 1
    assert {name: "".join(parts) for name, parts in pieces.items()} == {
        "x": "42",
        "x_reasoning_content": "let me see",
        None: TEXT,
    }

    async def read(name):
        return [piece async for piece in state.text_async_iter(name)]

    assert "".join(asyncio.run(read("x_reasoning_content"))) == "let me see"


def test_the_constraint_is_for_the_answer_alone():
    backend = thinking_backend(["free text\nof any kind", "yes"])
    state = ask.run(type=Literal["yes", "no"], stop="\n", max_tokens=50, backend=backend)
    assert (state["x"], state["x_reasoning_content"]) == ("yes", "free text\nof any kind")
    thought, answered = (call.sampling for call in backend.model.calls)
    assert ("regex" in thought, thought["stop"]) == (False, ["</think>"])
    assert ("regex" in answered, answered["stop"]) == (True, ["\n"])
    assert thought["skip_special_tokens"] is False


def test_an_answer_follows_thinking_that_was_cut():
    @sgl.function
    def program(s):
        s += sgl.user("q") + sgl.assistant(sgl.separate_reasoning(sgl.gen("x", max_tokens=9), max_thinking_tokens=3))

    backend = thinking_backend(["very long thinking", "answer"])
    state = program.run(backend=backend)
    assert (state["x_reasoning_content"], state["x"]) == ("ver", "answer")
    assert state.get_meta_info("x_reasoning_content")["finish_reason"] == {"type": "length", "length": 3}
    assert state.text().endswith("<think>\nver</think>\n\nanswer<|end|>\n")
    assert [call.sampling["max_new_tokens"] for call in backend.model.calls] == [3, 9]


def test_later_messages_do_not_see_the_thinking():
    @sgl.function
    def program(s):
        for number in range(2):
            s += sgl.user(f"q{number}") + sgl.assistant(sgl.separate_reasoning(sgl.gen(f"x{number}")) + ".")

    backend = thinking_backend(["hmm", "one", "well", "two"])
    state = program.run(backend=backend)
    state.sync()
    assert backend.model.calls[1].prompt.endswith("<think>\nhmm</think>\n\n")
    assert backend.model.calls[2].prompt == (
        "<|user|>\nq0<|end|>\n<|assistant|>\none.<|end|>\n<|user|>\nq1<|end|>\n<|assistant|>\n<think>\n"
    )
    assert [message["content"] for message in state.messages()] == ["q0", "one.", "q1", "two."]
    assert "hmm" in state.text()
    # What the second message thinks of is in the cache of the first, up to where its thinking began.
    assert state.get_meta_info("x1_reasoning_content")["cached_tokens"] >= len("<|user|>\nq0<|end|>\n<|assistant|>\n")


def test_branches_think_for_themselves_and_join_without_it():
    @sgl.function
    def program(s, mode):
        s += sgl.user("q")
        forks = s.fork(2)
        forks += lambda index: sgl.assistant(sgl.separate_reasoning(sgl.gen("x")))
        forks.join(mode)
        s += sgl.user("more") + sgl.assistant(sgl.gen("y"))

    def answer(call):
        if call.prompt.endswith("<think>\n"):
            return "thought"
        return "done" if "more" in call.prompt else "said"

    state = program.run("gather", backend=sgl.ScriptedBackend(answer, reasoning_parser="qwen3"))
    assert (state["x"], state["x_reasoning_content"]) == (["said"] * 2, ["thought"] * 2)
    backend = sgl.ScriptedBackend(answer, reasoning_parser="qwen3")
    state = program.run("concatenate", backend=backend)
    assert state["y"] == "done"
    assert "thought" not in backend.model.calls[-1].prompt
    assert state.text().count("<think>\nthought</think>\n\nsaid") == 2
    assert [message["content"] for message in state.messages()] == ["q", "said", "said", "more", "done"]


def test_an_async_program_awaits_both():
    @sgl.function
    async def program(s):
        s += sgl.user("q")
        s += sgl.assistant(sgl.separate_reasoning(sgl.gen("x")))
        return await s["x_reasoning_content"], await s["x"]

    async def one(stream):
        state = await program.arun(backend=thinking_backend(), stream=stream)
        pieces = [piece async for piece in state.text_iter("x_reasoning_content")]
        await state.text()
        return "".join(pieces), state.ret_value

    async def main():
        return await asyncio.gather(*(one(bool(number % 2)) for number in range(4)))

    assert asyncio.run(main()) == [("let me see", ("let me see", "42"))] * 4


def test_tools_come_after_the_thinking():
    def double(number: int) -> int:
        """Doubles."""
        return 2 * number

    @sgl.function
    def program(s):
        s += sgl.user("q")
        s += sgl.assistant(sgl.separate_reasoning(sgl.gen("x", tools=[double], tool_choice="required", run_tools=True)))

    call = '{"name": "double", "arguments": {"number": 4}}'
    state = program.run(backend=thinking_backend(["I must double it", call]))
    assert state["x_reasoning_content"] == "I must double it"
    assert [done.result for done in state["x"]] == [8]


def test_thinking_that_the_template_opened_or_closed_is_taken_as_it_is():
    opened = {"user": ("U:", "\n"), "assistant": ("A:<think>\n", "\n"), "system": ("", "")}
    backend = thinking_backend(["hm", "one", "next"], chat_template=opened)

    @sgl.function
    def program(s):
        s += sgl.user("q") + sgl.assistant(sgl.separate_reasoning(sgl.gen("x"))) + sgl.user("r")
        with s.assistant():
            s += sgl.gen("y")

    state = program.run(backend=backend)
    assert state.text() == "U:q\nA:<think>\nhm</think>\n\none\nU:r\nA:<think>\nnext\n"
    assert backend.model.calls[2].prompt == "U:q\nA:one\nU:r\nA:<think>\n"
    closed = {**opened, "assistant": ("A:<think>\n\n</think>\n\n", "\n")}
    backend = thinking_backend(["one", "two"], chat_template=closed)
    state = program.run(backend=backend)
    state.sync()
    assert (state["x_reasoning_content"], state["x"], len(backend.model.calls)) == ("", "one", 2)


def test_outside_of_roles_the_answer_stands_once():
    @sgl.function
    def program(s):
        s += "Q: why? A: " + sgl.separate_reasoning(sgl.gen("x")) + " So."

    state = program.run(backend=thinking_backend(["hm", "because"]))
    assert state.text() == "Q: why? A: <think>\nhm</think>\n\nbecause So."


def test_a_message_thinks_once():
    @sgl.function
    def program(s):
        s += sgl.user("q")
        s += sgl.assistant(sgl.separate_reasoning(sgl.gen("x") + " and " + sgl.gen("y") + sgl.gen(max_tokens=1)))

    backend = thinking_backend(["hm", "one", "two", "."])
    state = program.run(backend=backend)
    assert (state["x"], state["y"], state["y_reasoning_content"]) == ("one", "two", "")
    assert state.variables() == ["x_reasoning_content", "x", "y_reasoning_content", "y"]


def test_c17_a_model_of_unknown_marks_is_refused_at_the_call_and_a_name_helps():
    @sgl.function
    def program(s, model_type=None):
        s += "q" + sgl.separate_reasoning(sgl.gen("x"), model_type)

    with pytest.raises(
        sgl.ArgumentError, match="'scripted' names no reasoning parser: give model_type, one of deepseek-r1"
    ):
        program.run(backend=sgl.ScriptedBackend())
    state = program.run("kimi", backend=sgl.ScriptedBackend(["hm", "a"]))
    assert state.text() == "q◁think▷hm◁/think▷a"


class Unasked:
    """An engine that has said nothing of its model yet."""

    def __init__(self):
        self.model = sgl.ScriptedBackend().model

    async def call(self, path, payload):
        return await self.model.call(path, payload)

    def stream(self, path, payload):
        return self.model.stream(path, payload)


def test_c17_a_model_that_was_not_asked_about_fails_in_the_gen():
    @sgl.function
    def program(s):
        s += "q" + sgl.separate_reasoning(sgl.gen("x"))

    state = program.run(backend=Unasked())
    for name in ("x", "x_reasoning_content"):
        with pytest.raises(sgl.ProgramError, match=r"gen 'x' at .*names no reasoning parser"):
            state[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expr": "text"}, "expr is 'text'; it must be an expression with a gen in it"),
        ({}, "expr is None"),
        ({"expr": sgl.gen("x"), "model_type": "gpt-9"}, "model_type is 'gpt-9'; it must be one of deepseek-r1"),
        ({"expr": sgl.gen("x"), "max_thinking_tokens": -1}, "max_thinking_tokens is -1"),
    ],
)
def test_wrong_values_raise_where_the_expression_is_built(arguments, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.separate_reasoning(**arguments)


def test_a_failure_while_thinking_fails_both():
    def broken(call):
        raise sgl.BackendError("broken")

    @sgl.function
    def program(s):
        s += "q" + sgl.separate_reasoning(sgl.gen("x"))

    state = program.run(backend=sgl.ScriptedBackend(broken, reasoning_parser="qwen3"), stream=True)
    errors = []
    for name in ("x", "x_reasoning_content"):
        with pytest.raises(sgl.ProgramError, match="broken") as caught:
            state[name]
        errors.append(caught.value)
    assert errors[0] is errors[1]


def test_language_and_server_know_the_same_parsers():
    assert {name: ReasoningMarks(**vars(marks)) for name, marks in SERVED_PARSERS.items()} == REASONING_PARSERS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>\nhm</think>\n\nyes", ("hm", "yes")),
        ("<think>hm</think>yes", ("hm", "yes")),
        ("<think>\nhm</thi", ("hm", "")),
        ("<thi", ("", "")),
        ("", ("", "")),
        ("yes", ("", "yes")),
    ],
)
def test_a_reply_that_holds_both_is_split(text, parts):
    assert split_reply(text, REASONING_PARSERS["qwen3"]) == parts


def test_special_tokens_are_shown_where_the_process_says_so(monkeypatch):
    monkeypatch.setattr(sgl.global_config, "skip_special_tokens_in_output", False)

    @sgl.function
    def program(s):
        s += "q" + sgl.gen("x")

    backend = sgl.ScriptedBackend("a")
    program.run(backend=backend).sync()
    assert backend.model.calls[0].sampling["skip_special_tokens"] is False
    assert "skip_special_tokens" not in RUN_DEFAULTS.to_protocol()

"""Composition: inline programs and their scopes, captures, copies, messages, going on, traces (C17 in part)."""

import asyncio
import re

import pytest

import sgl
from sgl.backends.scripted import Gate
from sgl.tracer import Argument, Branches

pytestmark = pytest.mark.timeout(20)


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value))


@sgl.function
def letter(s, value, depth=0):
    s += "<" + forced("x", value)
    inner = letter(s, value + "'", depth - 1) if depth else ""
    s += ">"
    return s["x"] + inner


@sgl.function
def outer(s):
    s += "P"
    s += forced("x", "mine")
    result = letter(s, "a", depth=2)
    s += f"={result}:" + s["x"]
    return result


def test_an_inline_program_extends_the_text_and_has_its_own_variables():
    backend = sgl.ScriptedBackend()
    state = outer.run(backend=backend)
    assert state.text() == "Pmine<a<a'<a''>>>=aa'a'':mine"
    assert state.ret_value == "aa'a''"
    assert state.variables() == ["x"]
    # Each call goes on from the ids of the one before: the prefix is shared.
    assert bytes(backend.model.calls[1].payload["input_ids"]).decode() == "Pmine"
    assert letter.run("b", backend=backend).text() == "<b>"


def test_an_inline_program_can_hand_out_its_state():
    gate = Gate()

    @sgl.function
    def lazy(s):
        s += sgl.gen("slow")
        return s

    @sgl.function
    def program(s):
        s += "p"
        inner = lazy(s)
        s["seen"] = "slow" in inner
        return inner

    state = program.run(backend=sgl.ScriptedBackend("late", before=lambda call: gate))
    assert state["seen"] is False
    gate.open()
    assert state.ret_value["slow"] == "late"
    with pytest.raises(sgl.UnknownVariableError):
        state["slow"]
    assert state.text() == "plate"


def test_inline_options_are_for_the_gens_of_the_call_alone():
    @sgl.function
    def warm(s):
        s += sgl.gen("a")

    @sgl.function
    def program(s):
        s += "p" + sgl.gen("b")
        warm(s, temperature=0.25)
        warm.options(max_new_tokens=3)(s)
        s += sgl.gen("c")

    backend = sgl.ScriptedBackend("x")
    program.run(temperature=0.5, backend=backend).sync()
    assert [call.sampling["temperature"] for call in backend.model.calls] == [0.5, 0.25, 0.5, 0.5]
    assert [call.sampling["max_new_tokens"] for call in backend.model.calls] == [128, 128, 3, 128]


def test_what_an_inline_call_cannot_have_is_refused():
    @sgl.function
    def sub(s, a):
        s += a

    @sgl.function
    async def async_sub(s):
        s += "b"

    @sgl.function
    def program(s):
        for options in ({"stream": True}, {"use_thread": False}, {"messages": [{"role": "user", "content": "x"}]}):
            with pytest.raises(sgl.ArgumentError, match=f"{next(iter(options))} cannot be set for a program that is"):
                sub(s, "a", **options)
        with pytest.raises(sgl.ArgumentError, match="backend cannot be set"):
            sub(s, "a", backend=sgl.ScriptedBackend())
        with pytest.raises(TypeError, match=r"an inline call: arguments do not fit program 'sub'\(a\)"):
            sub(s)
        with pytest.raises(
            sgl.ArgumentError, match="async program 'async_sub' is called inline on the state of a plain"
        ):
            async_sub(s)

    program.run(backend=sgl.ScriptedBackend()).sync()

    @sgl.function
    async def async_program(s):
        with pytest.raises(sgl.ArgumentError, match="plain program 'sub' is called inline on the state of an async"):
            sub(s, "a")
        await async_sub(s)

    assert async_program.run(backend=sgl.ScriptedBackend()).text() == "b"


def test_async_programs_are_called_inline_with_await():
    @sgl.function
    async def sub(s, value):
        s += "<" + forced("x", value) + ">"
        return await s["x"]

    @sgl.function
    async def program(s):
        s += "p"
        first = await sub(s, "a")
        async with s.copy() as copy:
            copy += "!" + forced("c", "d")
        with s.var_scope("both"):
            return first + await sub(s, "b")

    state = program.run(backend=sgl.ScriptedBackend())
    assert (state.text(), state.ret_value, state["c"], state["both"]) == ("p<a><b>", "ab", ["d"], "<b>")


def test_var_scope_holds_all_text_of_its_block():
    @sgl.function
    def program(s):
        s += "p"
        with s.var_scope("whole"):
            s += "a" + forced("x", "b")
            with s.var_scope("part"):
                s += sgl.user("c")
        s += "d" + s["whole"]

    state = program.run(backend=sgl.ScriptedBackend())
    assert state["part"] == "<|user|>\nc<|end|>\n"
    assert state["whole"] == "ab" + state["part"]
    assert state.text() == "p" + state["whole"] + "d" + state["whole"]
    assert state.variables() == ["whole", "x", "part"]


def test_a_capture_in_a_failed_state_raises_its_error():
    @sgl.function
    def program(s):
        s += "p"
        with s.var_scope("whole"):
            s += sgl.gen("x")

    state = program.run(backend=sgl.ScriptedBackend([]))
    with pytest.raises(sgl.ProgramError, match="no answer left"):
        state["whole"]


def test_copy_is_a_branch_that_is_joined():
    @sgl.function
    def program(s):
        s += "p"
        with s.copy() as copy:
            copy += "q" + forced("x", "y")
        s += "r"

    state = program.run(backend=sgl.ScriptedBackend())
    assert (state.text(), state["x"]) == ("pr", ["y"])


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def test_a_run_begins_with_messages():
    @sgl.function
    def program(s):
        with s.assistant():
            s += forced("x", "Hello")

    state = program.run(messages=MESSAGES, backend=sgl.ScriptedBackend())
    assert state.messages() == [*MESSAGES, {"role": "assistant", "content": "Hello"}]
    again = program.run(messages=state.messages(), backend=sgl.ScriptedBackend())
    assert again.text() == state.text() + "<|assistant|>\nHello<|end|>\n"
    with pytest.raises(sgl.ArgumentError, match=r"messages\[1\]\['role'\] is 'robot'; it must be one of 'system'"):
        program.run(messages=[MESSAGES[0], {"role": "robot", "content": ""}])
    with pytest.raises(sgl.ArgumentError, match=r"messages\[0\] is 'Hi'"):
        program.run(messages=["Hi"])


def test_a_state_can_be_continued_after_its_run():
    backend = sgl.ScriptedBackend()
    state = letter.run("a", backend=backend)
    state += "more" + forced("y", "z")
    assert letter(state, "b") == "b"
    assert (state.text(), state["y"], state["x"]) == ("<a>morez<b>", "z", "a")

    async def main():
        state = await letter.arun("a", backend=backend)
        state += "more" + forced("y", "z")
        return await state.text()

    assert asyncio.run(main()) == "<a>morez"


def test_a_state_whose_body_runs_cannot_be_continued_by_the_caller():
    gate = Gate()

    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x")
        s.sync()

    state = program.run(stream=True, backend=sgl.ScriptedBackend("x", before=lambda call: gate))
    with pytest.raises(sgl.ArgumentError, match="program 'program' still runs"):
        state += "more"
    with pytest.raises(sgl.ArgumentError, match="program 'program' still runs"):
        letter(state, "a")
    with pytest.raises(sgl.ArgumentError, match="program 'program' still runs"):
        state.fork(2)
    gate.open()
    state.sync()
    state += "more"
    assert state.text() == "pxmore"


@sgl.function
def traced(s, question, style="short"):
    s += sgl.system("You answer in one word, and never say more than that.")
    with s.user():
        s += f"Q: {question.title()} ({style})"
    forks = s.fork(2)
    forks += lambda index: f"{index}" + sgl.gen("a")
    forks.join()
    s += sgl.assistant("So: " + s["a"][0] + sgl.select("b", ["x", "y"]))
    return s["b"]


def test_a_trace_shows_the_nodes_without_a_call():
    trace = traced.trace(style="long")
    assert trace.stopped is None
    assert repr(trace.ret_value) == "{s['b']}"
    assert Argument("question.title(...)") in trace.nodes
    (fork,) = (node for node in trace.nodes if isinstance(node, Branches))
    assert [len(branch.nodes) for branch in fork.traces] == [2, 2]
    lines = str(trace).splitlines()
    assert lines[:3] == ["begin system", "text 'You answer in one word, and never say more than that.'", "end system"]
    assert lines[4:7] == ["text 'Q: '", "text of {question.title(...)}", "text ' (long)'"]
    assert lines[8:10] == ["branch 0", "  text '0'"]
    assert lines[10].startswith("  gen 'a' at ")
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        traced.trace(nothing=1)


def test_a_trace_ends_where_the_program_decides_by_what_is_not_known():
    @sgl.function
    def deciding(s, n):
        s += "Always. "
        s += {1: "one"}[n]

    trace = deciding.trace()
    assert isinstance(trace.stopped, sgl.TraceError)
    assert str(trace) == "text 'Always. '\nstopped: the program decides by {n}, which a trace does not know"
    assert str(deciding.trace(n=1)) == "text 'Always. '\ntext 'one'"

    @sgl.function
    async def waiting(s, n):
        letter(s, "a")
        if await s["x"] == "y":
            s += "never"

    assert "decides by {s['x']}" in str(waiting.trace())

    @sgl.function
    async def copying(s):
        async with s.copy() as copy:
            copy += "a"
        with s.var_scope("v"):
            s += "b"
        async for _ in s.text_iter():
            s += "never"

    assert str(copying.trace()).startswith(
        "branch 0\n  text 'a'\ntext 'b'\nstopped: the program decides by {s.text_iter"
    )


def test_an_argument_may_be_the_content_of_a_message_or_stand_behind_a_gen():
    @sgl.function
    def chat(s, question):
        s += sgl.system("Be brief.") + sgl.user(question)
        s += sgl.assistant(sgl.gen("a") + question)

    lines = str(chat.trace()).splitlines()
    assert lines[3:6] == ["begin user", "text of {question}", "end user"]
    assert lines[-2:] == ["text of {question}", "end assistant"]
    assert chat.cache(sgl.ScriptedBackend("a")) > 0


def test_a_trace_ends_where_an_expression_needs_what_is_not_known():
    @sgl.function
    def choosing(s, labels):
        s += "One of them: "
        s += sgl.select("x", labels)

    trace = choosing.trace()
    assert str(trace).startswith(
        "text 'One of them: '\nstopped: an expression depends on what a trace does not know: choices is"
    )
    assert choosing.cache(sgl.ScriptedBackend()) == len("One of them: ")
    assert choosing.trace(labels=["a", "b"]).stopped is None
    with pytest.raises(sgl.ArgumentError, match="choices is 5"):
        choosing.trace(labels=5)


def test_cache_puts_the_common_beginning_into_the_prefix_cache():
    backend = sgl.ScriptedBackend("a")
    num_tokens = traced.cache(backend)
    prefix = "<|system|>\nYou answer in one word, and never say more than that.<|end|>\n<|user|>\nQ: "
    assert num_tokens == len(prefix)
    assert [(call.prompt, call.sampling) for call in backend.model.calls] == [(prefix, {"max_new_tokens": 0})]
    state = traced.run("why", backend=backend)
    assert state.get_meta_info("a")["branches"][0]["cached_tokens"] >= num_tokens

    @sgl.function
    def varying(s, text):
        s += text

    assert varying.cache(backend) == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_computes_its_common_beginning_once_and_runs_each_body_once(is_async):
    """The trap of A3: finding the common prefix must not run the body on placeholders."""
    counts = []
    prefix = "The same long beginning for every item of the batch. " * 3

    @sgl.function
    def plain(s, n):
        counts.append(n)
        s += prefix + {0: "zero", 1: "one", 2: "two"}[n] + sgl.gen("x")

    @sgl.function
    async def awaiting(s, n):
        counts.append(n)
        s += prefix + {0: "zero", 1: "one", 2: "two"}[n] + sgl.gen("x")

    backend = sgl.ScriptedBackend("y")
    states = (awaiting if is_async else plain).run_batch([(0,), (1,), (2,)], backend=backend)
    assert sorted(counts) == [0, 1, 2]
    assert all(state.get_meta_info("x")["cached_tokens"] >= len(prefix) for state in states)
    assert sum(call.sampling["max_new_tokens"] == 0 for call in backend.model.calls) == 1


def test_a_warm_up_that_fails_leaves_the_errors_to_the_items():
    def before(call):
        if call.sampling["max_new_tokens"] == 0:
            raise sgl.BackendError("no commits today")

    @sgl.function
    def program(s, n):
        s += "a long prompt " * 10 + forced("x", str(n))

    states = program.run_batch([(0,), (1,)], backend=sgl.ScriptedBackend(before=before))
    assert [state["x"] for state in states] == ["0", "1"]

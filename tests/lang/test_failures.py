"""Failures: every wait ends, and everyone sees the same error (C10)."""

import asyncio
import threading

import pytest

import sgl
from sgl.backends.native import NativeBackend
from sgl.backends.scripted import Gate
from sgl.event_loop import event_loop_thread

pytestmark = [pytest.mark.timeout(20), pytest.mark.usefixtures("no_thread_left")]


def broken_at_second(call):
    if call.prompt.endswith("two:"):
        raise ConnectionResetError("the wire is cut")
    return "fine"


@sgl.function
def three(s, in_role=False):
    if in_role:
        s += sgl.user_begin()
    s += "one:" + sgl.gen("a")
    s += "two:" + sgl.gen("b")
    s += "three:" + sgl.gen("c") + "more"
    if in_role:
        s += sgl.user_end()
    s["forks"] = s.fork(2)
    s["forks"].__iadd__(sgl.gen("d"))


@pytest.mark.parametrize("in_role", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_every_access_raises_the_same_error(stream, in_role):
    state = three.run(in_role, stream=stream, backend=sgl.ScriptedBackend(broken_at_second))
    assert state["a"] == "fine"
    error = state.error()
    assert isinstance(error, sgl.ProgramError)
    assert (error.program, error.variable) == ("three", "b")
    assert "test_failures.py:" in error.source
    assert "program 'three' failed in gen 'b' at " in str(error)
    assert "ConnectionResetError: the wire is cut" in str(error)
    assert isinstance(error.__cause__, ConnectionResetError)

    async def read_async():
        return [piece async for piece in state.text_async_iter("c")]

    reads = [
        lambda: state["b"],
        lambda: state["c"],
        lambda: state["unheard of"],
        lambda: state.get_meta_info("b"),
        state.text,
        state.messages,
        state.sync,
        lambda: list(state.text_iter()),
        lambda: list(state.text_iter("b")),
        lambda: asyncio.run(read_async()),
        lambda: state["forks"][1]["d"],
        lambda: state["forks"].join(),
    ]
    for read in reads:
        with pytest.raises(sgl.ProgramError) as caught:
            read()
        assert caught.value is error
    assert state.text(partial=True).endswith("one:finetwo:")


def test_streamed_text_before_the_error_is_delivered_first():
    state = three.run(stream=True, backend=sgl.ScriptedBackend(broken_at_second))
    collected = []

    def consume():
        for piece in state.text_iter():
            collected.append(piece)  # noqa: PERF402 - what came before the error is wanted

    with pytest.raises(sgl.ProgramError, match="the wire is cut"):
        consume()
    assert "".join(collected) == "one:finetwo:"


def test_inline_execution_raises_at_the_statement():
    with pytest.raises(sgl.ProgramError, match="gen 'b'"):
        three.run(use_thread=False, backend=sgl.ScriptedBackend(broken_at_second))


def test_an_exception_of_the_body_goes_on_as_it_is_and_ends_the_state():
    gate = Gate()
    states = []

    @sgl.function
    def raising(s):
        states.append(s)
        s += "p" + sgl.gen("x")
        raise LookupError("no luck")

    backend = sgl.ScriptedBackend("never", before=lambda call: gate)
    with pytest.raises(LookupError, match="no luck"):
        raising.run(backend=backend)
    with pytest.raises(
        sgl.ProgramError, match=r"'raising' failed in its body at .*:\d+: LookupError: no luck"
    ) as caught:
        states[0]["x"]
    assert isinstance(caught.value.__cause__, LookupError)
    state = raising.run(stream=True, backend=backend)
    with pytest.raises(sgl.ProgramError, match="no luck"):
        list(state.text_iter())
    with pytest.raises(sgl.ProgramError, match="no luck"):
        state["undeclared"]


def test_an_exception_inside_a_role_leaves_the_role():
    @sgl.function
    def stuck(s):
        try:
            with s.user():
                s += "half"
                raise LookupError
        except LookupError:
            s += sgl.assistant("whole")

    messages = stuck.run(backend=sgl.ScriptedBackend()).messages()
    assert [message["content"] for message in messages] == ["half", "whole"]


def test_cancel_ends_every_wait_and_aborts_the_request():
    gate, begun = Gate(), threading.Event()

    def before(call):
        begun.set()
        return gate

    @sgl.function
    def waiting(s):
        s += "p" + sgl.gen("x")
        s += "q" + sgl.gen("y")

    backend = sgl.ScriptedBackend("never", before=before)
    state = waiting.run(backend=backend)
    assert begun.wait(5.0)
    state.cancel()
    for name in "xy":
        with pytest.raises(sgl.ProgramError, match="'waiting' was cancelled"):
            state[name]
    event_loop_thread().wait(backend.aclose())
    assert backend.model.aborted == [backend.model.calls[0].payload["rid"]]


class Aborting:
    """A transport that aborts every generation."""

    def __init__(self):
        self.script = sgl.ScriptedBackend("x").model

    async def call(self, path, payload):
        reply = await self.script.call(path, payload)
        if path == "/generate":
            reply["meta_info"]["finish_reason"] = {"type": "abort", "message": "shutting down"}
        return reply

    def stream(self, path, payload):
        return self.script.stream(path, payload)


def test_an_aborted_request_is_an_error():
    @sgl.function
    def aborted(s):
        s += "p" + sgl.gen("x")

    with pytest.raises(sgl.ProgramError, match="aborted: shutting down"):
        aborted.run(backend=NativeBackend(Aborting()))["x"]


def test_what_is_no_backend_is_refused():
    with pytest.raises(sgl.ArgumentError, match="backend is 'http://x'; it must be a backend such as"):
        three.run(backend="http://x")


def test_what_cannot_be_appended_raises_where_it_is_appended():
    @sgl.function
    def wrong(s, value):
        s += value

    backend = sgl.ScriptedBackend()
    for value in (None, 5, ["a"]):
        with pytest.raises(sgl.ArgumentError, match="cannot append"):
            wrong.run(value, backend=backend)
    with pytest.raises(sgl.ArgumentError, match="inside an f-string"):
        f"{sgl.gen('x')}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_gen_that_takes_too_long_is_aborted(stream):
    @sgl.function
    def slow(s):
        s += "p" + sgl.gen("x", timeout_s=0.01)

    backend = sgl.ScriptedBackend("never", before=lambda call: Gate())
    state = slow.run(stream=stream, backend=backend)
    with pytest.raises(sgl.ProgramError, match=r"gen 'x' at .*: no complete output within 0\.01 seconds"):
        state["x"]
    event_loop_thread().wait(backend.aclose())
    assert backend.model.aborted == [backend.model.calls[0].payload["rid"]]
    with pytest.raises(sgl.ArgumentError, match="timeout_s is 0; it must be a number of seconds above 0"):
        sgl.gen("x", timeout_s=0)

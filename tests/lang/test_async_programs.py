"""Async programs: the same semantics without threads (C10; row 13 of table C)."""

import asyncio
import re
import threading

import pytest

import sgl
from sgl.backends.scripted import Gate
from sgl.body_threads import BodyThreads
from sgl.event_loop import event_loop_thread

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("no_thread_left")]


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value))


@sgl.function
async def dialogue(s, name):
    with s.user():
        s += f"I am {name}."
    with s.assistant():
        s += "Hello " + forced("x", name) + sgl.select("y", ["!", "?"])
    value = await s["x"]
    forks = s.fork(2)
    forks += lambda index: forced("v", f"{value}{index}")
    await forks.join()
    pieces = [piece async for piece in s.text_iter("x")]
    return value, "".join(pieces)


TEXT = "<|user|>\nI am Ann.<|end|>\n<|assistant|>\nHello Ann!<|end|>\n"


def test_an_async_program_runs_from_plain_code():
    state = dialogue.run("Ann", backend=sgl.ScriptedBackend())
    assert state.ret_value == ("Ann", "Ann")
    assert (state.text(), state["x"], state["v"]) == (TEXT, "Ann", ["Ann0", "Ann1"])
    streamed = dialogue.run("Ann", stream=True, backend=sgl.ScriptedBackend())
    assert "".join(streamed.text_iter()) == TEXT
    assert streamed["v"] == ["Ann0", "Ann1"]


def test_reads_are_awaited_on_any_loop():
    async def main():
        state = await dialogue.arun("Ann", backend=sgl.ScriptedBackend())
        assert "to be awaited" in repr(state["x"])
        pending = state["x"]
        assert (await pending, await pending) == ("Ann", "Ann")
        assert await state.text() == TEXT
        assert await state.error() is None
        assert (await state.messages())[0] == {"role": "user", "content": "I am Ann."}
        assert (await state.get_meta_info("x"))["completion_tokens"] == 3
        assert (await state.text(partial=True), state.variables()) == (TEXT, ["x", "y", "v"])
        streamed = await dialogue.arun("Ann", stream=True, backend=sgl.ScriptedBackend())
        assert "".join([piece async for piece in streamed.text_iter()]) == TEXT
        pairs = [pair async for pair in streamed.text_async_iter("x", return_meta_data=True)]
        assert "".join(piece for piece, _ in pairs) == "Ann"

    asyncio.run(main())


def test_the_body_runs_in_the_callers_task():
    seen = []

    @sgl.function
    async def program(s):
        seen.append((asyncio.current_task(), threading.current_thread()))
        s += "p"

    async def main():
        await program.arun(backend=sgl.ScriptedBackend())
        return asyncio.current_task(), threading.current_thread()

    assert [asyncio.run(main())] == seen


def test_a_plain_program_can_be_awaited():
    @sgl.function
    def plain(s, value):
        s += "p" + forced("x", value)
        return s["x"]

    async def main():
        backend = sgl.ScriptedBackend()
        states = await asyncio.gather(*(plain.arun(str(n), backend=backend) for n in range(200)))
        assert threading.active_count() < 140
        return [(state.ret_value, await state["x"]) for state in states]

    assert asyncio.run(main()) == [(str(n), str(n)) for n in range(200)]


def test_a_thousand_async_programs_need_no_threads():
    counts = []

    @sgl.function
    async def program(s, n):
        s += "p" + forced("x", str(n))
        counts.append(threading.active_count())
        return await s["x"]

    before = threading.active_count()

    async def main():
        backend = sgl.ScriptedBackend()
        return await asyncio.gather(*(program.arun(n, backend=backend) for n in range(1000)))

    assert [state.ret_value for state in asyncio.run(main())] == [str(n) for n in range(1000)]
    assert max(counts) <= before + 1


def answer(call):
    if call.prompt.endswith(" 42:"):
        raise sgl.BackendError("out of luck", status=500)
    return call.prompt.removeprefix("item ").removesuffix(":")


@sgl.function
async def item(s, number):
    if number == 17:
        raise LookupError(f"no item {number}")
    s += f"item {number}:" + sgl.gen("x")


@pytest.mark.parametrize("num_threads", [1, 32])
def test_batches_keep_order_and_every_failure(num_threads):
    items = [(n,) for n in range(60)]
    options = {"backend": sgl.ScriptedBackend(answer), "num_threads": num_threads, "on_error": "collect"}

    async def main():
        return [
            result if isinstance(result, sgl.BatchFailure) else await result["x"]
            for result in await item.arun_batch(items, **options)
        ]

    plain = item.run_batch(items, **options)
    lazy = list(item.run_batch(items, generator_style=True, progress_bar=True, **options))
    for results in (plain, lazy, asyncio.run(main())):
        assert [index for index, result in enumerate(results) if isinstance(result, sgl.BatchFailure)] == [17, 42]
        assert isinstance(results[17].error, LookupError)
        assert "out of luck" in results[42].traceback
    assert [state["x"] for state in plain if isinstance(state, sgl.ProgramState)] == [
        str(n) for n in range(60) if n not in (17, 42)
    ]


def test_the_first_failure_ends_a_batch():
    gate = Gate()
    backend = sgl.ScriptedBackend("x", before=lambda call: gate)
    with pytest.raises(LookupError, match="no item 17") as caught:
        item.run_batch([(n,) for n in range(18)], backend=backend)
    assert caught.value.__notes__ == ["in item 17 of the batch"]

    async def main():
        await item.arun_batch([(17,), (1,)], backend=backend)

    with pytest.raises(LookupError, match="no item 17"):
        asyncio.run(main())
    assert item.run_batch([], backend=backend) == []


def test_closing_a_lazy_batch_ends_its_items():
    async def main():
        results = item.arun_batch_iter([(n,) for n in range(16)], num_threads=4, backend=sgl.ScriptedBackend(answer))
        first = await anext(results)
        await results.aclose()
        return await first["x"]

    assert asyncio.run(main()) == "0"


def test_a_blocking_read_on_the_event_loop_is_an_error_and_no_deadlock():
    @sgl.function
    def plain(s):
        s += "p" + forced("x", "y")
        return s["x"]

    @sgl.function
    async def wrong(s):
        plain.run()

    sgl.set_default_backend(sgl.ScriptedBackend())
    with pytest.raises(sgl.SglError, match=r"a blocking read on the event loop would wait for itself"):
        wrong.run()

    @sgl.function
    async def wrong_again(s):
        dialogue.run("Ann")

    with pytest.raises(sgl.SglError, match="await the async form of this call"):
        wrong_again.run()


def test_a_body_may_leave_its_own_iterator():
    @sgl.function
    def reading(s):
        s += "p" + forced("x", "abc")
        for _ in s.text_iter():
            break
        s += "q" + forced("y", "z")

    assert reading.run(stream=True, backend=sgl.ScriptedBackend()).text() == "pabcqz"


def test_a_helper_thread_of_a_streaming_body_can_read_the_state():
    """The caller's view waits for the body; the body's own must not, whichever thread reads through it."""

    @sgl.function
    def helped(s):
        s += "p" + forced("x", "abc")
        texts = []

        def help_out():
            s.sync()
            texts.append((s.text(), s["x"], s.error()))

        thread = threading.Thread(target=help_out)
        thread.start()
        thread.join(10.0)
        s += "."
        return texts

    state = helped.run(stream=True, backend=sgl.ScriptedBackend())
    assert state.text() == "pabc."
    assert state.ret_value == [("pabc", "abc", None)]


def test_body_threads_are_bounded_and_never_deadlock():
    threads = BodyThreads(limit=2)
    go, inner_done = threading.Event(), threading.Event()
    order = []

    def outer():
        # What a body starts is what it may wait for: it does not queue behind it.
        threads.start(inner_done.set, name="inner").result(5.0)
        assert go.wait(5.0)

    first, second = threads.start(outer, name="a"), threads.start(outer, name="b")
    third = threads.start(lambda: order.append("third"), name="c")
    assert inner_done.wait(5.0)
    assert order == []
    go.set()
    for future in (first, second, third):
        future.result(5.0)
    assert order == ["third"]
    with pytest.raises(LookupError):
        threads.start(_raise_lookup_error, name="d").result(5.0)


def _raise_lookup_error():
    raise LookupError


def test_an_error_of_an_async_body_is_the_same_everywhere():
    @sgl.function
    async def raising(s):
        s += "p" + forced("x", "y")
        await s["x"]
        raise LookupError("no luck")

    backend = sgl.ScriptedBackend()
    with pytest.raises(LookupError, match="no luck"):
        raising.run(backend=backend)
    state = raising.run(stream=True, backend=backend)
    with pytest.raises(sgl.ProgramError, match=r"'raising' failed in its body at .*test_async.*:\d+: LookupError: no"):
        state.text()

    async def main():
        with pytest.raises(LookupError, match="no luck"):
            await raising.arun(backend=backend)
        state = await raising.arun(stream=True, backend=backend)
        with pytest.raises(sgl.ProgramError, match="no luck"):
            await state["undeclared"]

    asyncio.run(main())


def test_inline_execution_is_for_plain_programs():
    with pytest.raises(sgl.ArgumentError, match="use_thread=False is for plain programs; 'dialogue' is async"):
        dialogue.run("Ann", use_thread=False, backend=sgl.ScriptedBackend())


def test_the_facts_of_an_engine_are_asked_for_once(watched):
    watched.gate.open()
    asked = []
    call = watched.call

    async def counting(path, payload):
        asked.append(path)
        return await call(path, payload)

    watched.call = counting
    for _ in range(3):
        dialogue.run("Ann", backend=watched).sync()
    assert asked.count("/get_model_info") == 1
    assert asked.count("/role_affixes") == 2
    assert event_loop_thread() is event_loop_thread()

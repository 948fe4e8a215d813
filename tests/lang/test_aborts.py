"""What nobody waits for any more is aborted on the server (C14 of table C)."""

import asyncio
import gc

import pytest

import sgl

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("no_thread_left")]


@sgl.function
async def waiting(s):
    s += "p" + sgl.gen("x")
    await s["x"]


@sgl.function
def plain_waiting(s):
    s += "p" + sgl.gen("x")


@pytest.mark.parametrize("program", [waiting, plain_waiting.bind()])
def test_cancelling_the_task_aborts_on_the_server(program, watched):
    async def main():
        async def read():
            state = await program.arun(backend=watched)
            await state["x"]

        task = asyncio.ensure_future(read())
        assert await asyncio.to_thread(watched.begun.wait, 5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        assert await asyncio.to_thread(watched.aborted.wait, 5.0)

    asyncio.run(main())


def test_a_cancelled_run_says_so_to_its_other_readers(watched):
    states = []

    @sgl.function
    async def noting(s):
        states.append(s)
        s += "p" + sgl.gen("x")
        await s["x"]

    async def main():
        task = asyncio.ensure_future(noting.arun(backend=watched))
        assert await asyncio.to_thread(watched.begun.wait, 5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(sgl.ProgramError, match="program 'noting' was cancelled"):
            await states[0]["x"]

    asyncio.run(main())


def test_giving_up_one_read_leaves_the_program_alone(watched):
    async def main():
        state = await plain_waiting.arun(backend=watched)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(state["x"], 0.01)
        watched.gate.open()
        assert await state["x"] == "never"

    asyncio.run(main())
    assert not watched.aborted.is_set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_state_that_nobody_holds_is_aborted(stream, watched):
    state = plain_waiting.run(stream=stream, backend=watched)
    assert watched.begun.wait(5.0)
    del state
    gc.collect()
    assert watched.aborted.wait(5.0)


def test_a_branch_keeps_the_state_that_it_begins_from(watched):
    @sgl.function
    def branching(s):
        s += "p" + sgl.gen("x")
        branch = s.fork(1)[0]
        branch += "!"
        return branch

    branch = branching.run(backend=watched).ret_value
    gc.collect()
    watched.gate.open()
    assert branch.text() == "pnever!"


@pytest.mark.parametrize("is_async", [False, True])
def test_closing_an_iterator_aborts_on_the_server(is_async, watched):
    state = plain_waiting.run(stream=True, backend=watched)

    async def read():
        async for piece in state.text_async_iter():
            assert await asyncio.to_thread(watched.begun.wait, 5.0)
            return piece
        return None

    if is_async:
        assert asyncio.run(read()) == "p"
    else:
        pieces = state.text_iter()
        assert next(pieces) == "p"
        assert watched.begun.wait(5.0)
        pieces.close()
    assert watched.aborted.wait(5.0)
    with pytest.raises(sgl.ProgramError, match="a reader closed its iterator before the end"):
        state["x"]

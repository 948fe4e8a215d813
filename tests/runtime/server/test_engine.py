import asyncio
import threading
from collections.abc import Iterator

import pytest

from fakes.scripted_composition import SCRIPTED
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError, InvalidRequestError, OverloadedError, SglRuntimeError


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine("scripted", factories=SCRIPTED) as engine:
        yield engine


def test_generate_with_the_signature_that_users_know(engine: Engine) -> None:
    assert engine.generate("say:hi", {"temperature": 0})["text"] == "hi"
    assert [reply["text"] for reply in engine.generate(["say:a", "say:b"])] == ["a", "b"]
    assert engine.generate(input_ids=[*b"say:x"])["text"] == "x"
    assert engine.generate("say:a", return_logprob=True)["meta_info"]["output_token_logprobs"][0][0] == -0.5
    assert [reply["text"] for reply in engine.generate("say:ab", stream=True)][-1] == "ab"
    meta = engine.generate("say:a", return_logprob=True, top_logprobs_num=2, priority=1)["meta_info"]
    assert [entry[1] for entry in meta["output_top_logprobs"][0]] == [97, 98]
    assert [reply["text"] for reply in engine.generate("say:a", {"n": 2})] == ["a", "a"]
    with pytest.raises(SglRuntimeError, match="priorty is not a known field"):
        engine.generate("a", priorty=1)


def test_helpers(engine: Engine) -> None:
    assert engine.tokenize("ab") == [97, 98]
    assert engine.flush_cache()["success"]
    assert engine.get_model_info()["model_path"] == "scripted"
    assert engine.get_server_info()["internal_states"][0]["num_running"] == 0
    assert engine.abort("nobody") == []


def test_calls_work_from_any_event_loop_at_once(engine: Engine) -> None:
    async def several() -> list[str]:
        replies = await asyncio.gather(*(engine.async_generate(f"say:{number}") for number in range(8)))
        return [reply["text"] for reply in replies]

    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(several()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [[str(number) for number in range(8)]] * 3


def test_stream_in_a_callers_loop_ends_its_request_when_left(engine: Engine) -> None:
    async def read_some() -> str:
        stream = engine.stream("/generate", {"text": "FOREVER", "sampling_params": {"max_new_tokens": 150}})
        async for reply in stream:
            if len(reply["text"]) >= 2:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        while (await engine.call("/get_server_info"))["internal_states"][0]["num_running"]:
            await asyncio.sleep(0.005)
        return str(reply["text"])

    assert asyncio.run(asyncio.wait_for(read_some(), 10)).startswith("xx")


def test_cancelled_call_ends_its_request(engine: Engine) -> None:
    async def cancel() -> None:
        call = asyncio.ensure_future(engine.call("/generate", {"text": "HANG"}))
        while not (await engine.call("/get_server_info"))["internal_states"][0]["num_running"]:
            await asyncio.sleep(0.005)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while (await engine.call("/get_server_info"))["internal_states"][0]["num_running"]:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(cancel(), 10))


def test_abandoned_iterator_ends_its_request(engine: Engine) -> None:
    replies = engine.generate("HANG FOREVER", {"max_new_tokens": 5}, stream=True)
    assert iter(replies) is replies
    del replies
    other = engine.generate("FOREVER", {"max_new_tokens": 150}, stream=True)
    next(other)
    del other
    while engine.get_server_info()["internal_states"][0]["num_running"]:
        threading.Event().wait(0.005)


def test_wrong_requests_raise_what_the_server_would_answer(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine.generate("a", {"top_p": 7})
    assert (caught.value.param, caught.value.status) == ("sampling_params.top_p", 400)
    with pytest.raises(InvalidRequestError, match="no path"):
        asyncio.run(engine.call("/nowhere"))
    with pytest.raises(InvalidRequestError, match="stream is true"):
        asyncio.run(engine.call("/generate", {"text": "a", "stream": True}))


def test_wrong_options_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"max_total_token is not an option; did you mean max_total_tokens\?"):
        Engine("scripted", factories=SCRIPTED, max_total_token=5)
    with pytest.raises(ConfigError, match="max_total_tokens is 'many'; it must be an integer"):
        Engine("scripted", factories=SCRIPTED, max_total_tokens="many")
    with pytest.raises(ConfigError, match="dtype is 'int3'; it must be one of 'auto', 'float32'"):
        Engine("scripted", factories=SCRIPTED, dtype="int3")


def test_crash_of_the_scheduler_reaches_every_waiter_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with Engine("scripted", factories=SCRIPTED) as engine:
        failures: list[BaseException] = []

        def wait_for_ever() -> None:
            try:
                engine.generate("HANG")
            except SglRuntimeError as error:
                failures.append(error)

        waiter = threading.Thread(target=wait_for_ever)
        waiter.start()
        while not engine.get_server_info()["internal_states"][0]["num_running"]:
            threading.Event().wait(0.005)
        with pytest.raises(SglRuntimeError, match="the scheduler failed: RuntimeError: the script says so"):
            engine.generate("CRASH")
        waiter.join(10)
        assert "the script says so" in str(failures[0])
        with pytest.raises(SglRuntimeError, match="the script says so"):
            engine.generate("say:a")
        with pytest.raises(SglRuntimeError, match="the script says so"):
            asyncio.run(engine.call("/health"))
    assert "scheduler thread failed" in caplog.text


def test_shutdown_ends_waiters_and_later_calls() -> None:
    engine = Engine("scripted", factories=SCRIPTED)
    failures: list[BaseException] = []

    def wait_for_ever() -> None:
        try:
            engine.generate("HANG")
        except SglRuntimeError as error:
            failures.append(error)

    waiter = threading.Thread(target=wait_for_ever)
    waiter.start()
    while not engine.get_server_info()["internal_states"][0]["num_running"]:
        threading.Event().wait(0.005)
    engine.shutdown()
    engine.shutdown()
    waiter.join(10)
    assert isinstance(failures[0], OverloadedError)
    with pytest.raises(OverloadedError, match="shut down"):
        engine.generate("a")

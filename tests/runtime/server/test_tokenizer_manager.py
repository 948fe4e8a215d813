import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fakes.byte_tokenizer import ByteTokenizer
from fakes.scripted_composition import ScriptedHost, ScriptedParts
from sgl_runtime.config_flags import build_config
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    FinishReason,
    SchedulerInput,
    TextDelta,
    TokenizedRequest,
)
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.serving.served_model import served_model_info

LONG = "a" * 20_000


class GatedTokenizer(ByteTokenizer):
    """Long texts become one id, when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        if text != LONG:
            return super().encode(text, add_bos=add_bos)
        assert self.gate.wait(10)
        return [97]


class Harness:
    def __init__(self) -> None:
        self.tokenizer = GatedTokenizer()
        self.sent: list[SchedulerInput] = []
        host = ScriptedHost(self.tokenizer)
        self.manager = TokenizerManager(
            tokenizer=host.tokenizer,
            model_info=served_model_info(build_config({"model_path": "m"}), host, ScriptedParts().facts),
            send=self.sent.extend,
        )

    async def generate(self, **payload: Any) -> dict[str, Any]:
        body = parse_generate(payload)
        async with self.manager.submit(body.requests, stream=False) as submission:
            await submission.finish()
        return submission.pendings[0].reply()

    def deliver(self, rid: str, text: str, **fields: Any) -> None:
        self.manager.deliver([TextDelta(rid=rid, text=text, new_ids=[*text.encode()], **fields)])


def run(test: Callable[[Harness], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(Harness()), 10))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_request_aborted_while_its_text_becomes_ids_is_never_sent() -> None:
    async def test(harness: Harness) -> None:
        reply = asyncio.ensure_future(harness.generate(text=LONG, rid="r"))
        await turns()
        aborting = asyncio.ensure_future(harness.manager.abort("r"))
        await turns()
        (message,) = harness.sent
        assert isinstance(message, AbortRequest)
        harness.manager.deliver([AbortReply(request_id=message.request_id, rids=[])])
        assert await aborting == ["r"]
        harness.tokenizer.gate.set()
        assert (await reply)["meta_info"]["finish_reason"]["type"] == "abort"
        assert harness.sent == [message]

    run(test)


def test_rid_stays_taken_until_the_scheduler_has_let_go_of_it() -> None:
    async def test(harness: Harness) -> None:
        first = asyncio.ensure_future(harness.generate(text="a", rid="r"))
        await turns()
        first.cancel()
        await turns()
        assert [type(message) for message in harness.sent] == [TokenizedRequest, AbortRequest]
        with pytest.raises(SglRuntimeError, match="still runs"):
            await harness.generate(text="a", rid="r")
        harness.deliver("r", "", finish=FinishReason(type="abort"))
        second = asyncio.ensure_future(harness.generate(text="a", rid="r"))
        await turns()
        harness.deliver("r", "b", finish=FinishReason(type="length"))
        assert (await second)["text"] == "b"

    run(test)


def test_rid_of_several_outputs_stays_taken_until_all_of_them_are_gone() -> None:
    async def test(harness: Harness) -> None:
        payload = {"text": "a", "rid": "r", "sampling_params": {"n": 3}}
        first = asyncio.ensure_future(harness.generate(**payload))
        await turns()
        rids = [message.rid for message in harness.sent]
        assert len(set(rids)) == 3
        assert rids[0] == "r"
        harness.deliver("r", "b", finish=FinishReason(type="length"))
        for taken in ({"text": "a", "rid": "r"}, {"text": "a", "rid": rids[2]}):
            with pytest.raises(SglRuntimeError, match="still runs"):
                await harness.generate(**taken)
        first.cancel()
        await turns()
        assert [message.rid for message in harness.sent if isinstance(message, AbortRequest)] == rids[1:]
        for rid in rids[1:]:
            with pytest.raises(SglRuntimeError, match="rid 'r' belongs"):
                await harness.generate(text="a", rid="r")
            harness.deliver(rid, "", finish=FinishReason(type="abort"))
        second = asyncio.ensure_future(harness.generate(text="a", rid="r"))
        await turns()
        harness.deliver("r", "b", finish=FinishReason(type="length"))
        assert (await second)["text"] == "b"

    run(test)


def test_request_that_was_lost_behind_the_scheduler_is_ended_there_too() -> None:
    async def test(harness: Harness) -> None:
        reply = asyncio.ensure_future(harness.generate(text="a", rid="r"))
        await turns()
        harness.deliver("r", "", finish=FinishReason(type="abort", message="dropped", code="internal_error"))
        with pytest.raises(SglRuntimeError, match="dropped") as caught:
            await reply
        assert caught.value.status == 500
        assert isinstance(harness.sent[-1], AbortRequest)
        assert harness.sent[-1].rid == "r"

    run(test)


def test_failed_item_ends_the_rest_of_its_batch() -> None:
    async def test(harness: Harness) -> None:
        reply = asyncio.ensure_future(harness.generate(text=["a", "b"], rid=["x", "y"]))
        await turns()
        harness.deliver("y", "", finish=FinishReason(type="abort", message="no", code="overloaded"))
        with pytest.raises(SglRuntimeError, match="no"):
            await reply
        assert [message.rid for message in harness.sent if isinstance(message, AbortRequest)] == ["x"]

    run(test)


def test_nothing_of_a_batch_is_sent_when_one_prompt_is_too_long() -> None:
    async def test(harness: Harness) -> None:
        with pytest.raises(SglRuntimeError, match=r"\[1\]\.the prompt has 301 tokens|301 tokens"):
            await harness.generate(text=["a", "a" * 300])
        assert harness.sent == []
        assert harness.manager.num_live == 0

    run(test)


def test_text_for_nobody_is_no_error() -> None:
    async def test(harness: Harness) -> None:
        harness.deliver("stranger", "text")
        harness.manager.deliver([AbortReply(request_id="stranger", rids=[])])

    run(test)


def test_drain_lets_requests_finish_and_refuses_new_ones() -> None:
    async def test(harness: Harness) -> None:
        running = asyncio.ensure_future(harness.generate(text="a", rid="r"))
        await turns()
        draining = asyncio.ensure_future(harness.manager.drain(grace_s=5))
        await turns()
        with pytest.raises(SglRuntimeError, match="shutting down"):
            await harness.generate(text="b")
        harness.deliver("r", "done", finish=FinishReason(type="length"))
        assert (await running)["text"] == "done"
        await draining

    run(test)

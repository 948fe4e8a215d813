import asyncio

from fakes.byte_tokenizer import VOCABULARY
from sgl_runtime.ipc.messages import FinishReason, TextDelta
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.submission import Submission


def pending(rid: str) -> PendingReply:
    request = GenerateRequest(rid=rid, client_rid=rid, text="a", input_ids=None, sampling=SamplingParams())
    return PendingReply(request, VOCABULARY, index=0)


def test_request_that_finishes_while_another_is_read_is_counted_once() -> None:
    first, second = pending("a"), pending("b")
    submission = Submission([first, second], stream=True)

    def tell(which: PendingReply, *, last: bool) -> None:
        finish = FinishReason(type="length") if last else None
        which.apply(TextDelta(rid=which.request.rid, text="x", new_ids=[120], finish=finish))
        submission.notify(which)

    async def read() -> list[str]:
        tell(first, last=False)
        tell(second, last=False)
        seen = []
        async for changed in submission.updates():
            seen.append(changed.request.rid)
            if len(seen) == 1:
                tell(second, last=True)
            if len(seen) == 2:
                tell(first, last=True)
        return seen

    assert asyncio.run(asyncio.wait_for(read(), 5)) == ["a", "b", "a"]


def test_call_that_wants_only_the_end_is_woken_only_then() -> None:
    only = pending("a")
    submission = Submission([only], stream=False)

    async def run() -> None:
        waiting = asyncio.ensure_future(submission.finish())
        only.apply(TextDelta(rid="a", text="x", new_ids=[120]))
        submission.notify(only)
        await asyncio.sleep(0)
        assert not waiting.done()
        only.apply(TextDelta(rid="a", text="y", new_ids=[121], finish=FinishReason(type="length")))
        submission.notify(only)
        await asyncio.wait_for(waiting, 5)

    asyncio.run(run())
    assert only.reply()["text"] == "xy"

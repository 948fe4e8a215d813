import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from sgl_runtime.ipc.channels import Addresses, LoopPullChannel, PullChannel, PushChannel
from sgl_runtime.ipc.codec import detokenizer_output_codec, scheduler_input_codec, scheduler_output_codec
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    CloseSessionRequest,
    ContinueRequest,
    ControlReply,
    DetokenizeStart,
    FinishReason,
    FlushCacheReply,
    FlushCacheRequest,
    Heartbeat,
    OpenSessionRequest,
    PauseRequest,
    StatsReply,
    StatsRequest,
    TextDelta,
    TokenAlternatives,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.ipc.request_parts import FloatRows, LogitProcessorCall, SessionTurn
from sgl_runtime.ipc.thread_inbox import ThreadInbox
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.stops.stop_automaton import StopAutomaton

SAMPLING = SamplingParams(
    max_new_tokens=5, stop=("a", "é"), stop_token_ids=(1,), choices=("x", "y"), sampling_seed=2**63 - 1
)
AUTOMATON = StopAutomaton("a", 2, bytes(256), b"\xff\xff\xff\xff" * 4, b"\x00\x01")
INPUTS = [
    TokenizedRequest(rid="r", input_ids=[1, 2], sampling=SAMPLING, return_logprob=True, logprob_start_len=0),
    TokenizedRequest(rid="s", input_ids=[1], sampling=SAMPLING, stop_automata=(AUTOMATON,), token_ids_logprob=(3, 4)),
    AbortRequest(request_id="q", rid="r"),
    FlushCacheRequest(request_id="q"),
    TokenizedRequest(
        rid="t",
        input_ids=[],
        sampling=SamplingParams(max_new_tokens=5, custom_params='{"a": 1}'),
        extra_key="k",
        return_hidden_states=True,
        session=SessionTurn(id="s", rid="r", offset=-1, replace=True, drop_previous_output=True, num_bos=1),
        logit_processor=LogitProcessorCall(name="80", is_pickled=True, params='{"a": 1}'),
    ),
    OpenSessionRequest(request_id="q", session_id="s", capacity_bytes=9, timeout_s=1.5),
    CloseSessionRequest(request_id="q", session_id="s"),
    PauseRequest(request_id="q", mode="in_place"),
    ContinueRequest(request_id="q"),
    StatsRequest(request_id="q"),
]
OUTPUTS = [
    DetokenizeStart(rid="r", stop=("a",)),
    DetokenizeStart(rid="r", stop_automata=(AUTOMATON,)),
    TokenDelta(
        rid="r",
        new_ids=[1],
        output_alternatives=[TokenAlternatives([(-0.5, 1), (-1.5, 2)], [-3.0])],
        input_alternatives=[None, TokenAlternatives([], [])],
    ),
    TokenDelta(rid="r", new_ids=[1], finish=FinishReason(type="stop", matched="a"), input_logprobs=[None, -1.5]),
    TokenDelta(rid="r", new_ids=[], finish=FinishReason(type="stop", matched=7), output_logprobs=[float("-inf")]),
    TokenDelta(rid="r", new_ids=[], prompt_ids=[1, 2], hidden_states=FloatRows(2, b"\x00" * 16)),
    TokenDelta(rid="r", new_ids=[], finish=FinishReason(type="abort", message="m", code="invalid_request", param="p")),
    FlushCacheReply(request_id="q", success=True, message=""),
    ControlReply(request_id="q", message="m", code="overloaded", param="p"),
    AbortReply(request_id="q", rids=["r"]),
    StatsReply(request_id="q", stats={"num_running": 1, "forward_seconds_total": 0.5}),
    Heartbeat(time=1.0),
]


@pytest.fixture
def context() -> Iterator["zmq.Context[Any]"]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


def test_every_message_survives_its_channel() -> None:
    codec = scheduler_input_codec()
    assert codec.decode(codec.encode(INPUTS)) == INPUTS
    outputs = scheduler_output_codec()
    assert outputs.decode(outputs.encode(OUTPUTS)) == OUTPUTS
    texts = detokenizer_output_codec()
    delta = TextDelta(rid="r", text="é", new_ids=[1], text_tail="x", num_text_ids=3)
    assert texts.decode(texts.encode([delta])) == [delta]


def test_message_of_another_channel_is_refused() -> None:
    data = scheduler_output_codec().encode([Heartbeat(time=1.0)])
    with pytest.raises(msgspec.ValidationError):
        scheduler_input_codec().decode(data)


def test_burst_sent_before_the_receiver_exists_arrives_whole_and_in_order(
    tmp_path: Path, context: "zmq.Context[Any]"
) -> None:
    address = Addresses.in_folder(tmp_path).api
    push = PushChannel(context, address, detokenizer_output_codec())
    for number in range(10_000):
        push.send([Heartbeat(time=number)])
    pull = PullChannel(context, address, detokenizer_output_codec())
    received: list[Any] = []
    while len(received) < 10_000:
        pull.wait(5.0)
        drained = pull.drain()
        assert drained, "nothing came for five seconds"
        received.extend(drained)
    assert [message.time for message in received] == list(range(10_000))
    assert pull.drain() == []
    push.close()
    pull.close()


def test_loop_channel_delivers_in_an_event_loop(tmp_path: Path) -> None:
    address = Addresses.in_folder(tmp_path).api
    sent = [Heartbeat(time=float(number)) for number in range(1000)]

    async def exchange() -> list[Any]:
        context: zmq.Context[Any] = zmq.Context()
        pull = LoopPullChannel(context, address, detokenizer_output_codec())
        push = PushChannel(context, address, detokenizer_output_codec())
        got: list[Any] = []
        done = asyncio.Event()

        def deliver(messages: Sequence[Any]) -> None:
            assert messages
            got.extend(messages)
            if len(got) == len(sent):
                done.set()

        # Some lie there before anybody listens, some come while it does.
        push.send(sent[:300])
        pull.open(deliver)
        try:
            for number, message in enumerate(sent[300:]):
                push.send([message])
                if number % 7 == 0:
                    await asyncio.sleep(0)
            await asyncio.wait_for(done.wait(), 5)
        finally:
            pull.close()
            push.close()
            context.term()
        return got

    assert asyncio.run(exchange()) == sent


def test_thread_inbox_wakes_its_reader() -> None:
    inbox: ThreadInbox[int] = ThreadInbox()
    got: list[int] = []

    def read() -> None:
        inbox.wait(10)
        got.extend(inbox.drain())

    reader = threading.Thread(target=read)
    reader.start()
    inbox.put([1, 2])
    reader.join(5)
    assert got == [1, 2]
    inbox.wake()
    inbox.wait(10)
    assert inbox.drain() == []

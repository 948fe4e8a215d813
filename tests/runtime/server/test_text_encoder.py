"""Long and many texts become ids in threads; the ids are those of one text after the other."""

import asyncio
import threading

import pytest

from fakes.byte_tokenizer import ByteTokenizer
from sgl_runtime.server.text_encoder import TextEncoder


class WatchedTokenizer(ByteTokenizer):
    """Remembers the threads that it ran in; two wait for each other where they are told to meet."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.meeting: threading.Barrier | None = None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        self.threads.append(threading.current_thread().name)
        if self.meeting is not None:
            self.meeting.wait(10)
        return super().encode(text, add_bos=add_bos)


@pytest.fixture
def tokenizer() -> WatchedTokenizer:
    return WatchedTokenizer()


def encoded(tokenizer: WatchedTokenizer, texts: list[str], *, num_workers: int = 2) -> list[list[int]]:
    async def run() -> list[list[int]]:
        encoder = TextEncoder(tokenizer, num_workers=num_workers)
        try:
            return await encoder.encode_all(texts, add_bos=False)
        finally:
            encoder.close()

    return asyncio.run(run())


@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 5], [5000], [5000, 1, 4095, 1, 1, 9000, 2], [700] * 40])
def test_many_texts_are_encoded_in_order(tokenizer: WatchedTokenizer, sizes: list[int]) -> None:
    texts = [chr(ord("a") + index % 26) * size for index, size in enumerate(sizes)]
    assert encoded(tokenizer, texts) == [list(text.encode()) for text in texts]


def test_short_texts_stay_in_the_loop_and_long_ones_leave_it(tokenizer: WatchedTokenizer) -> None:
    main = threading.current_thread().name
    encoded(tokenizer, ["short", "texts"])
    assert set(tokenizer.threads) == {main}
    tokenizer.threads.clear()
    encoded(tokenizer, ["x" * 10_000])
    assert tokenizer.threads
    assert main not in tokenizer.threads


def test_workers_run_at_the_same_time(tokenizer: WatchedTokenizer) -> None:
    # Each of the two waits until the other is there: with one worker they never meet.
    tokenizer.meeting = threading.Barrier(2)
    assert [len(ids) for ids in encoded(tokenizer, ["x" * 5000, "y" * 6000])] == [5000, 6000]


def test_a_long_text_holds_up_nobody(tokenizer: WatchedTokenizer) -> None:
    tokenizer.meeting = threading.Barrier(2)

    async def run() -> int:
        encoder = TextEncoder(tokenizer, num_workers=1)
        task = asyncio.create_task(encoder.encode("x" * 5000, add_bos=False))
        turns = 0
        while not tokenizer.threads:
            await asyncio.sleep(0)
            turns += 1
        assert not task.done()
        tokenizer.meeting.wait(10)
        assert len(await task) == 5000
        encoder.close()
        return turns

    assert asyncio.run(run()) > 0

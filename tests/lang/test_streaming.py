"""Streams: what is put together is the final value, always (C12, C13)."""

import asyncio
import random
import re
import threading

import pytest

import sgl
from sgl.backends.scripted import Gate
from sgl.backends.scripted_tokenizer import WordTokenizer

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_thread_left")]

ALPHABET = ["a", "é", "漢", "字", "👨‍👩‍👧", "e\u0301", "한", "🏳️‍🌈", " ", "\n", "\u2028"]


@sgl.function
def streamed(s, value):
    s += "Begin: "
    s += sgl.gen("x", regex=re.escape(value), max_tokens=10_000)
    s += " end." + sgl.select("y", ["!", "?"])


async def read_async(state, name):
    pieces, counts = [], []
    async for piece, meta in state.text_async_iter(name, return_meta_data=True):
        pieces.append(piece)
        counts.append(meta.get("completion_tokens", 0))
        if len(pieces) % 7 == 3:
            await asyncio.sleep(0)
    assert counts == sorted(counts)
    return pieces


def test_pieces_put_together_are_the_value_in_every_run():
    source = random.Random(0)
    backend = sgl.ScriptedBackend()
    for number in range(200):
        value = "".join(source.choices(ALPHABET, k=60))
        state = streamed.run(value, stream=True, backend=backend)
        name = "x" if number % 2 else None
        is_sync = number % 4 < 2
        pieces = list(state.text_iter(name)) if is_sync else asyncio.run(read_async(state, name))
        assert "".join(pieces) == (state["x"] if name else state.text())
        assert state["x"] == value
        assert "" not in pieces
        assert "\ufffd" not in "".join(pieces)
        assert "".join(state.text_iter()) == state.text()


def test_a_variable_grows_while_it_is_generated():
    gate = Gate()
    state = streamed.run("abc", stream=True, backend=sgl.ScriptedBackend(before=lambda call: gate))
    pieces = state.text_iter()
    assert next(pieces) == "Begin: "
    gate.open()
    assert "".join(pieces).startswith("abc end.")
    assert len(list(state.text_iter("x"))) == 1


def test_reading_a_variable_waits_until_the_body_comes_to_it():
    go = threading.Event()

    @sgl.function
    def late(s):
        s += "p"
        assert go.wait(5.0)
        s += sgl.gen("x", regex="ok")

    state = late.run(stream=True, backend=sgl.ScriptedBackend())
    values = []
    reader = threading.Thread(target=lambda: values.append(state["x"]))
    reader.start()
    go.set()
    reader.join(5.0)
    assert values == ["ok"]
    with pytest.raises(sgl.UnknownVariableError):
        state["y"]


def test_other_tasks_run_while_one_waits_for_text():
    gate = Gate()
    state = streamed.run("abc", stream=True, backend=sgl.ScriptedBackend(before=lambda call: gate))

    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            for _ in range(50):
                ticks += 1
                await asyncio.sleep(0)
            gate.open()

        pieces, _ = await asyncio.gather(read_async(state, "x"), tick())
        return "".join(pieces), ticks

    assert asyncio.run(both()) == ("abc", 50)


def test_a_body_can_read_its_own_stream():
    @sgl.function
    def reading(s):
        s += "p" + sgl.gen("x", regex="abc")
        s["pieces"] = list(s.text_iter())

    for stream in (False, True):
        state = reading.run(stream=stream, backend=sgl.ScriptedBackend())
        assert "".join(state["pieces"]) == "pabc"


STOPS = [
    ("foo END bar", "END", "foo ", "END"),
    ("foo END bar", ["END"], "foo ", "END"),
    ("foo END bar", ("E", "EN"), "foo ", "E"),
    ("foo END bar", ["END bar", "ND"], "foo E", "ND"),
    ("END", ["END"], "", "END"),
    ("fooEN", ["END"], "fooEN", 256),
    ("一二三", ["二"], "一", "二"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("answer", "stop", "value", "matched"), STOPS)
def test_stops_are_cut_off_and_reported(answer, stop, value, matched, stream):
    @sgl.function
    def stopping(s):
        s += "p:" + sgl.gen("x", stop=stop) + "|"

    backend = sgl.ScriptedBackend(answer)
    state = stopping.run(stream=stream, backend=backend)
    pieces = list(state.text_iter("x"))
    assert "".join(pieces) == state["x"] == value
    assert state.text() == f"p:{value}|"
    # The longest of the stops that begin at the same place is reported once it is complete; "E" is complete first.
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": matched}


def test_what_a_stop_leaves_of_a_token_is_the_text_to_go_on_from():
    @sgl.function
    def stopping(s):
        s += "p:" + sgl.gen("x", stop="zle")
        s += "!" + sgl.gen("y")

    backend = sgl.ScriptedBackend(["a puzzle", "done"], tokenizer=WordTokenizer())
    state = stopping.run(backend=backend)
    assert (state["x"], state["y"], state.text()) == ("a puz", "done", "p:a puz!done")
    assert backend.model.calls[1].payload["text"] == " puz!"


def test_a_limit_cuts_at_a_whole_character():
    @sgl.function
    def limited(s):
        s += "p:" + sgl.gen("x", max_tokens=4) + "|" + sgl.gen("y", max_tokens=1)

    state = limited.run(backend=sgl.ScriptedBackend("一二三"))
    assert (state["x"], state["y"]) == ("一", "")
    assert state.get_meta_info("x")["finish_reason"] == {"type": "length", "length": 4}
    assert state.text() == "p:一|"

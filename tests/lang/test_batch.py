"""run_batch: order, failures, bounds (C11)."""

import re
import threading

import pytest

import sgl
from sgl.backends.scripted import Gate

pytestmark = [pytest.mark.timeout(20), pytest.mark.usefixtures("no_thread_left")]


def answer(call):
    if call.prompt.endswith(" 42:"):
        raise sgl.BackendError("out of luck", status=500)
    return call.prompt.removeprefix("item ").removesuffix(":")


@sgl.function
def item(s, number, fail_at=17):
    if number == fail_at:
        raise LookupError(f"no item {number}")
    s += f"item {number}:" + sgl.gen("x")


ITEMS = {"dicts": [{"number": n} for n in range(100)], "tuples": [(n,) for n in range(100)]}


@pytest.mark.parametrize("num_threads", [1, 32])
@pytest.mark.parametrize("generator_style", [False, True])
@pytest.mark.parametrize("kind", ["dicts", "tuples"])
def test_collect_keeps_order_and_every_failure(kind, generator_style, num_threads):
    results = list(
        item.run_batch(
            ITEMS[kind],
            backend=sgl.ScriptedBackend(answer),
            num_threads=num_threads,
            generator_style=generator_style,
            on_error="collect",
        )
    )
    assert len(results) == 100
    for number, result in enumerate(results):
        if number not in (17, 42):
            assert result["x"] == str(number)
    body, backend = results[17], results[42]
    assert (body.index, str(body.error)) == (17, "no item 17")
    assert isinstance(body.error, LookupError)
    assert 'raise LookupError(f"no item {number}")' in body.traceback
    assert backend.index == 42
    assert isinstance(backend.error, sgl.ProgramError)
    assert "out of luck" in backend.traceback
    assert backend.state.text(partial=True) == "item 42:"


def test_raise_gives_the_first_error_and_cancels_the_rest():
    gate, begun = Gate(), threading.Event()

    def before(call):
        if call.prompt.endswith(" 1:"):
            begun.set()
            return gate
        return None

    @sgl.function
    def waiting(s, number):
        if number == 0:
            assert begun.wait(5.0)
            raise LookupError("first")
        s += f"item {number}:" + sgl.gen("x")

    backend = sgl.ScriptedBackend("never", before=before)
    with pytest.raises(LookupError, match="first") as caught:
        waiting.run_batch([(n,) for n in range(50)], num_threads=2, backend=backend)
    assert caught.value.__notes__ == ["in item 0 of the batch"]
    assert len(backend.model.calls) < 50


def test_generator_gives_the_first_item_before_the_last_has_started():
    started = []

    @sgl.function
    def noting(s, number):
        started.append(number)
        s += f"{number}"

    results = noting.run_batch(
        [(n,) for n in range(100)], num_threads=4, generator_style=True, backend=sgl.ScriptedBackend()
    )
    assert next(results).text() == "0"
    assert len(started) <= 5
    results.close()
    assert len(started) < 100


def test_each_body_runs_once():
    counts = {}
    lock = threading.Lock()

    @sgl.function
    def counting(s, number):
        with lock:
            counts[number] = counts.get(number, 0) + 1
        s += {1: "one", 2: "two", 3: "three"}[number]

    states = counting.run_batch([(1,), (2,), (3,)], backend=sgl.ScriptedBackend(), progress_bar=True)
    assert [state.text() for state in states] == ["one", "two", "three"]
    assert counts == {1: 1, 2: 1, 3: 1}


def test_items_that_do_not_fit_are_rejected_before_any_request():
    backend = sgl.ScriptedBackend(answer)
    with pytest.raises(TypeError, match=r"item 2 of run_batch: arguments do not fit program 'item'.*'nmuber'"):
        item.run_batch([(0,), {"number": 1}, {"nmuber": 2}], backend=backend)
    with pytest.raises(TypeError, match=r"item 1 of run_batch: .*too many positional arguments"):
        item.run_batch([(0,), (1, 2, 3)], backend=backend)
    with pytest.raises(sgl.ArgumentError, match="item 0 of run_batch is 'text'; it must be a dict"):
        item.run_batch(["text"], backend=backend)
    with pytest.raises(sgl.ArgumentError, match="num_threads is 0"):
        item.run_batch([(0,)], num_threads=0, backend=backend)
    with pytest.raises(sgl.ArgumentError, match="on_error is 'ignore'"):
        item.run_batch([(0,)], on_error="ignore", backend=backend)
    with pytest.raises(TypeError, match="no option 'stream'"):
        item.run_batch([(0,)], stream=True, backend=backend)
    assert backend.model.calls == []


def test_an_empty_batch_is_empty():
    assert item.run_batch([], backend=sgl.ScriptedBackend()) == []


def test_usage_counts_every_call_of_a_run():
    @sgl.function
    def sub(s):
        s += sgl.gen("x", regex="ab")

    @sgl.function
    def program(s):
        s += "prompt"
        sub(s)
        forks = s.fork(2)
        forks += "q" + sgl.gen("v", regex="abc")
        forks.join()
        s += sgl.select("y", ["!", "?"])

    state = program.run(backend=sgl.ScriptedBackend())
    state.sync()
    usage = state.usage()
    assert (usage.num_calls, usage.completion_tokens) == (4, 2 + 3 + 3)
    assert usage.prompt_tokens > usage.cached_tokens > 0
    assert sgl.Usage(1, 200, 50, 30).summary(2.0) == "15 tok/s, 25% cached"


def test_the_progress_bar_shows_rate_and_cache_hits(capsys):
    item.run_batch([(n,) for n in range(3)], progress_bar=True, backend=sgl.ScriptedBackend(answer))
    assert re.search(r"item .* 3/3 .* tok/s, *\d+% cached", capsys.readouterr().out.replace("\n", " "))

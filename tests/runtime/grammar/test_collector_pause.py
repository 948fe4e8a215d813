"""The garbage collector is off while grammars are compiled, and as it was before when all are done."""

import gc
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.collector_pause import paused_collector
from sgl_runtime.grammar.compiler import compile_automaton


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    was_running = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_running else gc.disable)()


def test_the_collector_pauses_and_goes_on_also_when_a_grammar_is_refused() -> None:
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(GrammarError, match="is not JSON"):
        compile_automaton(GrammarSpec("json_schema", "{"), GrammarConfig())
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    compile_automaton(GrammarSpec("json_schema", "{}"), GrammarConfig())
    assert not gc.isenabled()


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_pauses_that_overlap_end_with_the_collector_on(first_to_end: int) -> None:
    began, may_end = [Event(), Event()], [Event(), Event()]

    def pause(index: int) -> None:
        with paused_collector():
            began[index].set()
            may_end[index].wait(10)

    threads = [Thread(target=pause, args=(index,)) for index in range(2)]
    for index, thread in enumerate(threads):
        thread.start()
        assert began[index].wait(10)
    assert not gc.isenabled()
    for index in (first_to_end, 1 - first_to_end):
        may_end[index].set()
        threads[index].join(10)
    assert gc.isenabled()

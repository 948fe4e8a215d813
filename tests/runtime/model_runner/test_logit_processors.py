import pickle
from typing import Any

import numpy as np
import pytest
import torch

from fakes.logit_processors import CountUp, favour
from sgl_runtime.batch import ProcessorCall
from sgl_runtime.errors import ConfigError
from sgl_runtime.model_runner.logit_processors import MAX_UNPICKLED, LogitProcessors

PLACES = np.arange(4)


def call(row: int, name: str, *, is_pickled: bool = False, **params: Any) -> ProcessorCall:
    history = {"__output_ids__": np.arange(row)}
    return ProcessorCall(row=row, name=name, is_pickled=is_pickled, params={**params, **history})


def processors(*names: str) -> LogitProcessors:
    return LogitProcessors({name: f"fakes.logit_processors:{name}" for name in names})


def run(found: LogitProcessors, calls: list[ProcessorCall], logits: torch.Tensor) -> dict[int, str]:
    return found.check(logits, calls, PLACES, found.apply(logits, calls, PLACES))


def test_rows_of_one_processor_are_changed_together_and_the_others_not_at_all() -> None:
    logits = torch.zeros(4, 8)
    calls = [call(0, "favour", token_id=5), call(2, "favour", token_id=7), call(3, "CountUp")]
    assert run(processors("favour", "CountUp"), calls, logits) == {}
    assert logits.argmax(dim=1).tolist() == [5, 0, 7, 3]
    assert torch.equal(logits[1], torch.zeros(8))


def test_the_row_at_fault_fails_alone() -> None:
    logits = torch.zeros(4, 8)
    calls = [call(0, "favour", token_id=5), call(1, "favour", token_id=99), call(3, "favour", token_id=1)]
    failures = run(processors("favour"), calls, logits)
    assert list(failures) == [1]
    assert failures[1].startswith("failed: IndexError")
    assert logits.argmax(dim=1).tolist() == [5, 0, 0, 1]
    assert torch.isfinite(logits[1]).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_shape", "it returned (1, 1); it must return a tensor of shape (1, 8)"),
        ("nothing_left", "left no token to draw: the highest logit is -inf"),
        ("not_a_number", "left no token to draw: the highest logit is nan"),
    ],
)
def test_what_gives_nothing_to_draw_from_fails(name: str, message: str) -> None:
    logits = torch.zeros(4, 8)
    failures = run(processors(name), [call(2, name)], logits)
    assert message in failures[2]
    assert torch.equal(logits, torch.zeros(4, 8))


def test_a_token_mask_may_leave_nothing_of_what_a_processor_left() -> None:
    logits = torch.zeros(4, 8)
    found, calls = processors("favour"), [call(1, "favour", token_id=5)]
    failures = found.apply(logits, calls, PLACES)
    logits[1, 5] = float("-inf")
    assert "left no token" in found.check(logits, calls, PLACES, failures)[1]


@pytest.mark.parametrize("value", [CountUp, CountUp(), favour])
def test_pickled_callables_and_classes_are_taken(value: Any) -> None:
    logits = torch.zeros(4, 8)
    given = call(3, pickle.dumps(value).hex(), is_pickled=True, token_id=3)
    assert run(processors(), [given], logits) == {}
    assert int(logits[3].argmax()) == 3


@pytest.mark.parametrize("data", [b"no pickle", pickle.dumps(3), pickle.dumps(int)])
def test_what_is_no_callable_fails_its_rows(data: bytes) -> None:
    logits = torch.zeros(4, 8)
    failures = run(processors(), [call(0, data.hex(), is_pickled=True), call(1, data.hex(), is_pickled=True)], logits)
    assert set(failures) == {0, 1}
    assert all("cannot be loaded" in failure for failure in failures.values())


def test_few_unpickled_processors_are_kept() -> None:
    found = processors()
    for extra in range(MAX_UNPICKLED + 5):
        data = pickle.dumps(favour) + bytes([extra])
        assert run(found, [call(0, data.hex(), is_pickled=True, token_id=1)], torch.zeros(4, 8)) == {}
    assert found.num_unpickled == MAX_UNPICKLED


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("fakes.logit_processors:missing", "AttributeError"),
        ("fakes.nowhere:favour", "ModuleNotFoundError"),
        ("fakes.logit_processors:NO_PROCESSOR", "cannot be called"),
    ],
)
def test_a_path_that_leads_to_no_processor_is_a_setup_error(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LogitProcessors({"mine": path})

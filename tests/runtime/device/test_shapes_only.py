"""Shapes and types of what `ShapesOnly` answers, beside torch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sgl_runtime.device.shapes_only import ShapesOnly

X = torch.empty(5, 8, dtype=torch.bfloat16, device="meta")
WEIGHT = torch.empty(3, 8, dtype=torch.bfloat16, device="meta")
BIAS = torch.empty(3, dtype=torch.bfloat16, device="meta")
FLOATS = torch.empty(5, 8, device="meta")
IDS = torch.empty(2, 4, dtype=torch.int64, device="meta")
ROWS = torch.empty(4, dtype=torch.int32, device="meta")
COLUMN = torch.empty(5, 1, dtype=torch.bfloat16, device="meta")

CASES: dict[str, Callable[[], Tensor]] = {
    "linear": lambda: functional.linear(X, WEIGHT),
    "linear with bias": lambda: functional.linear(X, WEIGHT, BIAS),
    "linear of three dimensions": lambda: functional.linear(X[None], WEIGHT),
    "product added": lambda: torch.empty(5, 3, dtype=X.dtype, device="meta").addmm_(X, WEIGHT.t()),
    "embedding": lambda: functional.embedding(IDS, WEIGHT),
    "rows": lambda: X[IDS],
    "rows by int32": lambda: X[ROWS],
    "row and column": lambda: X[ROWS, ROWS],
    "broadcast row and column": lambda: X[ROWS, IDS],
    "by truth": lambda: torch.zeros(5, 8)[torch.ones(5, 8, dtype=torch.bool)],
    "slice": lambda: X[1:3],
    "column": lambda: X[:, 0],
    "alike": lambda: torch.empty_like(X),
    "alike of another type": lambda: torch.empty_like(X, dtype=torch.float32),
    "alike of a view": lambda: torch.empty_like(X.t()),
    "sum": lambda: X + X,
    "sum of two types": lambda: X + FLOATS,
    "sum of two shapes": lambda: X + COLUMN,
    "sum with a number": lambda: X + 1,
    "ids and a number": lambda: IDS - 1,
    "ids and a fraction": lambda: IDS * 0.5,
    "bits": lambda: IDS & 1,
    "quotient": lambda: X / X,
    "quotient of ids": lambda: IDS / 2,
    "comparison": lambda: X > 0,
    "comparison of two": lambda: X > FLOATS,
    "either": lambda: torch.where(X > 0, X, X),
    "either of two types": lambda: torch.where(X > 0, X, FLOATS),
    "either or a number": lambda: torch.where(X > 0, X, 0.0),
    "a number or either": lambda: torch.where(X > 0, 0.0, X),
    "sum with a factor": lambda: X.add(X, alpha=2),
    "rounded quotient": lambda: X.div(X, rounding_mode="floor"),
    "product added with a factor": lambda: torch.empty(5, 3, dtype=X.dtype, device="meta").addmm_(
        X, WEIGHT.t(), beta=2
    ),
    "linear by name": lambda: functional.linear(input=X, weight=WEIGHT),
    "broadcast either": lambda: torch.where(COLUMN > 0, X, X),
}


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_torchs(name):
    expected = CASES[name]()
    with ShapesOnly():
        found = CASES[name]()
    assert (found.shape, found.dtype, found.device) == (expected.shape, expected.dtype, expected.device)


def test_tensors_with_values_are_left_to_torch():
    with ShapesOnly():
        assert torch.equal(torch.arange(4)[torch.tensor([2, 0])] + 1, torch.tensor([3, 1]))

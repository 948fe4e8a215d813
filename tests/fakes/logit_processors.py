"""Custom logit processors, named in tests by their import path, and pickled by reference."""

from typing import Any

import torch
from torch import Tensor


def favour(logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
    """The token of each row's `token_id` is the only one that can come."""
    out = torch.full_like(logits, float("-inf"))
    for row, given in zip(out, params, strict=True):
        row[given["token_id"]] = 0.0
    return out


class CountUp:
    """The token that comes is the number of those before."""

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        for row, given in zip(logits, params, strict=True):
            row[len(given["__output_ids__"])] = 1e9
        return logits


def wrong_shape(logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
    return logits[:, :1]


def nothing_left(logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
    return logits.fill_(float("-inf"))


def not_a_number(logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
    return logits.fill_(float("nan"))


NO_PROCESSOR = 3

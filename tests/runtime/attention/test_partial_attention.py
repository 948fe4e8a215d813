"""Attention over parts of a context, put together again."""

import pytest
import torch

from sgl_runtime.attention.partial import Partial, attend_part


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2e-6), (torch.bfloat16, 8e-3)])
def test_two_parts_are_as_exact_as_their_type(dtype, most):
    """In 16 bits a sum of weights, and what parts are weighed by, would be percents from what they are."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, count, 64, generator=generator).to(dtype) for count in (4, 2000, 2000))
    parts = [Partial(*attend_part(q, k[:, part], v[:, part], None)) for part in (slice(0, 1200), slice(1200, 2000))]
    out = parts[0].merge(parts[1])
    assert out.dtype == dtype
    scores = q.double() @ k.double().transpose(1, 2) / 8
    expected = scores.softmax(dim=-1) @ v.double()
    assert (out.double() - expected).norm() / expected.norm() < most

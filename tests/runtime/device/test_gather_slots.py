"""What passes over prompts by another library need besides; in Triton's interpreter where there is no GPU."""

import numpy as np
import pytest
import torch

from sgl_runtime.device.kernels.gather_slots import gather_slots
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.ops import Ops

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_slots_of_contexts_lie_one_row_behind_another():
    table = torch.from_numpy(np.random.default_rng(0).permutation(6 * 2500).reshape(6, 2500).astype(np.int32))
    row_ids, lengths = [4, 0, 5], [1, 2500, 1030]
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    out = gather_slots(
        table.to(DEVICE),
        torch.tensor(row_ids, dtype=torch.int32, device=DEVICE),
        torch.from_numpy(begins).to(DEVICE),
        total=sum(lengths),
        longest=max(lengths),
    )
    expected = torch.cat([table[row, :length] for row, length in zip(row_ids, lengths, strict=True)])
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("rotates", [True, False])
def test_rotated_keys_are_also_kept_where_they_were(rotates):
    heads, groups, dim, tokens = 9, 3, 64, 5
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(tokens, heads + 2 * groups, dim, generator=generator).to(DEVICE)
    cos, sin = (torch.randn(tokens, dim // 2, generator=generator).to(DEVICE) for _ in range(2))
    expected = qkv.clone()
    if rotates:
        expected[:, : heads + groups] = Ops().rotary(qkv[:, : heads + groups], cos, sin)
    keys, values = (torch.zeros(tokens, groups, dim, device=DEVICE) for _ in range(2))
    slots = torch.arange(tokens, device=DEVICE).flip(0)
    rotate_and_store(qkv, (cos, sin) if rotates else None, slots, keys, values, keeps_keys=True)
    torch.testing.assert_close(qkv, expected)
    assert torch.equal(keys[slots], qkv[:, heads : heads + groups])
    assert torch.equal(values[slots], qkv[:, heads + groups :])

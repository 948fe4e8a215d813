"""Where the constrained rows of the slot table stand in their automata, brought into the order of a pass and back."""

import triton.language as tl

from sgl_runtime.device.kernels.kernel import kernel


@kernel()
def gather_rows_kernel(
    rows, states, depths, stacks, class_places, reaches, out_states, out_depths, out_stacks, out_class_places,
    out_reaches, max_depth, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: (rows of the pass,)."""
    index = tl.program_id(0)
    row = tl.load(rows + index).to(tl.int64)
    depth = tl.load(depths + row)
    tl.store(out_states + index, tl.load(states + row))
    tl.store(out_depths + index, depth)
    tl.store(out_class_places + index, tl.load(class_places + row))
    tl.store(out_reaches + index, tl.load(reaches + row))
    levels = tl.arange(0, BLOCK)
    frames = tl.load(stacks + row * max_depth + levels, mask=levels < depth, other=0)
    tl.store(out_stacks + index.to(tl.int64) * max_depth + levels, frames, mask=levels < depth)


@kernel()
def scatter_rows_kernel(
    rows, states, depths, stacks, from_states, from_depths, from_stacks, max_depth, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: (rows of the pass,)."""
    index = tl.program_id(0)
    row = tl.load(rows + index).to(tl.int64)
    depth = tl.load(from_depths + index)
    tl.store(states + row, tl.load(from_states + index))
    tl.store(depths + row, depth)
    levels = tl.arange(0, BLOCK)
    frames = tl.load(from_stacks + index.to(tl.int64) * max_depth + levels, mask=levels < depth, other=0)
    tl.store(stacks + row * max_depth + levels, frames, mask=levels < depth)


@kernel()
def set_rows_kernel(moves, states, depths, stacks, class_places, reaches, max_depth, BLOCK: tl.constexpr):
    """Grid: (moves,).  A move is row, state, class place, reach, depth, and then the frames of the stack."""
    move = moves + tl.program_id(0).to(tl.int64) * (5 + max_depth)
    row = tl.load(move).to(tl.int64)
    depth = tl.load(move + 4)
    tl.store(states + row, tl.load(move + 1))
    tl.store(class_places + row, tl.load(move + 2))
    tl.store(reaches + row, tl.load(move + 3))
    tl.store(depths + row, depth)
    levels = tl.arange(0, BLOCK)
    frames = tl.load(move + 5 + levels, mask=levels < depth, other=0)
    tl.store(stacks + row * max_depth + levels, frames, mask=levels < depth)

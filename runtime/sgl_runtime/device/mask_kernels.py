"""Triton kernels of constrained decoding: token masks from byte automata, and their states moved past tokens.

A token's bytes are walked through the automaton from the request's state.  The vocabulary lies sorted by bytes, one
column for each byte position, so that neighbours share prefixes and a block of tokens dies together.  A token keeps
what it has pushed itself in registers, over the request's stack in memory.

Tables (see `mask_tables`): a state is the place in `table` where its row has one entry for each class of bytes: the
next state, -1, or -2 - e for the special edge e.  In front of these stand a header, twice the slot of the state's
precomputed mask (or -2) plus whether the output may end there, and how many levels must still be opened from the state.

A row of a batch is near the limit on levels where its depth and its `reach`, the most that a token and the shortest way
to an end can open, are over it.  There no mask that was made before is used, and a token must leave a way to an end.
"""

import triton
import triton.language as tl

from sgl_runtime.device.kernels.kernel import kernel

OWN_DEPTH = tl.constexpr(8)
"""How many levels one token may open above those that are open."""


@triton.jit
def _walk(
    tokens, in_range, state0, classes, stack, depth, table, edge_target, edge_argument, edge_need, returns,
    token_bytes, token_lengths, num_tokens, max_depth, is_near, UNKNOWN_STACK: tl.constexpr,
):  # fmt: skip
    """Walk tokens; returns which are allowed, and which pop the request's stack where that is not known."""
    lengths = tl.load(token_lengths + tokens, mask=in_range, other=0)
    state = tl.zeros_like(tokens) + state0
    alive = lengths > 0
    waits = lengths < 0
    none = tl.zeros_like(tokens)
    own, popped = none, none
    f0, f1, f2, f3, f4, f5, f6, f7 = none, none, none, none, none, none, none, none
    place = 0
    running = alive
    while tl.max(running.to(tl.int32), axis=0) > 0:
        byte = tl.load(token_bytes + place * num_tokens + tokens, mask=running, other=0).to(tl.int32)
        column = tl.load(classes + byte, mask=running, other=0).to(tl.int32)
        entry = tl.load(table + state + column, mask=running, other=-1)
        special = running & (entry < -1)
        if tl.max(special.to(tl.int32), axis=0) > 0:
            edge = tl.where(special, -2 - entry, 0)
            target = tl.load(edge_target + edge, mask=special, other=-1)
            argument = tl.load(edge_argument + edge, mask=special, other=0)
            pushes = special & (target >= 0)
            pops = special & (target < 0)
            deep = pops & (own == 0)
            own_pop = pops & (own > 0)
            if UNKNOWN_STACK:
                waits = waits | deep
                remembered = f0
                known = own_pop
            else:
                below = tl.load(stack + depth - 1 - popped, mask=deep & (popped < depth), other=-1)
                remembered = tl.where(own_pop, f0, below)
                known = pops & (remembered >= 0)
            back = tl.load(returns + remembered + argument, mask=known, other=-1)
            level = depth - popped + own
            fits = (own < OWN_DEPTH) & (level < max_depth)
            if is_near:
                fits = fits & (level + tl.load(edge_need + edge, mask=pushes, other=0) <= max_depth)
            entry = tl.where(pushes, tl.where(fits, target, -1), tl.where(pops, back, entry))
            n0 = tl.where(pushes, argument, tl.where(own_pop, f1, f0))
            n1 = tl.where(pushes, f0, tl.where(own_pop, f2, f1))
            n2 = tl.where(pushes, f1, tl.where(own_pop, f3, f2))
            n3 = tl.where(pushes, f2, tl.where(own_pop, f4, f3))
            n4 = tl.where(pushes, f3, tl.where(own_pop, f5, f4))
            n5 = tl.where(pushes, f4, tl.where(own_pop, f6, f5))
            n6 = tl.where(pushes, f5, tl.where(own_pop, f7, f6))
            n7 = tl.where(pushes, f6, tl.where(own_pop, f7, f7))
            f0, f1, f2, f3, f4, f5, f6, f7 = n0, n1, n2, n3, n4, n5, n6, n7
            own = own + pushes.to(tl.int32) - own_pop.to(tl.int32)
            popped = popped + deep.to(tl.int32)
        if is_near:
            needed = tl.load(table + entry - 2, mask=running & (entry >= 0), other=0)
            entry = tl.where(depth - popped + own + needed <= max_depth, entry, -1)
        goes_on = running & (entry >= 0)
        alive = alive & (goes_on | (running == 0))
        state = tl.where(goes_on, entry, state)
        place += 1
        running = goes_on & (lengths > place)
    return alive, waits


@triton.jit
def _pack(flags, WORDS: tl.constexpr):
    """Words of 32 flags each, flag i is bit i % 32 of word i // 32."""
    bits = tl.reshape(flags.to(tl.int32), (WORDS, 32))
    return tl.sum(bits << tl.arange(0, 32)[None, :], axis=1)


@kernel()
def first_masks_kernel(
    states, classes, table, edge_target, edge_argument, edge_need, returns, token_bytes, token_lengths,
    allowed, waiting, num_tokens, num_words, BLOCK: tl.constexpr,
):  # fmt: skip
    """For each state the tokens that stay inside its callee, and those that pop what lies below it.

    Grid: (blocks of tokens, states).  `allowed` and `waiting` are (states, num_words) bits in sorted order.
    """
    row = tl.program_id(1).to(tl.int64)
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive, waits = _walk(
        tokens, tokens < num_tokens, tl.load(states + row), classes, classes, 0, table, edge_target, edge_argument,
        edge_need, returns, token_bytes, token_lengths, num_tokens, 1 << 30, False, UNKNOWN_STACK=True,
    )  # fmt: skip
    words = tl.program_id(0) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
    tl.store(allowed + row * num_words + words, _pack(alive, BLOCK // 32), mask=words < num_words)
    tl.store(waiting + row * num_words + words, _pack(waits, BLOCK // 32), mask=words < num_words)


@kernel()
def walk_masks_kernel(
    states, depths, stacks, class_places, reaches, classes, table, edge_target, edge_argument, edge_need, returns,
    token_bytes, token_lengths, masks, num_tokens, num_words, max_depth, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The masks, in sorted order, of the rows of a batch whose state has no mask that was made before.

    Grid: (PROGRAMS, rows); the blocks of tokens are dealt out to the programs of a row.  A state of -1 is a row that is
    free.
    """
    row = tl.program_id(1).to(tl.int64)
    state = tl.load(states + row)
    if state >= 0:
        depth = tl.load(depths + row)
        is_near = depth + tl.load(reaches + row) > max_depth
        if (tl.load(table + state - 1) < 0) | is_near:
            own_classes = classes + tl.load(class_places + row)
            first = tl.program_id(0) * BLOCK
            while first < num_tokens:
                alive, _ = _walk(
                    first + tl.arange(0, BLOCK), first + tl.arange(0, BLOCK) < num_tokens, state, own_classes,
                    stacks + row * max_depth, depth, table, edge_target, edge_argument, edge_need, returns,
                    token_bytes, token_lengths, num_tokens, max_depth, is_near, UNKNOWN_STACK=False,
                )  # fmt: skip
                words = first // 32 + tl.arange(0, BLOCK // 32)
                tl.store(masks + row * num_words + words, _pack(alive, BLOCK // 32), mask=words < num_words)
                first += PROGRAMS * BLOCK


@kernel()
def order_masks_kernel(
    states, depths, reaches, table, sorted_masks, slot_masks, places, masks, num_sorted_words, num_words, max_depth,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Masks in the order of token ids: from those in sorted order, or those made before.

    Grid: (blocks of ids, rows).  `places` holds the place of each id in the sorted vocabulary, -1 for tokens that no
    constrained output holds, -2 for those that end an output.
    """
    row = tl.program_id(1).to(tl.int64)
    words = tl.program_id(0) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
    in_row = words < num_words
    state = tl.load(states + row)
    if state < 0:
        tl.store(masks + row * num_words + words, tl.full((BLOCK // 32,), -1, tl.int32), mask=in_row)
    else:
        header = tl.load(table + state - 1)
        depth = tl.load(depths + row)
        if (header >= 0) & (depth + tl.load(reaches + row) <= max_depth):
            kept = tl.load(slot_masks + (header >> 1).to(tl.int64) * num_words + words, mask=in_row, other=0)
            tl.store(masks + row * num_words + words, kept, mask=in_row)
        else:
            ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            place = tl.load(places + ids, mask=ids < num_words * 32, other=-1)
            word = tl.load(sorted_masks + row * num_sorted_words + (place >> 5), mask=place >= 0, other=0)
            ends = (header & 1) * (depth == 0).to(tl.int32)
            bit = tl.where(place >= 0, (word >> (place & 31)) & 1, tl.where(place == -2, ends, 0))
            tl.store(masks + row * num_words + words, _pack(bit, BLOCK // 32), mask=in_row)


@kernel(varying=("masks",))
def order_slots_kernel(sorted_masks, accepting, places, masks, num_sorted_words, num_words, BLOCK: tl.constexpr):
    """Masks that are kept, in the order of token ids.

    Grid: (blocks of ids, states).  `accepting` says of each state whether the output may end there.
    """
    row = tl.program_id(1).to(tl.int64)
    ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = tl.program_id(0) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
    place = tl.load(places + ids, mask=ids < num_words * 32, other=-1)
    word = tl.load(sorted_masks + row * num_sorted_words + (place >> 5), mask=place >= 0, other=0)
    ends = tl.load(accepting + row).to(tl.int32)
    bit = tl.where(place >= 0, (word >> (place & 31)) & 1, tl.where(place == -2, ends, 0))
    tl.store(masks + row * num_words + words, _pack(bit, BLOCK // 32), mask=words < num_words)


@kernel()
def waiting_tokens_kernel(
    states, depths, stacks, class_places, reaches, classes, table, edge_target, edge_argument, edge_need, returns,
    token_bytes, token_lengths, list_begins, list_ends, lists, sorted_ids, masks, num_tokens, num_words, max_depth,
    CHUNKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds to the masks the tokens that a mask made before leaves open, because they pop the request's stack.

    Grid: (CHUNKS, rows); the blocks of a row's list are dealt out to its programs.
    """
    row = tl.program_id(1).to(tl.int64)
    state = tl.load(states + row)
    if state >= 0:
        header = tl.load(table + state - 1)
        if (header >= 0) & (tl.load(depths + row) + tl.load(reaches + row) <= max_depth):
            end = tl.load(list_ends + (header >> 1))
            place = tl.load(list_begins + (header >> 1)) + tl.program_id(0) * BLOCK
            while place < end:
                at = place + tl.arange(0, BLOCK)
                in_list = at < end
                tokens = tl.load(lists + at, mask=in_list, other=0)
                alive, _ = _walk(
                    tokens, in_list, state, classes + tl.load(class_places + row), stacks + row * max_depth,
                    tl.load(depths + row), table, edge_target, edge_argument, edge_need, returns, token_bytes,
                    token_lengths, num_tokens, max_depth, False, UNKNOWN_STACK=False,
                )  # fmt: skip
                ids = tl.load(sorted_ids + tokens, mask=in_list, other=0)
                bit = tl.full((BLOCK,), 1, tl.int32) << (ids & 31)
                tl.atomic_or(masks + row * num_words + (ids >> 5), bit, mask=alive & in_list)
                place += CHUNKS * BLOCK


@kernel()
def advance_kernel(
    states, depths, stacks, class_places, classes, table, edge_target, edge_argument, returns,
    id_bytes, id_starts, token_ids, max_depth,
):  # fmt: skip
    """Move the rows of a batch past a token each; a token without bytes, such as an end, leaves the state.

    Grid: (rows,).
    """
    row = tl.program_id(0).to(tl.int64)
    state = tl.load(states + row)
    token = tl.load(token_ids + row)
    if (state >= 0) & (token >= 0):
        depth = tl.load(depths + row)
        own_classes = classes + tl.load(class_places + row)
        place = tl.load(id_starts + token)
        end = tl.load(id_starts + token + 1)
        while (place < end) & (state >= 0):
            column = tl.load(own_classes + tl.load(id_bytes + place).to(tl.int32)).to(tl.int32)
            entry = tl.load(table + state + column)
            if entry < -1:
                target = tl.load(edge_target - 2 - entry)
                argument = tl.load(edge_argument - 2 - entry)
                # Only a token that no mask allows leaves the stack: one that was drawn of logits that are no numbers.
                if target >= 0:
                    is_inside = depth < max_depth
                    tl.store(stacks + row * max_depth + depth, argument, mask=is_inside)
                    depth += 1
                    entry = tl.where(is_inside, target, -1)
                else:
                    depth -= 1
                    is_inside = depth >= 0
                    place_behind = tl.load(stacks + row * max_depth + depth, mask=is_inside, other=0)
                    entry = tl.load(returns + place_behind + argument, mask=is_inside, other=-1)
            state = entry
            place += 1
        tl.store(states + row, state)
        tl.store(depths + row, depth)

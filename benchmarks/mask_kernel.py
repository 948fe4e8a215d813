"""Token masks on a GPU: how long one step of a batch takes, beside the floor of writing the masks.

    python benchmarks/mask_kernel.py --tokenizer DIR [--rows 256] [--json OUT.json]

Needs a CUDA device and Triton.  DIR holds a tokenizer.json with a byte-level vocabulary.  Workloads: the JSON Schema
and the regex of `docs/performance.md` (an array of objects; lines of a log), any JSON value, and all rows inside a
string.
For each, rows stand in different states, from near the start to far, as many as there are; a step is masks for all
rows and the move past one token, captured in a CUDA graph and replayed.  Each is measured with no mask made before,
and with those of the states nearest the start, as the runtime makes them.  The masks of some rows are compared with
a walk on the host, bit by bit; a difference ends the program.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from people_schema import PEOPLE

from sgl_runtime.config import GrammarConfig
from sgl_runtime.device.mask_tables import ArenaSizes, AutomatonArrays, BatchMasks, DeviceAutomaton, MaskTables
from sgl_runtime.device.mask_vocabulary import DeviceVocabulary
from sgl_runtime.grammar.automaton import DEAD, ByteAutomaton, Stack
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import AutomatonCompiler
from sgl_runtime.grammar.token_mask import compute_mask
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder
from sgl_runtime.model_runner.row_grammars import MAX_PRECOMPUTED
from sgl_runtime.tokenizer.vocabulary import build_vocabulary

_MAX_DEPTH = 64
_REPLAYS = 20
_RUNS = 15
_CHECKED_ROWS = 24
_MAX_PLACES = 20_000

_LOG = (
    r"(20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]) ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9] "
    r"(DEBUG|INFO|WARN|ERROR) [a-z]+: [^\n]{1,80}\n){100}"
)
_SPECS = {
    "json": GrammarSpec("json_schema", json.dumps(PEOPLE)),
    "regex": GrammarSpec("regex", _LOG),
    "any value": GrammarSpec("json_schema", "{}"),
}

Place = tuple[int, Stack]


def read_tokens(folder: Path) -> tuple[list[bytes | None], frozenset[int]]:
    """Bytes of each id; None for special tokens.  And the ids that end an output."""
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {each["id"]: (each["content"], each["special"]) for each in data["added_tokens"]}
    vocabulary = build_vocabulary(data["model"]["vocab"], added, data["decoder"])
    tokens = [None if index in vocabulary.special_ids else each for index, each in enumerate(vocabulary.token_bytes)]
    ends = frozenset(index for index, (text, _) in added.items() if text in ("</s>", "<|im_end|>", "<|endoftext|>"))
    return tokens, ends or frozenset([len(tokens) - 1])


def places_of(automaton: ByteAutomaton, wanted: int) -> list[Place]:
    """Different states, each with a stack that leads to it, from near the start to far; repeated if there are fewer."""
    found: dict[int, Place] = {}
    _, letters = np.unique(automaton.byte_classes, return_index=True)
    waiting: deque[Place] = deque([(0, ())])
    # A state is visited once for each stack: where a text ends depends on where it was called.
    visited = set(waiting)
    while waiting and len(visited) < _MAX_PLACES:
        place = waiting.popleft()
        found.setdefault(place[0], place)
        for letter in letters.tolist():
            reached = automaton.run(*place, bytes([letter]))
            if reached[0] != DEAD and reached not in visited and len(reached[1]) < _MAX_DEPTH:
                visited.add(reached)
                waiting.append(reached)
    places = list(found.values())
    return [places[index * len(places) // wanted] for index in range(wanted)]


def put_places(batch: BatchMasks, automaton: DeviceAutomaton, places: Sequence[Place]) -> None:
    """Set the rows of a batch to given states and stacks."""
    for row, (state, stack) in enumerate(places):
        batch.start(row, automaton)
        batch.states[row] = int(automaton.state_rows[state])
        batch.depths[row] = len(stack)
        for level, remembered in enumerate(stack):
            batch.stacks[row, level] = remembered + automaton.return_place


def median_ms(step: Callable[[], object]) -> tuple[float, float, float]:
    """Milliseconds of one step in replays of a captured graph: median, lowest and highest of the runs."""
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_REPLAYS):
            step()
    graph.replay()
    times = []
    for _ in range(_RUNS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / _REPLAYS)
    return statistics.median(times), min(times), max(times)


def check(masks: torch.Tensor, automaton: ByteAutomaton, order: VocabularyOrder, places: Sequence[Place]) -> None:
    """Compare masks with those of the host."""
    rows = masks.cpu().numpy()
    # Rows where the output may end have end bits too, which the walk on the host does not make.
    open_places = [(row, place) for row, place in enumerate(places) if not automaton.accepting[place[0]]]
    for row, place in open_places[:_CHECKED_ROWS]:
        wanted = compute_mask(automaton, *place, order)
        if not np.array_equal(rows[row], wanted):
            differing = int(np.unpackbits((rows[row] ^ wanted).view(np.uint8)).sum())
            sys.exit(f"masks differ in {differing} bits at row {row}, state {place[0]}")


def tokens_for(masks: torch.Tensor) -> torch.Tensor:
    """A token for each row that its mask allows: the last of them."""
    rows = np.unpackbits(masks.cpu().numpy().view(np.uint8), axis=1, bitorder="little")
    last = rows.shape[1] - 1 - rows[:, ::-1].argmax(axis=1)
    return torch.from_numpy(last.astype(np.int32)).to(masks.device)


def time_of_moves(batch: BatchMasks, tokens: torch.Tensor) -> float:
    """Milliseconds of moving all rows past a token each, after they were set back to where they were."""
    states, depths, stacks = batch.states.clone(), batch.depths.clone(), batch.stacks.clone()

    def step() -> None:
        batch.states.copy_(states)
        batch.depths.copy_(depths)
        batch.stacks.copy_(stacks)
        batch.advance(tokens)

    return median_ms(step)[0]


def main() -> None:
    """Measure, check and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda")
    tokens, end_ids = read_tokens(options.tokenizer)
    order = VocabularyOrder.of(GrammarVocabulary(tokens, end_ids, len(tokens)))
    vocabulary = DeviceVocabulary(tokens, end_ids=end_ids, size=len(tokens), device=device)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
          f"python {platform.python_version()}; vocabulary {len(tokens)}, {options.rows} rows")  # fmt: skip
    compiler = AutomatonCompiler(GrammarConfig(), order.usable_bytes)
    floor = torch.empty((options.rows, vocabulary.num_words), dtype=torch.int32, device=device)
    floor_ms, _, _ = median_ms(lambda: floor.fill_(1))
    results: list[dict[str, Any]] = [{"workload": "floor: writing the masks", "median_ms": floor_ms}]
    heading = f"{'workload':<44}{'states':>8}{'distinct':>9}{'upload ms':>10}{'masks ms':>10}"
    print(f"{heading}{'lowest':>9}{'highest':>9}{'move ms':>9}")
    print(f"{'floor: writing the masks':<44}{'':>27}{floor_ms:>10.4f}")
    for name, spec in _SPECS.items():
        automaton = compiler.compile(spec)
        places = places_of(automaton, options.rows)
        inside = [place for place in places if (compute_mask(automaton, *place, order) != 0).mean() > 0.9][:1]
        cases = {name: places} | ({f"{name}, all inside a string": inside * options.rows} if inside else {})
        for precompute in (False, True):
            results += measure(automaton, cases, vocabulary, order, precompute=precompute, device=device)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def measure(
    automaton: ByteAutomaton,
    cases: dict[str, list[Place]],
    vocabulary: DeviceVocabulary,
    order: VocabularyOrder,
    *,
    precompute: bool,
    device: torch.device,
) -> list[dict[str, Any]]:
    """Upload an automaton, and time steps of its batches."""
    arrays = AutomatonArrays(
        automaton.byte_classes, automaton.table, automaton.accepting,
        automaton.edge_target, automaton.edge_argument, automaton.returns,
        automaton.needed_depth, automaton.needed_behind,
    )  # fmt: skip
    num_made = min(automaton.num_states, MAX_PRECOMPUTED)
    sizes = ArenaSizes(entries=1 << 25, slots=num_made if precompute else 1, list_entries=1 << 25)
    tables = MaskTables(vocabulary, device, sizes)
    slots = np.arange(num_made) if precompute else None
    tables.add(arrays, precompute=slots)  # Compiles the kernels.
    tables = MaskTables(vocabulary, device, sizes)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    resident = tables.add(arrays, precompute=slots)
    torch.cuda.synchronize()
    upload_ms = (time.perf_counter() - begin) * 1e3
    found = []
    for name, places in cases.items():
        batch = BatchMasks(tables, max_rows=len(places), max_depth=_MAX_DEPTH, device=device)
        put_places(batch, resident, places)
        check(batch.make(len(places)), automaton, order, places)
        masks_ms, lowest, highest = median_ms(partial(batch.make, len(places)))
        move_ms = time_of_moves(batch, tokens_for(batch.masks[: len(places)]))
        label = f"{name}{', rows made before' if precompute else ''}"
        start = f"{label:<44}{automaton.num_states:>8}{len({state for state, _ in places}):>9}{upload_ms:>10.2f}"
        print(f"{start}{masks_ms:>10.4f}{lowest:>9.4f}{highest:>9.4f}{move_ms:>9.4f}")
        found.append(
            {
                "workload": label,
                "states": automaton.num_states,
                "distinct": len({state for state, _ in places}),
                "upload_ms": upload_ms,
                "median_ms": masks_ms,
                "move_ms": move_ms,
            }
        )
    return found


if __name__ == "__main__":
    main()

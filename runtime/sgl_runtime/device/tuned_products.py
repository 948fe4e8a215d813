"""TunedProducts: for each linear of a model and some numbers of rows, the fastest algorithm of the vendor's library.

The library's heuristics name one first; of those that they name for the other linears of the model at as many rows, one
is often faster, at few rows by a tenth.  Each is timed over the weights of several layers, so that none is found in the
cache; what was found is kept in a file for the next start.
"""

import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.device.cublas_lt import BoundProduct, CublasLt, ProductShape
from sgl_runtime.device.kept_file import keep_file
from sgl_runtime.device.native_library import LibraryError

logger = logging.getLogger(__name__)

WEIGHT_BYTES = 128 << 20
"""Weights of different layers that a timing goes over: more than any cache holds."""

FINALISTS, REPEATS = 4, 5
"""Of the algorithms timed once, how many are timed again, and how often."""

WORTH = 0.98
"""Share of the time of the library's own choice from which on another is taken."""

TOLERANCE = 1e-2
"""Relative error of the norm; bfloat16 results of different orders of summation differ by about 3e-3."""

_SLEEP_CYCLES = 150_000
"""A pause of the device, in which the host gets ahead of it: what is timed then has no gaps."""

Matrix = tuple[int, int]
"""Outputs and inputs of a linear."""

Use = tuple[Matrix, bool]
"""A linear, and whether its result is added to what the output holds; the fastest of one is not that of the other."""

Timer = Callable[[Sequence[Callable[[], object]]], float]
"""Seconds of each of some launches, which follow one another without gaps."""


class TunedProducts:
    """See the module.

    Args:
        library: The library.
        folder: Where what was found is kept.
        device_name: Of the GPU: on another, others are the fastest.
    """

    def __init__(self, library: CublasLt, *, folder: Path, device_name: str) -> None:
        self._library = library
        name = "".join(char if char.isalnum() else "-" for char in device_name)
        self._path = folder / f"{name}-{library.version}.json"
        self._row_counts: list[int] = []
        self._chosen: dict[ProductShape, bytes | None] = {}
        self._bound: dict[tuple[int, int, int, bool], BoundProduct | None] = {}

    def tune(self, weights: Mapping[Use, Sequence[Tensor]], row_counts: Sequence[int], *, timer: Timer) -> None:
        """Find the fastest algorithm for each linear at each number of rows.

        Args:
            weights: Weights of several layers for each use, all of one type.
            row_counts: Numbers of rows.  What is found for one also serves those a little below it.
            timer: Measures launches.
        """
        begin = time.monotonic()
        known = self._read()
        self._row_counts = sorted(row_counts)
        num_timed = 0
        for rows in self._row_counts:
            shapes = {
                (matrix, adds): ProductShape(rows, *matrix, adds=adds, dtype=some[0].dtype)
                for (matrix, adds), some in weights.items()
            }
            pool: dict[bytes, None] | None = None
            for use, shape in shapes.items():
                key = _key(shape)
                if key not in known:
                    if pool is None:
                        pool = {each: None for other in shapes.values() for each in self._candidates(other)}
                    found = self._fastest(shape, _some(weights[use]), list(pool), timer)
                    known[key] = "" if found is None else found.hex()
                    num_timed += 1
                self._chosen[shape] = bytes.fromhex(known[key]) or None
        if num_timed:
            self._write(known)
        logger.info(
            "matrix products tuned shapes=%d timed=%d better=%d seconds=%.2f",
            len(self._chosen), num_timed, sum(x is not None for x in self._chosen.values()), time.monotonic() - begin,
        )  # fmt: skip

    def find(self, rows: int, weight: Tensor, *, adds: bool) -> BoundProduct | None:
        """What computes a linear of so many rows; None: the library's own choice is as good.

        Args:
            rows: T.
            weight: (O, I).
            adds: Whether the result is added to what the output holds.
        """
        key = (rows, weight.shape[0], weight.shape[1], adds)
        if key not in self._bound:
            self._bound[key] = self._bind(ProductShape(*key, dtype=weight.dtype))
        return self._bound[key]

    def _bind(self, shape: ProductShape) -> BoundProduct | None:
        rows = next((count for count in self._row_counts if count >= shape.rows), None)
        # One for many more rows would waste some of its tiles.
        if rows is None or 4 * shape.rows <= 3 * rows:
            return None
        algorithm = self._chosen.get(shape._replace(rows=rows))
        if algorithm is None:
            return None
        product = self._library.product(shape)
        return product.bind(algorithm) if product.accepts(algorithm) else None

    def _candidates(self, shape: ProductShape) -> list[bytes]:
        return self._library.product(shape).candidates()

    def _fastest(
        self, shape: ProductShape, weights: Sequence[Tensor], pool: Sequence[bytes], timer: Timer
    ) -> bytes | None:
        """The fastest of the pool; None where the library's own choice is as fast."""
        x = torch.randn(shape.rows, shape.inputs, device=weights[0].device).to(shape.dtype)
        out = torch.zeros(shape.rows, shape.outputs, dtype=shape.dtype, device=x.device)
        expected = F.linear(x, weights[0])
        product = self._library.product(shape)
        timed: list[tuple[float, bytes, list[Callable[[], object]]]] = []
        for algorithm in pool:
            if not product.accepts(algorithm):
                continue
            bound = product.bind(algorithm)
            launches = [_launch(bound, x, weight, out) for weight in weights]
            try:
                launches[0]()
                timed.append((timer(launches), algorithm, launches))
            except LibraryError:
                continue
        timed.sort(key=lambda entry: entry[0])
        launches = [_own(x, weight, out if shape.adds else None) for weight in weights]
        own = statistics.median(timer(launches) for _ in range(REPEATS))
        finals = [
            (statistics.median(timer(launches) for _ in range(REPEATS)), algorithm, launches)
            for _, algorithm, launches in timed[:FINALISTS]
        ]
        for took, algorithm, launches in sorted(finals, key=lambda entry: entry[0]):
            if took >= WORTH * own:
                return None
            out.zero_()
            launches[0]()
            error = (out.float() - expected.float()).norm() / expected.float().norm()
            if bool(error < TOLERANCE):
                return algorithm
        return None

    def _read(self) -> dict[str, str]:
        """What earlier starts found; a file that is damaged is as none."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                return {}
            for value in found.values():
                bytes.fromhex(value)
        except (OSError, ValueError, TypeError):
            return {}
        return found

    def _write(self, known: Mapping[str, str]) -> None:
        """Keep what was found; a folder that cannot be written costs the next start some seconds."""
        try:
            keep_file(self._path, json.dumps(known).encode())
        except OSError as error:
            logger.warning("tuned matrix products are not kept path=%s error=%s", self._path, error)


def device_timer(launches: Sequence[Callable[[], object]]) -> float:
    """See `Timer`; on the GPU in use."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(_SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    begin.record()
    for launch in launches:
        launch()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / len(launches)


def _some(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    return weights[: max(2, -(-WEIGHT_BYTES // weights[0].nbytes))]


def _launch(bound: BoundProduct, x: Tensor, weight: Tensor, out: Tensor) -> Callable[[], object]:
    return lambda: bound.run(x, weight, out)


def _own(x: Tensor, weight: Tensor, out: Tensor | None) -> Callable[[], object]:
    return (lambda: F.linear(x, weight)) if out is None else (lambda: out.addmm_(x, weight.t()))


def _key(shape: ProductShape) -> str:
    dtype = str(shape.dtype).removeprefix("torch.")
    return f"{shape.rows} {shape.outputs} {shape.inputs} {dtype}{' added' if shape.adds else ''}"

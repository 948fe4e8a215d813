"""The choice among a library's algorithms: by time, within what is right, kept for the next start."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from sgl_runtime.device.cublas_lt import CublasLt, ProductShape
from sgl_runtime.device.cuda import CudaOps
from sgl_runtime.device.native_library import LibraryError
from sgl_runtime.device.tuned_products import TunedProducts, Use, device_timer


class FakeBound:
    def __init__(self, library: "FakeLibrary", algorithm: bytes, adds: bool) -> None:
        self.owner, self.algorithm, self.adds = library, algorithm, adds

    def run(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        self.owner.ran.append(self.algorithm)
        if self.algorithm in self.owner.refused:
            raise LibraryError("no")
        result = F.linear(x, weight) * (2 if self.algorithm in self.owner.wrong else 1)
        out.copy_(out + result if self.adds else result)


class FakeProduct:
    def __init__(self, library: "FakeLibrary", shape: ProductShape) -> None:
        self.owner, self.shape = library, shape

    def candidates(self) -> list[bytes]:
        return self.owner.named.get((self.shape.outputs, self.shape.inputs), [])

    def accepts(self, algorithm: bytes) -> bool:
        return algorithm not in self.owner.unfit

    def bind(self, algorithm: bytes) -> FakeBound:
        return FakeBound(self.owner, algorithm, self.shape.adds)


class FakeLibrary:
    """Two matrices, and what the heuristics name for each."""

    version = 7

    def __init__(self) -> None:
        self.named = {(8, 4): [b"a", b"b"], (6, 4): [b"c"]}
        self.refused: set[bytes] = set()
        self.unfit: set[bytes] = set()
        self.wrong: set[bytes] = set()
        self.ran: list[bytes] = []
        self.seconds = {b"a": 3.0, b"b": 2.0, b"c": 1.0, None: 2.5}

    def product(self, shape: ProductShape) -> FakeProduct:
        return FakeProduct(self, shape)

    def timer(self, launches: Sequence[Callable[[], object]]) -> float:
        before = len(self.ran)
        for launch in launches:
            launch()
        return self.seconds[self.ran[before] if len(self.ran) > before else None]


def weights(count: int = 2, *, adds: bool = False) -> dict[Use, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return {
        (matrix, adds): [torch.randn(*matrix, generator=generator).bfloat16() for _ in range(count)]
        for matrix in ((8, 4), (6, 4))
    }


def tuned(library: FakeLibrary, folder: Path, *, adds: bool = False) -> TunedProducts:
    products = TunedProducts(library, folder=folder, device_name="A GPU/1")  # type: ignore[arg-type]
    products.tune(weights(adds=adds), [4, 16], timer=library.timer)
    return products


def chosen(products: TunedProducts, rows: int, matrix: tuple[int, int] = (8, 4), *, adds: bool = False) -> bytes | None:
    found = products.find(rows, torch.empty(*matrix, dtype=torch.bfloat16), adds=adds)
    return None if found is None else found.algorithm  # type: ignore[attr-defined]


def test_the_fastest_is_taken_also_if_it_was_named_for_another_linear(tmp_path: Path) -> None:
    products = tuned(FakeLibrary(), tmp_path)
    assert chosen(products, 4) == b"c"
    assert chosen(products, 4, (6, 4)) == b"c"


@pytest.mark.parametrize("adds", [False, True])
def test_what_is_added_is_chosen_for_itself(tmp_path: Path, adds: bool) -> None:
    products = tuned(FakeLibrary(), tmp_path, adds=adds)
    assert chosen(products, 4, adds=adds) == b"c"
    assert chosen(products, 4, adds=not adds) is None


def test_what_was_found_of_one_use_does_not_count_for_the_other(tmp_path: Path) -> None:
    tuned(FakeLibrary(), tmp_path)
    library = FakeLibrary()
    tuned(library, tmp_path, adds=True)
    assert library.ran


def test_of_two_numbers_of_rows_the_next_above_counts_if_it_is_near(tmp_path: Path) -> None:
    products = tuned(FakeLibrary(), tmp_path)
    assert [chosen(products, rows) for rows in (3, 4, 12, 13, 16, 17)] == [None, b"c", None, b"c", b"c", None]


@pytest.mark.parametrize("fault", ["refused", "unfit", "wrong"])
def test_what_does_not_work_is_passed_over(tmp_path: Path, fault: str) -> None:
    library = FakeLibrary()
    getattr(library, fault).add(b"c")
    assert chosen(tuned(library, tmp_path), 4) == b"b"


def test_the_librarys_own_choice_stays_if_nothing_is_faster(tmp_path: Path) -> None:
    library = FakeLibrary()
    library.seconds[None] = 1.01
    assert chosen(tuned(library, tmp_path), 4) is None


def test_what_was_found_is_not_measured_again(tmp_path: Path) -> None:
    tuned(FakeLibrary(), tmp_path)
    library = FakeLibrary()
    products = tuned(library, tmp_path)
    assert library.ran == []
    assert chosen(products, 16) == b"c"


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"4 8 4 bfloat16": 3}), json.dumps({"4 8 4 bfloat16": "xyz"})])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    tuned(FakeLibrary(), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    library = FakeLibrary()
    assert chosen(tuned(library, tmp_path), 4) == b"c"
    assert library.ran


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert chosen(tuned(FakeLibrary(), file / "folder"), 4) == b"c"


class FakeProducts:
    """Keeps what is to be tuned."""

    def tune(self, weights: dict[Use, list[torch.Tensor]], row_counts: Sequence[int], *, timer: object) -> None:
        self.given = {use: len(some) for use, some in weights.items()}


def test_linears_are_tuned_as_a_rehearsal_used_them() -> None:
    products = FakeProducts()
    ops = CudaOps(products)  # type: ignore[arg-type]
    for matrix in ((8, 4), (8, 4), (4, 8), (6, 4)):
        ops.pack_weight(torch.zeros(matrix, dtype=torch.bfloat16))
    x, wide, down = (torch.zeros(shape, dtype=torch.bfloat16, device="meta") for shape in ((3, 4), (8, 4), (4, 8)))
    ops.add_linear(x, ops.linear(x, wide), down)
    ops.tune_linears([16])
    assert products.given == {((8, 4), False): 2, ((4, 8), True): 1}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_algorithm_that_the_library_names_is_right(dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    library = CublasLt(device)
    for rows in (2, 33, 256):
        x, weight = (torch.randn(*shape, device=device).to(dtype) for shape in ((rows, 512), (384, 512)))
        out = torch.randn(rows, 384, device=device).to(dtype)
        for adds in (False, True):
            product = library.product(ProductShape(rows, 384, 512, adds, dtype))
            candidates = product.candidates()
            assert candidates
            expected = F.linear(x.double(), weight.double()) + (out.double() if adds else 0)
            for algorithm in candidates:
                assert product.accepts(algorithm)
                result = out.clone()
                product.bind(algorithm).run(x, weight, result)
                error = (result.double() - expected).norm() / expected.norm()
                assert error < 1e-2


@pytest.mark.gpu
def test_tuned_products_are_those_of_the_library(tmp_path: Path) -> None:
    device = torch.device("cuda")
    some = [torch.randn(384, 512, device=device).bfloat16() for _ in range(4)]
    products = TunedProducts(CublasLt(device), folder=tmp_path, device_name="gpu")
    products.tune({((384, 512), adds): some for adds in (False, True)}, [16, 64], timer=device_timer)
    for rows, adds in itertools.product((13, 16, 64), (False, True)):
        x = torch.randn(rows, 512, device=device).bfloat16()
        found = products.find(rows, some[0], adds=adds)
        if found is not None:
            out = torch.full((rows, 384), 1.0 if adds else float("nan"), device=device).bfloat16()
            found.run(x, some[0], out)
            torch.testing.assert_close(out, F.linear(x, some[0]) + int(adds), atol=0.5, rtol=2e-2)

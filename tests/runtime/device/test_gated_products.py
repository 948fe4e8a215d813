"""Gated linears as one kernel: the kernel on a Hopper beside float64, and when it is taken."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fakes.kernel_cases import TOLERANCE, distance, random
from sgl_runtime.device import gated_products
from sgl_runtime.device.cuda import CudaOps
from sgl_runtime.device.gated_products import TILE_OUTS, GatedProducts, tile_outs
from sgl_runtime.device.native_library import LibraryError, NativeLibrary
from sgl_runtime.device.nvrtc import Nvrtc
from sgl_runtime.device.ops import Norm, Ops

ROUNDING = {torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""Relative error of the norm: that of rounding the result."""


class FakeGated(GatedProducts):
    """Takes four rows and more, and fails if it is told to."""

    def __init__(self, error: LibraryError | None = None) -> None:
        self.error, self.num_runs = error, 0

    def takes(self, x: Tensor, weight: Tensor) -> bool:
        return x.shape[0] >= 4

    def run(self, x: Tensor, weight: Tensor) -> Tensor:
        self.num_runs += 1
        if self.error is not None:
            raise self.error
        return Ops().silu_and_mul(x @ weight.t())


def case(rows: int, inputs: int = 64, outs: int = 96) -> tuple[Tensor, Norm, Tensor]:
    x, scale = random(rows, inputs), random(inputs, seed=1)
    return x, (scale, 1e-5), random(outs, inputs, seed=2) * inputs**-0.5


def test_many_rows_are_one_product_and_few_are_two():
    gated = FakeGated()
    ops = CudaOps(None, gated)
    for rows, runs in ((3, 0), (4, 1), (9, 2)):
        arguments = case(rows)
        assert distance(ops.gated_linear(*arguments), Ops().gated_linear(*arguments)) < TOLERANCE[torch.float32]
        assert gated.num_runs == runs
    x, norm, weight = case(9)
    bias = random(96, seed=3)
    assert distance(ops.gated_linear(x, norm, weight, bias), Ops().gated_linear(x, norm, weight, bias)) < 1e-5
    assert gated.num_runs == 2


def test_a_kernel_that_cannot_be_made_is_not_asked_for_again(caplog: pytest.LogCaptureFixture):
    gated = FakeGated(LibraryError("no compiler"))
    ops = CudaOps(None, gated)
    arguments = case(5)
    for _ in range(2):
        assert distance(ops.gated_linear(*arguments), Ops().gated_linear(*arguments)) < TOLERANCE[torch.float32]
    assert gated.num_runs == 1
    assert [record.getMessage() for record in caplog.records] == [
        "gated linears are two kernels each from now on: no compiler"
    ]


@pytest.mark.parametrize(
    ("row_tiles", "num_outs", "expected"),
    [(1, 28672, 224), (1, 6144, 96), (2, 6144, 192), (4, 6144, 192), (32, 28672, 256)],
)
def test_tiles_are_as_wide_as_keeps_all_clusters_busy(row_tiles: int, num_outs: int, expected: int):
    assert tile_outs(row_tiles, num_outs, 66) == expected


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch brings the compiler here")
def test_without_the_compiler_the_error_names_it(tmp_path: Path):
    with pytest.raises(LibraryError, match=r"NVRTC of CUDA 0 cannot be loaded: .*libnvrtc"):
        Nvrtc(tmp_path, "sm_90a")


def test_a_call_that_fails_says_which_and_how():
    library = NativeLibrary("libc.so.6", "the C library")
    library.call("abs", 0)
    with pytest.raises(LibraryError, match=r"^abs failed with status 3$"):
        library.call("abs", -3)
    with pytest.raises(LibraryError, match=r"^a library that is not there cannot be loaded: libnothing\.so"):
        NativeLibrary("libnothing.so.1", "a library that is not there")


def hopper(folder: Path) -> GatedProducts:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is written for compute capability 9.0")
    return GatedProducts(torch.device("cuda"), folder=folder)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("outs", TILE_OUTS)
@pytest.mark.parametrize(
    ("rows", "inputs", "num_outs"),
    [(256, 1024, 6144), (1, 64, 32), (250, 192, 2016), (777, 4096, 3072), (2048, 128, 448)],
)
def test_the_kernel_equals_its_plain_twin(rows, inputs, num_outs, outs, dtype, tmp_path, monkeypatch):
    products = hopper(tmp_path)
    monkeypatch.setattr(gated_products, "tile_outs", lambda *_: outs)
    x, weight = random(rows, inputs, dtype=dtype), random(num_outs, inputs, dtype=dtype, seed=1) * inputs**-0.5
    expected = Ops().silu_and_mul(x.double() @ weight.double().t())
    assert distance(products.run(x, weight), expected) < ROUNDING[dtype]


@pytest.mark.gpu
def test_the_kernel_in_a_graph_reads_what_is_there_then(tmp_path):
    products = hopper(tmp_path)
    x, weight = random(256, 512, dtype=torch.bfloat16), random(1024, 512, dtype=torch.bfloat16, seed=1) * 512**-0.5
    assert products.takes(x, weight)
    assert not products.takes(x[:200], weight)
    assert not products.takes(x[:, :448], weight[:, :448])
    graph = torch.cuda.CUDAGraph()
    products.run(x, weight)
    with torch.cuda.graph(graph):
        out = products.run(x, weight)
    x.copy_(random(256, 512, dtype=torch.bfloat16, seed=7))
    graph.replay()
    expected = Ops().silu_and_mul(x.double() @ weight.double().t())
    assert distance(out, expected) < ROUNDING[torch.bfloat16]


@pytest.mark.gpu
def test_what_was_compiled_is_kept_and_what_cannot_be_says_why(tmp_path):
    compiler = Nvrtc(tmp_path, "sm_90a")
    source = 'extern "C" __global__ void nothing() {}'
    code = compiler.compile(source)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"kept")
    assert len(code) > 100
    assert compiler.compile(source) == b"kept"
    with pytest.raises(LibraryError, match=r"kernel\.cu\(1\): error"):
        compiler.compile("void f() { nothing_like_that(); }")

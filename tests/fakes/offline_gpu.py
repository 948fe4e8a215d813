"""What Triton asks of a GPU, without one: kernels are compiled for it, and none can be launched.

Run as a program it compiles a kernel, with `--warps` decode attention of several shapes, with `--model` all of a model,
with `--prompts` and a chip's compute capability and shared memory the attention of prompts alone, and prints how many variants came of it; Triton must not be in its interpreter's mode.
"""

import json
import sys
from functools import partial
from threading import Event
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from fakes.llama_8b import SHAPES
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.device.cuda import CudaOps
from sgl_runtime.device.kernels import decode_attention
from sgl_runtime.device.kernels.begin_pass import begin_decode, begin_decode_kernel
from sgl_runtime.device.kernels.extend_attention import attend_extend, extend_kernel
from sgl_runtime.device.kernels.shared_attention import attend_shared, attend_shared_kernel
from sgl_runtime.device.kernels.warp_attention import attend_by_warps_kernel
from sgl_runtime.device.kernels_ahead import KernelsAhead
from sgl_runtime.device.rehearsal_device import RehearsalDevice
from sgl_runtime.model_runner.rehearsal import RehearsedModel, rehearse
from sgl_runtime.model_store.model_config import ModelConfig


class OfflineLauncher:
    """Made where a kernel is made ready to be launched."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.name = metadata.name

    def __call__(self, *args: Any) -> None:
        raise AssertionError(f"{self.name} is launched where there is no GPU")


class OfflineUtils:
    """The part of the driver that loads code."""

    def __init__(self, max_shared_mem: int) -> None:
        self._properties = {"max_shared_mem": max_shared_mem}

    def load_binary(self, name: str, code: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        assert code.startswith(b"\x7fELF")
        return 1, 1, 0, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        return self._properties


class OfflineDriver:
    """A driver of a chip of this compute capability (times 10) and shared memory; by default of an H200."""

    launcher_cls = OfflineLauncher

    def __init__(self, arch: int = 90, max_shared_mem: int = 232_448) -> None:
        self.utils, self._target = OfflineUtils(max_shared_mem), GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def offline_device() -> CpuDevice:
    device = CpuDevice(num_threads=None)
    device.ops = CudaOps(None)
    device.attention_backends, device.sampling_backends = ("triton",), ("triton", "pytorch")
    device.runs_beside_host = device.makes_masks = True
    return device


def one_pass(wait: Event) -> None:
    """Launch one kernel, with numbers and places that differ from call to call."""
    wait.wait(60)
    for size in (1, 3, 16):
        words = torch.empty(5 * size, dtype=torch.int32, device="meta")
        ids, positions, slots, rows, _ = words.view(5, size)
        out = torch.empty((2, size), dtype=torch.int64, device="meta")
        table = torch.empty((4, 32), dtype=torch.int32, device="meta")
        begin_decode(
            ids,
            positions,
            slots,
            rows,
            drawn_ids=out[0],
            table=table,
            out_ids=out[0],
            out_positions=torch.empty_like(out[0]),
        )


def attend_by_warps_of_models() -> None:
    """Launch decode attention for heads of several models."""
    for heads, groups, dim, cap in ((32, 8, 128, 0.0), (9, 3, 64, 0.0), (12, 1, 128, 30.0), (8, 4, 256, 50.0)):
        keys, values = (torch.empty((64, groups, dim), dtype=torch.bfloat16, device="meta") for _ in range(2))
        out = torch.empty((2, heads, dim), dtype=torch.bfloat16, device="meta")
        decode_attention.attend_pieces(
            torch.empty_like(out),
            keys,
            values,
            table=torch.empty((4, 32), dtype=torch.int32, device="meta"),
            pieces=torch.empty((8, decode_attention.PIECE_WORDS), dtype=torch.int32, device="meta"),
            counts=torch.empty(2, dtype=torch.int32, device="meta"),
            tickets=torch.empty((2, groups), dtype=torch.int32, device="meta"),
            partial_out=torch.empty((8, heads, dim), device="meta"),
            partial_lse=torch.empty((8, heads), device="meta"),
            out=out,
            scale=dim**-0.5,
            logit_cap=cap,
        )


def attend_prompts() -> None:
    """Launch the attention of prompts and of shared ranges, for heads of several widths and types."""
    for dtype, dim in ((torch.bfloat16, 64), (torch.bfloat16, 128), (torch.bfloat16, 256), (torch.float32, 128)):
        keys, values = (torch.empty((64, 2, dim), dtype=dtype, device="meta") for _ in range(2))
        q = torch.empty((16, 8, dim), dtype=dtype, device="meta")
        table = torch.empty((4, 32), dtype=torch.int32, device="meta")
        words = torch.empty(64, dtype=torch.int32, device="meta")
        common = {"table": table, "row_ids": words, "scale": 1.0}
        extend = {"tiles": words.view(2, 32), "token_starts": words, "prefix_lens": words, "extend_lens": words}
        attend_extend(q, keys, values, **common, **extend, out=torch.empty_like(q))
        parts = {
            "partial_out": torch.empty(q.shape, device="meta"),
            "partial_lse": torch.empty(q.shape[:2], device="meta"),
        }
        attend_shared(q, keys, values, **common, **parts, tiles=words.view(1, 64), num_tiles=words)


def compiled_of(kernel: Any) -> int:
    return sum(len(caches[0]) for caches in kernel.function.device_caches.values())


def main() -> None:
    if "--prompts" in sys.argv:
        driver.set_active(OfflineDriver(*map(int, sys.argv[2:])))
        # Tiles are those of a GPU in use.
        torch.cuda.is_available = lambda: True
        KernelsAhead(attend_prompts, begin_thread=lambda: None).wait()
        print(json.dumps({"prompts": compiled_of(extend_kernel), "shared": compiled_of(attend_shared_kernel)}))
        return
    driver.set_active(OfflineDriver())
    begun, release = [], Event()
    ahead = KernelsAhead(partial(one_pass, release), begin_thread=lambda: begun.append(1))
    before = compiled_of(begin_decode_kernel)
    release.set()
    ahead.wait()
    found = {"before": before, "behind": compiled_of(begin_decode_kernel), "threads": len(begun)}
    decode_attention.has_gluon = lambda: True
    if "--warps" in sys.argv:
        KernelsAhead(attend_by_warps_of_models, begin_thread=lambda: None).wait()
    if "--model" in sys.argv:
        model = RehearsedModel(
            shapes=ModelConfig.from_json(SHAPES, source="test"),
            dtype=torch.bfloat16,
            num_rows=256,
            graph_rows=8,
            max_grammar_depth=64,
        )
        rehearsal = partial(rehearse, model, RehearsalDevice(offline_device()))
        KernelsAhead(rehearsal, begin_thread=lambda: None).wait()
        # All is there: a second one compiles nothing, and a launch would raise.
        rehearsal()
    found["by warps"] = compiled_of(attend_by_warps_kernel)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

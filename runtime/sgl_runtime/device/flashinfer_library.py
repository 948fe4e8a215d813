"""FlashInfer as a library: whether it can be used here, and its modules.  Nothing else imports it.

Its kernels are compiled on the machine, a module at a time, and kept in the user's cache folder.
"""

import logging
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

PACKAGE = "flashinfer"

HEAD_DIMS = (64, 128, 256)
DTYPES = (torch.bfloat16, torch.float16)
"""What its kernels for prompts serve."""


@dataclass(frozen=True)
class ModuleRequest:
    """Which module is meant.

    Attributes:
        kind: Attention of prompts, or what takes tokens away before a draw.
        algorithm: Of attention: fa2 or fa3.
        dtype: Of queries, keys and values, as torch names it.
        head_dim: D.
    """

    kind: Literal["prefill", "sampling"]
    algorithm: str = ""
    dtype: str = ""
    head_dim: int = 0

    def encode(self) -> str:
        """A text that `decode` reads."""
        return msgspec.json.encode(asdict(self)).decode()

    @classmethod
    def decode(cls, text: str) -> "ModuleRequest":
        """Read what `encode` wrote."""
        return msgspec.json.decode(text, type=cls)


def prefill_request(*, dtype: torch.dtype, head_dim: int, device: torch.device) -> ModuleRequest:
    """The module for the attention of prompts; the chip decides on the algorithm."""
    major, _ = torch.cuda.get_device_capability(device)
    name = str(dtype).removeprefix("torch.")
    return ModuleRequest("prefill", algorithm="fa3" if major == 9 else "fa2", dtype=name, head_dim=head_dim)


def why_no_prefill(*, dtype: torch.dtype, head_dim: int, device: torch.device) -> str | None:
    """Why its attention of prompts cannot be used, or None; loads the library if nothing else is in the way."""
    if device.type != "cuda":
        return f"it needs a CUDA device, and the device is {device.type}"
    if dtype not in DTYPES or head_dim not in HEAD_DIMS:
        return (
            f"it serves bfloat16 and float16 with heads of {', '.join(map(str, HEAD_DIMS))}, and the model has"
            f" {str(dtype).removeprefix('torch.')} with heads of {head_dim}"
        )
    return _why_no_module(prefill_request(dtype=dtype, head_dim=head_dim, device=device), device)


def why_no_sampling(device: torch.device) -> str | None:
    """Why its kernels for sampling cannot be used, or None."""
    if device.type != "cuda":
        return f"it needs a CUDA device, and the device is {device.type}"
    return _why_no_module(ModuleRequest("sampling"), device)


def _why_no_module(request: ModuleRequest, device: torch.device) -> str | None:
    if torch.cuda.get_device_capability(device)[0] < 8:
        return "it needs a chip of compute capability 8.0 or later"
    if find_spec(PACKAGE) is None:
        return "package flashinfer-python is not installed (pip install flashinfer-python)"
    try:
        if is_built(jit_spec(request)):
            return None
    except (ImportError, OSError, RuntimeError) as error:
        return f"package flashinfer-python cannot be loaded: {error}"
    return _why_no_compiler()


def _why_no_compiler() -> str | None:
    for tool, part in (("ninja", "ninja"), ("c++", "a C++ compiler")):
        if shutil.which(tool) is None:
            return f"its kernels are not compiled yet, and {part} is not in PATH"
    try:
        nvcc = Path(import_module("flashinfer.jit.cpp_ext").get_cuda_path()) / "bin" / "nvcc"
    except RuntimeError:
        nvcc = Path("nvcc")
    if not nvcc.is_file():
        return f"its kernels are not compiled yet, and there is no CUDA compiler ({nvcc})"
    return None


def load_library() -> Any:
    """The package, with its messages kept out of ours."""
    library = import_module(PACKAGE)
    # This logger stands outside of the tree of loggers.
    import_module("flashinfer.jit.core").logger.setLevel(logging.ERROR)
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    return library


def jit_spec(request: ModuleRequest) -> Any:
    """What FlashInfer knows of a module: where its files are, and how it is compiled."""
    load_library()
    if request.kind == "sampling":
        return import_module("flashinfer.jit.sampling").gen_sampling_module()
    dtype = torch_dtype(request.dtype)
    return import_module("flashinfer.jit").gen_batch_prefill_module(
        request.algorithm,
        dtype,
        dtype,
        dtype,
        torch.int32,
        request.head_dim,
        request.head_dim,
        0,  # Positions are in queries and keys.
        False,  # No sliding window.
        False,  # No cap on logits.
        False,  # Products are summed up in float32.
    )


def torch_dtype(name: str) -> torch.dtype:
    """The type of a name."""
    return {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}[name]


def is_built(spec: Any) -> bool:
    """Whether a module is compiled, so that FlashInfer loads it at once.

    FlashInfer lets ninja look whether a module is up to date, and ninja compiles it where it is not: after the package
    was installed anew, for one.  So ninja is asked before.
    """
    if spec.is_aot:
        return True
    if not spec.is_compiled or shutil.which("ninja") is None:
        return False
    spec.write_ninja()
    command = ["ninja", "-n", "-C", str(spec.build_dir), "-f", str(spec.ninja_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "no work to do" in done.stdout

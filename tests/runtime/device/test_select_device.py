"""Which device is taken."""

import pytest
import torch

from sgl_runtime.device.base import select_device
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.errors import ConfigError


def test_without_a_gpu_the_cpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert isinstance(select_device("auto", num_threads=None), CpuDevice)
    with pytest.raises(ConfigError, match="device is cuda, and no CUDA device is to be found; use device cpu"):
        select_device("cuda", num_threads=None)


def test_a_gpu_that_is_too_old_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    reason = r"Tesla T4 has compute capability 7\.5, and at least 8\.0 is needed"
    assert isinstance(select_device("auto", num_threads=None), CpuDevice)
    assert "the GPU is not used: Tesla T4" in caplog.text
    with pytest.raises(ConfigError, match=f"device is cuda, and {reason}; use device cpu"):
        select_device("cuda", num_threads=None)

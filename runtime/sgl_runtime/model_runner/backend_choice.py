"""Which backends of attention and of sampling a configuration means on a device."""

import logging

import torch

from sgl_runtime.attention.table import CONDITIONS
from sgl_runtime.device.base import Device
from sgl_runtime.errors import ConfigError
from sgl_runtime.model_runner.sampler_table import SAMPLER_CONDITIONS

logger = logging.getLogger(__name__)


def attention_name(asked: str, device: Device, *, dtype: torch.dtype, head_dim: int) -> str:
    """The attention backend that is meant: of auto, the first that can be used.

    Args:
        asked: A name, or auto.
        device: What runs it.
        dtype: Of queries, keys and values.
        head_dim: D.

    Raises:
        ConfigError: the device does not run it, or it cannot be used here.
    """
    _check_name("attention_backend", asked, device.attention_backends, device)
    for name in device.attention_backends if asked == "auto" else (asked,):
        reason = None
        if name in CONDITIONS.names():
            reason = CONDITIONS.load(name)(dtype=dtype, head_dim=head_dim, device=device.torch_device)
        if reason is None:
            return name
        if asked != "auto":
            raise ConfigError(f"attention_backend is {name!r}, which cannot be used: {reason}")
        logger.info("attention backend passed over name=%s reason=%s", name, reason)
    raise AssertionError("every device has a backend without conditions")


def sampler_name(asked: str, device: Device) -> str:
    """The sampling backend that is meant: of auto, the device's first.

    Raises:
        ConfigError: the device does not run it, or it cannot be used here.
    """
    _check_name("sampling_backend", asked, device.sampling_backends, device)
    name = device.sampling_backends[0] if asked == "auto" else asked
    reason = SAMPLER_CONDITIONS.load(name)(device.torch_device) if name in SAMPLER_CONDITIONS.names() else None
    if reason is not None:
        raise ConfigError(f"sampling_backend is {name!r}, which cannot be used: {reason}")
    return name


def _check_name(option: str, asked: str, names: tuple[str, ...], device: Device) -> None:
    if asked not in ("auto", *names):
        allowed = ", ".join(("auto", *names))
        raise ConfigError(f"{option} is {asked!r}; on device {device.torch_device.type} it must be one of {allowed}")

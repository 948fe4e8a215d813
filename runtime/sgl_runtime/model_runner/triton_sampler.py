"""TritonSampler: draws under all settings by kernels, which sort nothing and never wait for the host."""

import numpy as np
from torch import Tensor

from sgl_runtime.batch import SamplingBatch
from sgl_runtime.device.base import Device
from sgl_runtime.device.kernels.sampling import draw
from sgl_runtime.device.kernels.token_filters import find_filters
from sgl_runtime.model_runner.sampler import has_filter


class TritonSampler:
    """See `TokenSampler`.

    A row's draw is that of `Ops.draw` among the tokens that its filters leave; so what a row without filters draws does
    not depend on whether other rows have some.

    Args:
        device: Where the logits are.
    """

    def __init__(self, device: Device) -> None:
        self.filters_by_kernels = True
        self._device = device

    def sample(self, logits: Tensor, sampling: SamplingBatch, masks: Tensor | None = None) -> Tensor:
        """See `TokenSampler`."""
        to_device = self._device.to_device
        temperatures = to_device(sampling.temperatures)
        filters = None
        if (has_filter(sampling) & (sampling.temperatures > 0.0)).any():
            filters = find_filters(
                logits,
                temperatures=temperatures,
                top_ks=to_device(sampling.top_ks),
                top_ps=to_device(sampling.top_ps),
                min_ps=to_device(sampling.min_ps),
                masks=masks,
            )
        seeds = to_device((sampling.uniforms * 2.0**53).astype(np.int64))
        return draw(logits, temperatures=temperatures, seeds=seeds, masks=masks, filters=filters)

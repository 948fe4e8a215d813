"""FlashInferSampler: FlashInfer's kernels take tokens away, ours draw."""

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.batch import SamplingBatch
from sgl_runtime.device.base import Device
from sgl_runtime.device.flashinfer_build import FlashInferModule
from sgl_runtime.device.flashinfer_library import ModuleRequest, load_library
from sgl_runtime.model_runner.sampler import has_filter
from sgl_runtime.model_runner.triton_sampler import TritonSampler


class FlashInferSampler:
    """See `TokenSampler`.

    FlashInfer's own draws take one seed for all rows, so that a row's token would depend on its place in the batch.

    Args:
        device: Where the logits are.
    """

    def __init__(self, device: Device) -> None:
        self.filters_by_kernels = False
        self._device = device
        self._plain = TritonSampler(device)
        self._module = FlashInferModule(ModuleRequest("sampling"), instead="triton")

    def sample(self, logits: Tensor, sampling: SamplingBatch, masks: Tensor | None = None) -> Tensor:
        """See `TokenSampler`."""
        filtered = has_filter(sampling) & (sampling.temperatures > 0.0)
        if not filtered.any() or not self._module.is_ready():
            return self._plain.sample(logits, sampling, masks)
        library, to_device = load_library(), self._device.to_device
        index = to_device(np.flatnonzero(filtered))
        chosen = logits[index].float()
        if masks is not None:
            self._device.ops.mask_logits(chosen, masks[index])
        some = sampling.select(filtered)
        probs = (chosen / to_device(some.temperatures).unsqueeze(1)).softmax(dim=-1)
        vocab_size = probs.shape[1]
        if (some.top_ks > 0).any():
            top_ks = np.where(some.top_ks > 0, some.top_ks, vocab_size).clip(max=vocab_size)
            probs = library.sampling.top_k_renorm_probs(probs, to_device(top_ks.astype(np.int32)))
        if (some.top_ps < 1.0).any():
            probs = library.sampling.top_p_renorm_probs(probs, to_device(some.top_ps))
        least = to_device(some.min_ps).unsqueeze(1) * probs.amax(dim=-1, keepdim=True)
        # The logits stay what they are: log probabilities may be asked of them.
        left = logits.to(torch.float32, copy=True)
        left[index] = chosen.masked_fill((probs < least) | (probs == 0.0), float("-inf"))
        return self._device.ops.draw(left, to_device(sampling.temperatures), to_device(sampling.uniforms), masks)

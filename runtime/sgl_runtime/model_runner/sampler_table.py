"""The tables of sampling backends."""

from sgl_runtime.registry import Registry

SAMPLERS = Registry(
    "sampling backend",
    {
        "flashinfer": "sgl_runtime.model_runner.flashinfer_sampler:FlashInferSampler",
        "pytorch": "sgl_runtime.model_runner.sampler:Sampler",
        "triton": "sgl_runtime.model_runner.triton_sampler:TritonSampler",
    },
)

SAMPLER_CONDITIONS = Registry(
    "sampling backend with conditions",
    {"flashinfer": "sgl_runtime.device.flashinfer_library:why_no_sampling"},
)
"""Backends that not every machine can use: a function of the device says why, or None."""

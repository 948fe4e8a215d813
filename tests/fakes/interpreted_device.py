"""A CPU that does its work with the kernels of a GPU, in Triton's interpreter."""

from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.device.cuda import CudaOps


class InterpretedDevice(CpuDevice):
    """See `Device`."""

    def __init__(self) -> None:
        super().__init__(num_threads=None)
        self.ops = CudaOps(None)
        self.attention_backends = ("triton",)
        self.sampling_backends = ("triton", "pytorch")
        self.runs_beside_host = True
        self.makes_masks = True

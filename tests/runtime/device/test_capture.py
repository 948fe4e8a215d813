"""Captured graphs on a GPU."""

from threading import Thread

import pytest
import torch

from sgl_runtime.device.base import select_device


@pytest.mark.gpu
def test_another_thread_may_allocate_during_a_capture():
    device = select_device("cuda", num_threads=None)
    numbers = torch.zeros(4, device=device.torch_device)
    sums: list[float] = []

    def allocate() -> None:
        torch.cuda.empty_cache()
        sums.append(torch.ones(1 << 24, device=device.torch_device).sum().item())

    def add_one() -> torch.Tensor:
        thread = Thread(target=allocate)
        thread.start()
        thread.join()
        return numbers.add_(1.0)

    replay = device.capture(add_one)
    before = numbers.tolist()
    # Once before the capture, and once inside it.
    assert sums == [2.0**24] * 2
    assert replay().tolist() == [each + 1 for each in before]

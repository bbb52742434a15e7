"""The energy of a launch on a GPU whose power is known."""

from __future__ import annotations

import pytest

from memlab.device.gpu.energy import MEASURED_S, energy_per_launch
from memlab.errors import DeviceError


class FakeGpu:
    """A GPU that takes 400 W while it works; its counter moves in steps of 100 ms."""

    def __init__(self, launch_s: float) -> None:
        self.launch_s, self.queued, self.now_s, self.launches = launch_s, 0, 0.0, 0

    def launch(self) -> None:
        self.queued += 1

    def wait(self) -> None:
        self.now_s += self.queued * self.launch_s + 1e-6
        self.launches += self.queued
        self.queued = 0

    def joules(self) -> float:
        return 400.0 * int(self.now_s * 10) / 10


@pytest.mark.parametrize("launch_s", [2e-6, 3e-3, 1.5])
def test_launches_share_the_energy(launch_s: float) -> None:
    gpu = FakeGpu(launch_s)

    joules = energy_per_launch(gpu.launch, gpu.wait, gpu.joules, lambda: gpu.now_s)

    assert joules == pytest.approx(400.0 * launch_s, rel=0.06)
    assert gpu.now_s < MEASURED_S + 3 * max(launch_s, 0.1)


def test_a_gpu_that_does_not_tell_is_one_line() -> None:
    gpu = FakeGpu(0.1)
    with pytest.raises(DeviceError, match="does not tell its energy"):
        energy_per_launch(gpu.launch, gpu.wait, lambda: None, lambda: gpu.now_s)

"""Launches of which some blocks are simulated, against simulations of six times as many."""

from __future__ import annotations

import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import emulate, resident_blocks
from memlab.device.sm_model import launch_time
from memlab.kernels.catalog import find_kernel

H200 = loader.load_datasheet("h200")


@pytest.mark.parametrize("kernel", ["naive", "tiled-dynamic"])
def test_further_blocks_take_the_time_that_they_would_if_simulated(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """An SM executes 32 blocks, two at once, which begin in step and drift apart."""
    launch = find_kernel(kernel).prepare({"width": 2048, "tile": 32}, launch_limits(H200))
    compiled = compile_launch(launch, H200.compute_capability)
    found, resident = emulate(launch, compiled, H200, 0), resident_blocks(launch, compiled, H200)
    few = found.time(resident, H200).median_s

    monkeypatch.setattr(launch_time, "BUDGET", 6 * launch_time.BUDGET)

    assert few == pytest.approx(found.time(resident, H200).median_s, rel=0.05)

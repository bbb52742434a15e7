"""L2 and DRAM reads of kernels with bulk copies, against Nsight Compute on an H100."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.measurement import Counters
from memlab.kernels.catalog import find_kernel

TABLE = Path(__file__).parents[2] / "data" / "h100-hopper-counters.csv"
with TABLE.open(newline="") as _file:
    MEASURED = {(row["kernel"], int(row["size"])): row for row in csv.DictReader(_file)}

pytestmark = pytest.mark.slow


def emulated(kernel: str, size: int) -> Counters:
    """The counters on an H200, whose SMs are those of an H100."""
    device = EmulatedDevice("h200", loader.load_datasheet("h200"))
    launch = find_kernel(kernel).prepare({"width": size}, launch_limits(device.properties))
    return device.run(launch, seed=0).counters


@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        ("wgmma", 0.03),
        ("wgmma-pipelined", 0.02),
        ("wgmma-specialized", 0.02),
        ("wgmma-persistent", 0.02),
        ("wgmma-pingpong", 0.14),  # five runs of an H200 differ by as much
    ],
)
def test_copies_of_blocks_in_step_are_merged_by_fours_in_their_gpc(
    kernel: str, error: float
) -> None:
    measured = int(MEASURED[kernel, 2048]["l2_sectors"])
    assert emulated(kernel, 2048).l2_read_sectors == pytest.approx(measured, rel=error)


@pytest.mark.parametrize("kernel", ["wgmma-cluster", "wgmma-tf32"])
def test_the_l2_serves_a_multicast_copy_once_and_merges_it_with_no_other(kernel: str) -> None:
    # Half of the requests are multicast. Of the others the H100 merged 28% and 8%: clusters are
    # started on one GPC after the other, so few of those that share rows share a GPC.
    measured = MEASURED[kernel, 2048]
    assert int(measured["multicast_sectors"]) * 2 == int(measured["coalescable_sectors"])
    found = emulated(kernel, 2048)
    assert found.l2_read_sectors == pytest.approx(int(measured["l2_sectors"]), rel=0.06)
    assert found.lrc_read_sectors == int(measured["l1_sectors"])  # each block's by itself


def test_persistent_blocks_read_from_dram_what_their_own_tiles_need() -> None:
    # The H100's L2 is smaller by a sixth, but both hold what runs at one time.
    measured = int(MEASURED["wgmma-persistent", 4096]["dram_read_bytes"])
    assert emulated("wgmma-persistent", 4096).dram_read_bytes == pytest.approx(measured, rel=0.03)

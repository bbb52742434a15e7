import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import DATA

from memlab.device.datasheets import loader
from memlab.device.occupancy import (
    BlockRequirements,
    block_allocation,
    compute_occupancy,
    resident_blocks,
)
from memlab.errors import DeviceError, UsageError

H200 = loader.load_datasheet("h200")

# The one choice of the driver's, out of 491, that the rule for the carve-out does not give.
EXCEPTION = BlockRequirements(128, 16, 16)


def rows(file):
    with (DATA / file).open(newline="") as lines:
        return list(csv.DictReader(lines))


def launch(row):
    names = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
    return BlockRequirements(*(int(row[name]) for name in names))


def limits(row):
    return {
        name: int(row["limit_" + name.replace(" ", "_")])
        for name in ("blocks", "warps", "registers", "shared memory")
    }


@pytest.mark.parametrize("row", rows("h200-occupancy-kernels.csv"), ids=lambda row: row["kernel"])
def test_limits_are_those_nsight_compute_shows_for_our_kernels(row):
    assert compute_occupancy(H200, launch(row)).limits == limits(row)


def test_limits_and_carveout_are_those_nsight_compute_shows_over_a_sweep():
    wrong = [
        launch(row)
        for row in rows("h200-occupancy-sweep.csv")
        if compute_occupancy(H200, launch(row)).limits != limits(row)
        or block_allocation(H200, launch(row)).carveout_bytes != int(row["carveout_bytes"])
    ]
    assert wrong == [EXCEPTION]


@pytest.mark.parametrize(
    ("device", "launch", "blocks", "limiter"),
    [
        # By hand from the programming guide's table; 1024 bytes are reserved from 8.0 on.
        ("h200", (1024, 32, 8192), 2, "warps and registers"),
        ("h200", (256, 40, 0), 6, "registers"),  # 1280 a warp: 12 in each of 4 parts of 16384
        ("h200", (128, 32, 48 * 1024), 4, "shared memory"),  # 228 KiB / 49 KiB
        ("a100", (128, 32, 48 * 1024), 3, "shared memory"),  # 164 KiB / 49 KiB
        ("rtx3070", (256, 32, 0), 6, "warps"),  # 1536 threads
        ("rtx3070", (32, 16, 0), 16, "blocks"),
        ("rtx4090", (32, 16, 0), 24, "blocks"),
        ("t4", (256, 32, 16 * 1024), 4, "warps and shared memory"),  # 64 KiB, none reserved
        ("t4", (32, 32, 300), 16, "blocks"),
    ],
)
def test_blocks_and_limiter(device, launch, blocks, limiter):
    result = compute_occupancy(loader.load_datasheet(device), BlockRequirements(*launch))
    assert (result.blocks_per_sm, result.limiter) == (blocks, limiter)


def test_occupancy_counts_warps_not_threads():
    result = compute_occupancy(H200, BlockRequirements(33, 16, 0))
    assert result.warps_per_sm == 2 * result.blocks_per_sm == 64
    assert result.theoretical == 1


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ((4096, 32, 0), "4096 threads per block; NVIDIA H200 allows 1 to 1024"),
        ((0, 32, 0), "0 threads per block"),
        ((1024, 65, 0), "65 registers per thread need 73728 for 1024 threads"),
        ((32, 256, 0), "256 registers per thread"),
        (
            (32, 32, 232449),
            "232449 bytes of shared memory per block; NVIDIA H200 allows 0 to 232448",
        ),
    ],
)
def test_a_launch_that_does_not_fit_gives_the_reason(launch, message):
    with pytest.raises(UsageError, match=message):
        compute_occupancy(H200, BlockRequirements(*launch))


@pytest.mark.parametrize("device", ["t4", "a100"])
def test_an_unknown_reserved_part_is_that_of_the_architecture(device):
    properties, block = loader.load_datasheet(device), BlockRequirements(64, 32, 300)
    unknown = replace(properties, reserved_shared_memory_per_block_bytes=None)
    assert block_allocation(unknown, block) == block_allocation(properties, block)


def test_an_unknown_limit_is_named():
    with pytest.raises(DeviceError, match="max_threads_per_multiprocessor"):
        compute_occupancy(
            replace(H200, max_threads_per_multiprocessor=None), BlockRequirements(32, 32, 0)
        )


@given(
    device=st.sampled_from(loader.datasheet_names()),
    threads=st.integers(1, 1024),
    registers=st.integers(0, 64),
    shared=st.integers(0, 48 * 1024),
)
def test_the_carveout_never_costs_a_block(device, threads, registers, shared):
    """The blocks are as many as with all of the shared memory, and fit in the carve-out."""
    properties = loader.load_datasheet(device)
    block = BlockRequirements(threads, registers, shared)
    result = compute_occupancy(properties, block)
    reserved = properties.reserved_shared_memory_per_block_bytes
    carveout = block_allocation(properties, block).carveout_bytes
    granularity = 256 if device == "t4" else 128
    allocated = -(-(shared + reserved) // granularity) * granularity
    assert result.blocks_per_sm * allocated <= carveout < properties.l1_cache_bytes_per_sm
    everything = properties.max_shared_memory_per_multiprocessor_bytes
    others = min(limit for name, limit in result.limits.items() if name != "shared memory")
    assert result.blocks_per_sm == min(others, everything // allocated if allocated else others)


def test_active_clusters_are_those_the_driver_of_an_h200_counts():
    h200 = loader.load_datasheet("h200")
    with (DATA / "h200-active-clusters.csv").open() as file:
        rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
    alone = {(row["bytes"], row["threads"]): row["active"] for row in rows if row["cluster"] == 1}
    assert len(rows) == 156
    for row in rows:
        blocks = alone[row["bytes"], row["threads"]] // 132
        found = resident_blocks(h200, blocks, row["cluster"])
        assert found == row["active"] * row["cluster"], row


def test_groups_of_sms_that_are_unknown_do_not_divide_a_device():
    h200 = replace(loader.load_datasheet("h200"), gpcs_by_sms={})
    assert resident_blocks(h200, 2, 8) == 264

"""Additions at random words of small tables, against an H100 (`h100-random-atomics.csv`)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from paths import DATA

import memlab
from memlab.device.emulator.models.atomic_contention import _common_regions

BLOCKS, THREADS = 16384, 256
MEASURED_US = {
    int(row["table_kib"]): float(row["us"])
    for row in csv.DictReader((DATA / "h100-random-atomics.csv").open())
    if (row["type"], row["blocks"], row["steps"]) == ("int", str(BLOCKS), "1")
}
SOURCE = """extern "C" __global__ void k(unsigned *table, unsigned words)
{
    unsigned x = (blockIdx.x * blockDim.x + threadIdx.x) * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    atomicAdd(table + __umulhi(x ^ x >> 16, words), 1u);
}"""


def seconds(folder: Path, kib: int) -> float:
    (folder / "k.cu").write_text(SOURCE)
    found = memlab.run(
        f"{folder}/k.cu:k",
        device="h100",
        grid=BLOCKS,
        block=THREADS,
        args=[f"inout:u32[{kib * 256}]=zeros", f"u32={kib * 256}"],
    )
    return found.measurement.time.median_s


@pytest.mark.slow
def test_the_fullest_slice_of_the_l2_holds_more_of_a_small_table(tmp_path: Path) -> None:
    few, more, many = (seconds(tmp_path, kib) for kib in (256, 512, 1024))

    assert few / many == pytest.approx(MEASURED_US[256] / MEASURED_US[1024], rel=0.05)
    assert more / many == pytest.approx(MEASURED_US[512] / MEASURED_US[1024], rel=0.05)


def test_regions_of_all_blocks_are_estimated_from_those_that_recorded_ones_share() -> None:
    block, random = np.repeat(np.arange(4), 500), np.random.default_rng(0)

    assert _common_regions(random.integers(0, 256, 2000), block) == pytest.approx(256, rel=0.01)
    assert _common_regions(random.integers(0, 4096, 2000), block) == pytest.approx(4096, rel=0.15)
    assert _common_regions(np.arange(2000), block) == 0
    assert _common_regions(np.zeros(500, int), block[:500]) == 0

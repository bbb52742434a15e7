"""How reads of later waves are merged, against what an H100 counted (benchmarks/wave_reads.cu)."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from paths import REPOSITORY

from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.cache_counters import cache_geometry

H200 = load_datasheet("h200")
SMS = 132


def counted() -> dict[tuple[int, int, int], tuple[float, float]]:
    """Sectors of the L1s and of the L2, by blocks per SM, waves and neighbours with barriers."""
    sums: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    with (REPOSITORY / "docs" / "results" / "h100-wave-reads.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["adjacent"] == row["barrier"] == "1":
                key = int(row["blocks_per_sm"]), int(row["waves"]), int(row["readers"])
                sums[key][0] += float(row["l1_sectors"])
                sums[key][1] += float(row["l2_sectors"])
    return {key: (l1, l2) for key, (l1, l2) in sums.items()}


@pytest.mark.parametrize("per_sm", [1, 2, 4, 8])
@pytest.mark.parametrize("waves", [4, 16])
@pytest.mark.parametrize("neighbours", [4, 32])
def test_later_reads_are_merged_as_counted(per_sm: int, waves: int, neighbours: int) -> None:
    table = counted()
    whole, first = table[per_sm, waves, neighbours], table[per_sm, 1, neighbours]
    merged = (whole[0] - first[0]) / (whole[1] - first[1])

    found = dict(cache_geometry(H200, per_sm, 0, per_sm * SMS * waves).merged_later)

    assert found[neighbours] == pytest.approx(merged, abs=0.006)


def test_other_grids_lie_between_those_that_were_measured() -> None:
    """Eight waves lie in the middle of 4 and 16, and one wave is taken as 4."""
    by_waves = [dict(cache_geometry(H200, 2, 0, 2 * SMS * n).merged_later)[4.0] for n in (1, 4, 16)]
    middle = dict(cache_geometry(H200, 2, 0, 2 * SMS * 8).merged_later)[4.0]

    assert by_waves[0] == by_waves[1]
    assert middle == pytest.approx((by_waves[1] + by_waves[2]) / 2)


@pytest.mark.parametrize(
    ("per_sm", "blocks", "simulated", "paced"),
    [
        (2, SMS, True, True),
        (2, SMS - 1, False, True),  # an SM is empty
        (2, 6 * SMS, True, True),
        (2, 6 * SMS + 1, False, True),  # more than three waves
        (8, 8 * SMS, True, True),
        (9, 9 * SMS, False, False),  # more blocks on an SM than were measured
    ],
)
def test_blocks_are_simulated_where_this_was_compared_with_counts(
    per_sm: int, blocks: int, simulated: bool, paced: bool
) -> None:
    geometry = cache_geometry(H200, per_sm, 0, blocks)

    assert (geometry.reads is not None) == simulated
    assert (geometry.paces is not None) == paced

"""How reads of later waves are merged, against what an H100 counted (benchmarks/wave_reads.cu)."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from paths import REPOSITORY

from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.cache_counters import cache_geometry, suit_blocks
from memlab.device.measurement import AccessCounts, Counters

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
    ("per_sm", "blocks", "waits", "simulated", "paced"),
    [
        (2, SMS, True, True, True),
        (2, SMS - 1, True, True, True),  # an SM is empty (h200-product-reads.csv)
        (2, 8 * SMS, True, True, True),
        (2, 8 * SMS + 1, True, False, True),  # more than four waves
        (8, 8 * SMS, True, True, True),
        (9, 9 * SMS, True, False, False),  # more blocks on an SM than were measured
        (9, 8 * SMS, True, True, True),  # there is room for more of them
        (2, SMS - 1, False, True, False),
        (32, 999 * SMS, False, True, False),  # without barriers, there may be any number
    ],
)
def test_blocks_are_simulated_where_this_was_compared_with_counts(
    per_sm: int, blocks: int, waits: bool, simulated: bool, paced: bool
) -> None:
    geometry = suit_blocks(cache_geometry(H200, per_sm, 0, blocks), Counters(), blocks, waits)

    assert (geometry.reads is not None) == simulated
    assert (geometry.paces is not None) == paced


@pytest.mark.parametrize(
    ("instructions", "wavefronts", "waits", "in_turn", "clocks"),
    [
        (400, 90, False, False, 100.0),  # of four schedulers
        (400, 110, False, True, 110.0),
        (400, 110, True, False, 110.0),
    ],
)
def test_blocks_that_queue_for_the_l1_take_turns(
    instructions: int, wavefronts: int, waits: bool, in_turn: bool, clocks: float
) -> None:
    blocks, accesses = SMS, {("global", "load"): AccessCounts(wavefronts=SMS * wavefronts)}
    counters = Counters(warp_instructions=instructions * blocks, accesses=accesses)

    reads = suit_blocks(cache_geometry(H200, 1, 0, blocks), counters, blocks, waits).reads

    assert reads is not None
    assert (reads.in_turn, reads.between_barriers) == (in_turn, waits)
    assert reads.block_clocks == pytest.approx(clocks)


@pytest.mark.parametrize(("per_sm", "in_order"), [(2, False), (32, True)])
def test_short_blocks_start_in_turn_where_many_have_room(per_sm: int, in_order: bool) -> None:
    """A wave of 32 blocks on each SM takes 5000 clocks to start, and a read of DRAM 700."""
    blocks = 40 * SMS * per_sm
    geometry = cache_geometry(H200, per_sm, 0, blocks)

    assert suit_blocks(geometry, Counters(), blocks, waits=False).in_order == in_order


@pytest.mark.parametrize(
    ("per_sm", "blocks", "partitions"),
    [(2, SMS, 2), (1, 4 * SMS, 2), (2, SMS + 1, 1), (4, 4 * SMS, 1)],
)
def test_partitions_are_simulated_where_blocks_have_their_sm_for_themselves(
    per_sm: int, blocks: int, partitions: int
) -> None:
    geometry = suit_blocks(cache_geometry(H200, per_sm, 0, blocks), Counters(), blocks, waits=True)

    assert geometry.reads is not None
    assert geometry.reads.partitions == partitions

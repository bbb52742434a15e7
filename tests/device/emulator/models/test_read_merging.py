"""How reads are merged: by hand, and against what an H100 counted.

The tables are docs/results/h100-row-reads.csv (benchmarks/row_reads.cu) and h100-wave-reads.csv
(benchmarks/wave_reads.cu), an H100 80GB HBM3 at 1980 MHz, driver 580.159.04, 2026-11-27, and
h200-block-paces.csv (benchmarks/block_paces.cu), an H200 at the same clock, driver and day. And
h100-few-blocks.csv (benchmarks/few_blocks.cu), an H100 80GB HBM3, 2026-11-28, and
h200-product-reads.csv (benchmarks/product_reads.cu), an H200 of the same day. And
h200-copied-rows.csv and h200-column-reads.csv (benchmarks/copied_rows.cu and column_reads.cu), an
H200, 2026-11-29.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paths import REPOSITORY

from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulator.models.read_merging import (
    ReadMerging,
    ReadRounds,
    merge_reads,
    read_times,
)

SMS, COLUMNS = 132, 16
STEP_WAVEFRONTS, TRIP_WAVEFRONTS = 32, 64
"""Of a block of `row_reads.cu`: of its loads of 16 bytes a thread in each step; of the stores in
shared memory of each trip, about."""


def h100() -> ReadMerging:
    merging = ReadMerging.of(load_datasheet("h100"))
    assert merging is not None
    return merging


def steady(groups: tuple[int, ...], **changes: float) -> ReadMerging:
    """Blocks that start at once, and whose reads all take as long."""
    exact: dict[str, Any] = {"deviation_clocks": 0.0, "miss_deviation_clocks": 0.0}
    exact |= {"latency_clocks": 280.0, "miss_clocks": 700.0, "coalescer_clocks": 210.0}
    exact |= {"pace_deviation": 0.0, "start_clocks": 0.0, "partitions": 1}
    exact |= {"start_deviation_clocks": 0.0}
    units = tuple((1, group) for group in groups)
    return replace(h100(), units=units, **(exact | changes))


def rounds_of(places: list[list[int]]) -> ReadRounds:
    """Blocks that read one place in each round."""
    lengths = [len(each) for each in places]
    place = np.concatenate(places).astype(np.int64)
    return ReadRounds(
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        round=np.concatenate([np.arange(length) for length in lengths]),
        place=place,
        line=place,
        unit=place,
        sectors=np.ones(len(place)),
        lines=np.ones(len(place)),
        work=np.repeat(1 / np.array(lengths), lengths),
    )


def test_reads_of_a_group_at_one_time_are_one_up_to_some_number() -> None:
    """Five blocks of a group read a place: four by one read, and the fifth by another one."""
    merged = merge_reads(rounds_of([[7]] * 5), steady((0,) * 5), 5, 1)

    assert merged.first_wave == pytest.approx(2 / 5)


def test_reads_of_other_groups_are_not_merged() -> None:
    merged = merge_reads(rounds_of([[7]] * 4), steady((0, 0, 1, 1)), 4, 1)

    assert merged.first_wave == pytest.approx(2 / 4)


@pytest.mark.parametrize(
    ("apart", "of_hits", "of_misses"),
    [(60.0, 1, 1), (80.0, 2, 1), (480.0, 2, 1), (500.0, 2, 2)],
)
def test_a_read_is_joined_until_its_data_is_back_at_the_coalescer(
    apart: float, of_hits: int, of_misses: int
) -> None:
    """210 clocks before it arrives: 70 after a hit was asked for, and 490 after a miss was.

    What hits has been brought to the L2 with the first places, which are not the same.
    """
    merging = steady((0, 0), start_clocks=apart, block_clocks=8000.0)
    hits = replace(rounds_of([[1, 9], [2, 9]]), unit=np.array([1, 1, 2, 1]))

    missed = merge_reads(rounds_of([[7], [7]]), merging, 2, 1)
    hit = merge_reads(hits, merging, 2, 1)

    assert missed.first_wave == pytest.approx(of_misses / 2)
    assert hit.first_wave == pytest.approx((2 + of_hits) / 4)


@pytest.mark.parametrize(
    ("sectors", "groups", "start_clocks", "read"),
    [
        ([0, 0, 1, 0, 0], (0, 0, 0, 0, 0), 10.0, 3),  # the third ends it, the fourth begins anew
        ([0, 0, 1, 0, 0], (0, 0, 1, 0, 0), 10.0, 3),  # so does another group of the partition
        ([0, 0, 1, 0, 0], (0, 0, 2, 0, 0), 10.0, 2),  # and not one of the other partition
        ([0, 1, 0, 0], (0, 0, 1, 0), 10.0, 4),  # what has ended stays so, whoever begins anew
        ([0, 0, 1, 1], (0, 0, 0, 0), 244.0, 3),  # the third cannot be joined
        ([0, 0, 1, 1], (0, 0, 0, 0), 245.0, 2),  # unless the first one's data has come
    ],
)
def test_a_read_of_other_sectors_keeps_those_of_a_line_from_being_joined(
    sectors: list[int], groups: tuple[int, ...], start_clocks: float, read: int
) -> None:
    """Blocks read sectors of a line one after the other: from DRAM, to be joined for 490 clocks."""
    reads = replace(rounds_of([[sector] for sector in sectors]), line=np.zeros(len(sectors), int))
    merging = steady(groups, start_clocks=start_clocks, partitions=2, way_between_clocks=0.0)

    merged = merge_reads(reads, merging, len(sectors), 1)

    assert merged.first_wave == pytest.approx(read / len(sectors))


@pytest.mark.parametrize(("apart", "left"), [(60.0, 4), (80.0, 4.5), (220.0, 4.5), (240.0, 5)])
def test_what_the_other_partition_holds_is_joined_for_longer(apart: float, left: float) -> None:
    """Two blocks of group 2 read a place of two lines, which one of group 0 has brought to the L2.

    The line that their own partition holds can be joined for 70 clocks, and that in the other one
    for 160 more.
    """
    reads = replace(rounds_of([[7], [1, 7], [2, 7]]), lines=np.full(5, 2.0))
    merging = steady((0, 2, 2), way_between_clocks=160.0, block_clocks=20_000.0)
    merging = replace(merging, partitions=2, start_clocks=apart)

    merged = merge_reads(reads, merging, 3, 1)

    assert merged.first_wave * 5 == pytest.approx(left)


def test_blocks_that_have_joined_a_read_stay_in_step() -> None:
    """The second block joins the first miss 100 clocks late, and gets its data at once.

    The other reads hit, and could be joined for 70 clocks.
    """
    reads = replace(rounds_of([list(range(8))] * 2), unit=np.zeros(16, np.int64))

    merged = merge_reads(reads, steady((0, 0), start_clocks=100.0), 2, 1)

    assert merged.first_wave == pytest.approx(1 / 2)


def test_the_last_of_many_lines_comes_later() -> None:
    """A block whose read is of many lines reads its next place 600 clocks after the other one."""
    reads = rounds_of([[1, 3], [2, 3]])
    merging = steady((0, 0))
    merging = replace(merging, miss_rests=((1.0, 0.0), (32.0, 600.0)), rests=())

    apart = merge_reads(replace(reads, lines=np.array([1.0, 1.0, 32.0, 1.0])), merging, 2, 1)

    assert merge_reads(reads, merging, 2, 1).first_wave == pytest.approx(3 / 4)
    assert apart.first_wave == pytest.approx(1.0)


def test_blocks_on_one_multiprocessor_wait_for_those_that_are_older() -> None:
    """Two blocks have the same work, which the second one does after the first one: not in step.

    On multiprocessors of their own they read the second place together.
    """
    reads = rounds_of([[1, 4], [2, 4]])

    assert merge_reads(
        reads, steady((0,), block_clocks=20_000.0), 1, 2
    ).first_wave == pytest.approx(1.0)
    assert merge_reads(
        reads, steady((0, 0), block_clocks=20_000.0), 2, 1
    ).first_wave == pytest.approx(3 / 4)


def test_the_younger_block_of_two_works_while_the_older_one_waits() -> None:
    """Rounds of 1000 clocks, and reads of 300: the older block is at its next read each 1300.

    The younger one works 300 of them: 900 clocks in three rounds, and 100 more from 5200 on.
    """
    merging = steady((0,), latency_clocks=300.0, block_clocks=5000.0)

    older, younger = read_times(np.ones(5), 2, merging, 2)

    assert older.tolist() == [0.0, 1300.0, 2600.0, 3900.0, 5200.0]
    assert younger[:2].tolist() == [0.0, 5300.0]


def test_another_groups_read_of_a_line_lets_no_other_sectors_be_joined_for_longer() -> None:
    """The third block's read, of another group, can be joined until 790: so that of the fourth not.

    Else the fourth block, after 600 clocks, began a read that the fifth one joins.
    """
    reads = replace(rounds_of([[0], [0], [0], [1], [1]]), line=np.zeros(5, int))
    merging = steady((0, 0, 1, 0, 0), start_clocks=200.0, latency_clocks=600.0)

    assert merge_reads(reads, merging, 5, 1).first_wave == pytest.approx(4 / 5)


def test_rounds_are_timed_from_the_first_read() -> None:
    merging = replace(steady((0,)), start_deviation_clocks=150.0)

    assert read_times(np.ones(2), 1, merging, 1).tolist() == [[0.0, 280.0]]


def test_blocks_with_little_work_have_one_pace() -> None:
    older, younger = read_times(np.ones(50), 2, steady((0,), block_clocks=500.0), 2)

    assert np.abs(older - younger).max() <= 10.0 + 1e-6


@pytest.mark.parametrize(
    ("work", "within"),
    [
        (64, 0.26),  # 28, 9, 3, 1, 1, 1%
        (256, 0.11),  # 11, 2, 1, 1, 1, 1%
    ],
)
def test_blocks_share_a_multiprocessor_as_measured(work: int, within: float) -> None:
    """What eight blocks have done when the oldest has ended. The second one does more than here.

    A warp's loads of 16 bytes apart in shared memory take four wavefronts, as do its stores.
    """
    with (REPOSITORY / "docs" / "results" / "h200-block-paces.csv").open(newline="") as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    case = 8, work, 1
    rows = [row for row in rows if (row["blocks_per_sm"], row["work"], row["barriers"]) == case]
    clocks = 256 * (work + 1) * STEP_WAVEFRONTS
    h200 = ReadMerging.of(load_datasheet("h200"))
    assert h200 is not None
    merging = replace(h200, block_clocks=float(clocks))

    times = read_times(np.full(256, 32.0), 8, merging, 8)
    done = np.mean(times <= times[0, -1] + clocks / 256, axis=1)

    for rank in range(2, 8):
        assert done[rank] == pytest.approx(rows[rank]["done"], abs=within)


def test_a_third_block_starts_when_the_first_one_has_ended() -> None:
    merging = steady((0,), latency_clocks=300.0, block_clocks=5000.0)

    times = read_times(np.ones(5), 3, merging, 2)

    assert times[2, 0] == pytest.approx(times[0, -1] + 1300.0)


def test_blocks_that_queue_for_the_l1_advance_alike() -> None:
    """Two blocks with 500 clocks of work in each of two rounds: both have done 500 after 1000.

    Where the older one is served first, the younger one works while that waits for its second read,
    280 clocks, and the rest behind the older one's second round.
    """
    merging = steady((0,), block_clocks=1000.0)

    oldest_first = read_times(np.ones(2), 2, merging, 2)
    in_turn = read_times(np.ones(2), 2, replace(merging, in_turn=True), 2)

    assert oldest_first[:, 1] == pytest.approx([280.0 + 500.0, 280.0 + 1500.0])
    assert in_turn[:, 1] == pytest.approx([280.0 + 1000.0] * 2)


def test_blocks_start_one_by_one_in_later_waves_too() -> None:
    """Blocks of 280 clocks, of which one starts in 1000."""
    merging = steady((0,), start_clocks=1000.0)

    times = read_times(np.ones(1), 4, merging, 1)

    assert times[:, 0] == pytest.approx([0.0, 1000.0, 2000.0, 3000.0])


@pytest.mark.parametrize("per_sm", [1, 2, 4, 8])
def test_reads_of_short_blocks_are_merged_as_counted(per_sm: int) -> None:
    """Blocks without barriers, of four and 16 waves, that read a tile with others and one alone."""
    errors = []
    with (REPOSITORY / "docs" / "results" / "h100-short-tiles.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["blocks_per_sm"], row["own"], row["work"]) != (str(per_sm), "1", "16"):
                continue
            waves = int(row["waves"])
            block = np.arange(SMS * per_sm * waves)
            place = np.stack([block // int(row["readers"]), len(block) + block], axis=1).reshape(-1)
            rounds = ReadRounds(
                starts=2 * np.arange(len(block) + 1),
                round=np.repeat(block, 2),
                place=place,
                line=place,
                unit=place,
                sectors=np.full(len(place), 32.0),
                lines=np.full(len(place), 8.0),
                work=np.ones(len(place)),
            )
            merging = replace(h100(), between_barriers=False, block_clocks=8 * 94 / 4)
            merged = merge_reads(rounds, merging, SMS, per_sm)
            share = (merged.first_wave + (waves - 1) * merged.later) / waves
            errors.append(int(row["l1_sectors"]) / int(row["l2_sectors"]) * share - 1)

    assert len(errors) == 12
    assert np.abs(errors).max() < 0.16
    assert abs(np.mean(errors)) < 0.1


def test_later_blocks_start_where_others_have_ended() -> None:
    """The third block starts when the first two have ended, so nobody reads with it."""
    merged = merge_reads(rounds_of([[1], [1], [1]]), steady((0, 0), block_clocks=1000.0), 2, 1)

    assert (merged.first_wave, merged.later) == pytest.approx((1 / 2, 1.0))


def test_work_is_spread_over_a_blocks_rounds() -> None:
    """The first block has two rounds of 5000 clocks, the second one of 10,000 with two reads.

    They read place 1 together; when the first one reads place 2, the second one has had it.
    """
    reads = rounds_of([[1, 2], [1, 2]])
    reads = replace(reads, round=np.array([0, 1, 0, 0]), work=np.array([0.5, 0.5, 1.0, 1.0]))

    merged = merge_reads(reads, steady((0, 0), block_clocks=10_000.0), 2, 1)

    assert merged.first_wave == pytest.approx(3 / 4)


def test_warps_of_a_multiprocessor_ask_for_a_line_once() -> None:
    """Five blocks of two warps that all read a place: five ask for it, four of them by one read."""
    rounds = replace(rounds_of([[7]] * 10), warps=2, cached=np.ones(10, np.bool_))

    assert merge_reads(rounds, steady((0,) * 5), 5, 1).first_wave == pytest.approx(2 / 5)


def test_a_warp_reads_behind_the_work_before() -> None:
    """Two blocks of a warp, of which the second one computes for 1000 clocks before it reads."""
    rounds = replace(rounds_of([[7], [7]]), work_before=np.array([0.0, 1.0]))

    together = merge_reads(rounds, steady((0, 0), block_clocks=100.0), 2, 1)
    apart = merge_reads(rounds, steady((0, 0), block_clocks=1000.0), 2, 1)

    assert (together.first_wave, apart.first_wave) == pytest.approx((1 / 2, 1.0))


def test_few_blocks_are_dealt_to_gpcs_in_turn() -> None:
    """Eight fill the TPCs that stand alone; the others go to the eight other GPCs in turn.

    As benchmarks/few_blocks.cu prints; the single TPCs and the GPC of eight SMs are one group.
    """
    of_4, of_16, of_64 = (np.bincount(h100().groups(blocks, SMS)) for blocks in (4, 16, 64))

    assert of_4.max() == 4
    assert sorted(of_16.tolist()) == [1] * 7 + [9]
    assert sorted(of_64.tolist()) == [7] * 4 + [8] * 3 + [12]


def few_blocks(kernel: str) -> Iterator[tuple[Mapping[str, int], float]]:
    """Rows of one block on an SM or several with a wave, and reads that are left."""
    with (REPOSITORY / "docs" / "results" / "h100-few-blocks.csv").open(newline="") as file:
        for text in csv.DictReader(file):
            if text.pop("kernel") == kernel:
                row = {name: int(value) for name, value in text.items()}
                yield row, row["l2_sectors"] / row["l1_sectors"]


def test_reads_of_few_blocks_are_merged_as_counted() -> None:
    """Tiles between barriers, with so little work that blocks are in step."""
    errors = []
    for row, left in few_blocks("tiles"):
        if row["work"] != 16:
            continue
        blocks, trips = row["blocks"], row["trips"]
        block = np.arange(blocks)
        group = block // row["readers"]
        if not row["adjacent"]:
            group = block % -(-blocks // row["readers"])
        rounds = rounds_of((group[:, None] * trips + np.arange(trips)).tolist())
        merged = merge_reads(rounds, replace(h100(), block_clocks=100.0 * trips), SMS, 1)
        errors.append(merged.first_wave / left - 1)

    assert len(errors) == 22
    assert np.abs(errors).max() < 0.05


def test_reads_of_warps_that_go_their_own_ways_are_merged_as_counted() -> None:
    """Four warps read a tile each, 16 neighbours the same, and multiply for long.

    Of 8 blocks on an SM, which its issue slots bound, a trip takes 1375 clocks.
    """
    errors = []
    for row, left in few_blocks("strips 128 again 0"):
        if row["work"] != 256:
            continue
        blocks, trips, warps = row["blocks"], row["trips"], row["warps"]
        tile = np.arange(blocks * warps) // (warps * 16) * warps + np.arange(blocks * warps) % warps
        reads = rounds_of((tile[:, None] * trips + np.arange(trips)).tolist())
        reads = replace(reads, warps=warps, cached=np.ones(len(reads.place), np.bool_))
        reads = replace(reads, lines=np.full(len(reads.place), 4.0))
        merging = replace(h100(), block_clocks=1375.0 * trips, between_barriers=False)
        merged = merge_reads(reads, merging, SMS, blocks // SMS)
        errors.append(merged.first_wave / left - 1)

    assert len(errors) == 4
    assert np.abs(errors).max() < 0.25


def halves_of_lines(order: list[tuple[int, int]], lines: float, odd: tuple[int, int]) -> ReadRounds:
    """64 blocks, of which each eight read halves of the same lines in 16 rounds.

    Args:
        order: The number of the lines, and of their half, of each read in a round.
        lines: How many lines each read has.
        odd: What the blocks of odd numbers add to these numbers.
    """
    rounds, reads = 16, len(order)
    numbers, half = np.tile(np.array(order).T, rounds)
    block = np.arange(64)[:, None]
    line = block // 8 * 2**20 + np.repeat(np.arange(rounds), reads) * 64 + numbers
    line, half = line + block % 2 * odd[0], half + block % 2 * odd[1]
    place = (line * 2 + half).reshape(-1)  # 64 bytes, which an access to DRAM brings
    number = np.tile(np.repeat(np.arange(rounds), reads), 64)
    return ReadRounds(
        starts=np.arange(65) * rounds * reads,
        round=number,
        place=place,
        line=line.reshape(-1),
        unit=place,
        sectors=np.full(line.size, 2 * lines),
        lines=np.full(line.size, lines),
        work=np.full(line.size, 1 / rounds),
    )


def in_turns(reads: int) -> list[tuple[int, int]]:
    """Eight reads of first halves and eight of second ones, of so many lines in turn."""
    turns = [range(first, first + reads) for first in range(0, 8, reads)]
    return [(read, half) for turn in turns for half in (0, 1) for read in turn]


def left_of_halves(kernel: str) -> float:
    """The share of the reads that an H200 left."""
    with (REPOSITORY / "docs" / "results" / "h200-copied-rows.csv").open(newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["kernel"] == kernel)
    return int(row["l2_sectors"]) / int(row["l1_sectors"])


@pytest.mark.parametrize(
    ("kernel", "order", "odd", "within"),
    [
        ("halves 0", [(0, 0)], (0, 0), 0.02),
        ("halves 1", [(0, 0)], (0, 1), 0.2),
        ("halves 2", [(0, 0)], (32, 0), 0.02),
        ("halves 3", [(0, 0), (0, 1)], (0, 0), 0.2),
        ("halves 4", [(0, 0), (32, 0)], (0, 0), 0.02),
        *((f"turns {lines}", in_turns(lines // 8), (0, 0), 0.1) for lines in (8, 16, 32, 64)),
    ],
)
def test_reads_of_halves_of_a_line_disturb_each_other(
    kernel: str, order: list[tuple[int, int]], odd: tuple[int, int], within: float
) -> None:
    """Neighbours that read other halves, or the reads of a block: the nearer, the more."""
    h200 = ReadMerging.of(load_datasheet("h200"))
    assert h200 is not None
    merging = replace(h200, block_clocks=1600.0, partitions=2)

    lines = 8.0 if len(order) > 2 else 64.0 / len(order)
    merged = merge_reads(halves_of_lines(order, lines, odd), merging, SMS, 1)

    assert merged.first_wave == pytest.approx(left_of_halves(kernel), rel=within)


@pytest.mark.parametrize(
    ("places", "left"),
    # Each place is read once, and of what is joined a line apart exp(-1 / 15) is not merged.
    [([7, 7], 1 / 4), ([7, 8], (1 + np.exp(-1 / 15)) / 2)],
)
def test_a_round_that_reads_a_line_twice_disturbs_itself_by_other_sectors(
    places: list[int], left: float
) -> None:
    """Two blocks of a group read the same, in one round."""
    rounds = rounds_of([places] * 2)
    rounds = replace(rounds, round=np.zeros(4, np.int64), line=np.full(4, 7))

    merged = merge_reads(rounds, steady((0, 0)), 2, 1)

    assert merged.first_wave == pytest.approx(left)


def column_reads() -> Iterator[tuple[Mapping[str, int], float]]:
    """Rows of blocks that read DRAM, not bound by the L1, and reads that are left."""
    with (REPOSITORY / "docs" / "results" / "h200-column-reads.csv").open(newline="") as file:
        for text in csv.DictReader(file):
            row = {name: int(value) for name, value in text.items()}
            many = row["blocks"] > SMS and row["trips"] > 1 and row["lines"] > 8
            if not row["cached"] and not many:
                yield row, row["l2_sectors"] / row["l1_sectors"]


def columns(row: Mapping[str, int]) -> ReadRounds:
    """The warps of blocks read a sector each of some lines, which other blocks read too."""
    warps, trips = row["threads"] // 32, row["trips"]
    block, warp = (each.reshape(-1, 1) for each in np.indices((row["blocks"], warps)))
    group = block // (row["apart"] * row["readers"]) * row["apart"] + block % row["apart"]
    line = (group // row["split"] * trips + np.arange(trips)) * warps + warp
    place = line * 4 + group % row["split"]
    return ReadRounds(
        starts=np.arange(len(block) + 1) * trips,
        round=np.tile(np.arange(trips), len(block)),
        place=place.reshape(-1),
        line=line.reshape(-1),
        unit=place.reshape(-1) // 2,  # an access to DRAM brings two sectors
        sectors=np.full(place.size, float(row["lines"])),
        lines=np.full(place.size, float(row["lines"])),
        work=np.full(place.size, 1 / trips),
        warps=warps,
    )


def test_reads_of_other_sectors_of_a_line_disturb_each_other_as_counted() -> None:
    """Blocks that read columns: their reads are merged if no others read the same lines.

    Those that begin together, at a barrier of the grid, are less apart than others. An addition, a
    vote and a comparison follow each load.
    """
    h200 = ReadMerging.of(load_datasheet("h200"))
    assert h200 is not None
    errors: dict[bool, list[float]] = defaultdict(list)
    for row, left in column_reads():
        merging = replace(h200, partitions=2, between_barriers=False)
        merging = replace(merging, block_clocks=row["trips"] * row["threads"] * 40 / 32)
        if row["together"]:
            merging = replace(merging, start_deviation_clocks=50.0)
        resident = 1 if row["whole"] else 8 * 256 // row["threads"]
        merged = merge_reads(columns(row), merging, SMS, resident)
        later = max(1 - SMS * resident / row["blocks"], 0.0)
        share = merged.first_wave * (1 - later) + merged.later * later
        errors[row["split"] > 1].append(share - left)

    assert [len(errors[split]) for split in (False, True)] == [22, 36]
    assert np.abs(errors[False]).mean() < 0.045
    assert np.abs(errors[True]).mean() < 0.08
    assert abs(np.median(errors[True])) < 0.03


def product_reads(blocks: int, side: int, depth: int) -> ReadRounds:
    """Of blocks that read rows of A with those of their row, and lines of B with their column."""
    rounds = 1024 // depth
    block, number = np.arange(blocks)[:, None], np.arange(rounds)
    of_a, of_b = block // side * rounds + number, block % side * rounds + number + 2**20
    line_of_a = of_a // (32 // depth)
    unit_of_a = of_a if depth == 16 else of_a // 2  # which an access to DRAM of 64 bytes brings
    return ReadRounds(
        starts=np.arange(blocks + 1) * rounds * 2,
        round=np.tile(np.repeat(number, 2), blocks),
        place=np.stack([of_a, of_b], axis=-1).reshape(-1),
        line=np.stack([line_of_a, of_b], axis=-1).reshape(-1),
        unit=np.stack([unit_of_a, of_b], axis=-1).reshape(-1),
        sectors=np.full(blocks * rounds * 2, 16.0 * depth),
        lines=np.tile([128.0, 4.0 * depth], blocks * rounds),
        work=np.full(blocks * rounds * 2, 1 / rounds),
    )


def errors_of_products(partitions: int) -> list[float]:
    """Errors of the reads that are left of blocks on SMs of their own.

    A step takes what a round takes longer with 128 steps than with 32.
    """
    h200 = ReadMerging.of(load_datasheet("h200"))
    assert h200 is not None
    launches: dict[tuple[int, ...], list[Mapping[str, int]]] = defaultdict(list)
    with (REPOSITORY / "docs" / "results" / "h200-product-reads.csv").open(newline="") as file:
        for text in csv.DictReader(file):
            row = {name: int(value) for name, value in text.items() if name != "kernel"}
            if row["blocks"] <= SMS:
                key = row["blocks"], row["side"], row["depth"], row["shared_bytes"]
                launches[key].append(row)
    errors = []
    for (blocks, side, depth, _), (short, long) in launches.items():
        step = (long["round_clocks"] - short["round_clocks"]) / (long["work"] - short["work"])
        for row in (short, long):
            clocks = 1024 / depth * row["work"] * step
            merging = replace(h200, block_clocks=clocks, partitions=partitions)
            merged = merge_reads(product_reads(blocks, side, depth), merging, SMS, 1)
            errors.append(merged.first_wave * row["l1_sectors"] / row["l2_sectors"] - 1)
    return errors


def test_reads_of_products_are_merged_as_counted() -> None:
    """Without the way between the partitions, too few are."""
    errors = errors_of_products(partitions=2)

    assert len(errors) == 28
    assert np.abs(errors).mean() < 0.08
    assert abs(np.median(errors)) < 0.05
    assert np.abs(errors_of_products(partitions=1)).mean() > 0.2


def counted(table: str) -> Iterator[Mapping[str, int]]:
    """The rows of blocks that wait at barriers, of tiles in whole lines."""
    with (REPOSITORY / "docs" / "results" / table).open(newline="") as file:
        for text in csv.DictReader(file):
            row = {"trips": 32, "both": 0, "row_bytes": 128} | {k: int(v) for k, v in text.items()}
            if row["barrier"] == 1 and row["row_bytes"] == 128:
                yield row


def simulated(row: Mapping[str, int]) -> float:
    """Reads that become one, of a row of a table."""
    blocks = SMS * row["blocks_per_sm"] * row["waves"]
    trips = row["trips"]
    groups = -(-blocks // row["readers"])
    block = np.arange(blocks)
    tiles = [block // row["readers"] if row["adjacent"] else block % groups]
    if row["both"]:
        tiles.append(groups + block % COLUMNS)
    places = np.stack(tiles, axis=1)[:, None, :] * trips + np.arange(trips)[:, None]
    rounds = ReadRounds(
        starts=np.arange(blocks + 1) * trips * len(tiles),
        round=np.tile(np.repeat(np.arange(trips), len(tiles)), blocks),
        place=places.reshape(-1),
        line=places.reshape(-1),
        unit=places.reshape(-1),
        sectors=np.full(places.size, 128.0),
        lines=np.full(places.size, 32.0),
        work=np.full(places.size, 1 / trips),
    )
    clocks = trips * (row["work"] * STEP_WAVEFRONTS + TRIP_WAVEFRONTS)
    merging = replace(h100(), block_clocks=float(clocks))
    merged = merge_reads(rounds, merging, SMS, row["blocks_per_sm"])
    return row["waves"] / (merged.first_wave + (row["waves"] - 1) * merged.later)


ONE, NEIGHBOURS, APART, BOTH = 1, (16, 1, 0), (16, 0, 0), (16, 1, 1)


@pytest.mark.parametrize(
    ("per_sm", "work", "readers", "within"),
    [
        (ONE, 16, NEIGHBOURS, 0.05),  # 3.75
        (ONE, 256, NEIGHBOURS, 0.05),  # 3.87
        (ONE, 64, APART, 0.02),  # 1.83: the blocks of a GPC that read the same
        (ONE, 64, BOTH, 0.15),  # 1.58
        (2, 16, NEIGHBOURS, 0.05),  # 3.74
        (2, 256, APART, 0.05),  # 1.05
        (8, 64, APART, 0.05),  # 1.02
    ],
)
def test_reads_are_merged_as_counted(
    per_sm: int, work: int, readers: tuple[int, int, int], within: float
) -> None:
    for row in counted("h100-row-reads.csv"):
        case = row["readers"], row["adjacent"], row["both"]
        if (row["blocks_per_sm"], row["work"], case) != (per_sm, work, readers):
            continue
        if row["waves"] == 1 and row["trips"] == 128:
            assert simulated(row) == pytest.approx(row["l1_sectors"] / row["l2_sectors"], within)
            return
    pytest.fail("the table has no such row")


@pytest.mark.parametrize(
    ("table", "right", "median"),
    [("h100-row-reads.csv", 0.75, 0.08), ("h100-wave-reads.csv", 0.75, 0.08)],
)
def test_most_reads_are_merged_as_counted_but_for_a_fifth(
    table: str, right: float, median: float
) -> None:
    """Of grids of up to 40,000 reads. A block apart may share its SM, whose L1 is not simulated."""
    errors = [
        abs(simulated(row) / row["l1_sectors"] * row["l2_sectors"] - 1)
        for row in counted(table)
        if SMS * row["blocks_per_sm"] * row["waves"] * row["trips"] <= 40_000
    ]

    assert len(errors) > 40
    assert np.mean(np.array(errors) < 0.2) > right
    assert np.median(errors) < median

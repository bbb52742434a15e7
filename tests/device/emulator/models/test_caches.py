from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator.models import address_streams, caches
from memlab.device.emulator.models.address_streams import (
    AccessStream,
    ActiveRegion,
    _lines_used_again,
    _numbered_lines,
)
from memlab.device.emulator.models.caches import CacheGeometry
from memlab.device.emulator.models.read_merging import ReadMerging
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES
from memlab.kernels.launch import Dim3

LINE_SECTORS = 4


def lru_misses(units: list[int], units_per_line: int, lines: int) -> list[bool]:
    """A cache of whole lines filled by the unit, least recently used line out first."""
    held: OrderedDict[int, set[int]] = OrderedDict()
    missed = []
    for unit in units:
        line = unit // units_per_line
        filled = held.pop(line, set())
        missed.append(unit not in filled)
        held[line] = filled | {unit}
        if len(held) > lines:
            held.popitem(last=False)
    return missed


@given(
    st.lists(st.integers(0, 60), max_size=200),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 20),
    st.sampled_from([0, 2**30]),
)
def test_one_access_per_window_is_an_exact_lru(
    units: list[int], units_per_line: int, lines: int, gap: int
) -> None:
    unit = np.array(units, np.int64)
    apart = unit + unit // units_per_line * units_per_line * gap  # the lines, `gap` lines apart
    missed = caches.misses(np.arange(len(units)), apart, units_per_line, lines * LINE_BYTES)

    assert missed.tolist() == lru_misses(units, units_per_line, lines)


def test_of_several_accesses_in_a_window_one_misses() -> None:
    window, unit = np.array([0, 0, 0, 1, 1]), np.array([7, 7, 8, 7, 9])

    assert caches.misses(window, unit, 4, 1024).tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("grid", "origin", "expected"),
    [
        ((1, 1, 1), (0, 0, 0), [(0, 0, 0)] * 5),
        ((2, 1, 1), (0, 0, 0), [(0, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 0), (1, 0, 0)]),
        ((3, 1, 1), (1, 0, 0), [(1, 0, 0), (0, 0, 0), (1, 0, 0), (1, 0, 0), (2, 0, 0)]),
        ((1, 9, 1), (0, 4, 0), [(0, 4, 0), (0, 4, 0), (0, 3, 0), (0, 4, 0), (0, 2, 0)]),
        ((9, 3, 2), (4, 1, 0), [(4, 1, 0), (3, 1, 0), (4, 0, 0), (4, 1, 1), (2, 0, 1)]),
    ],
)
def test_neighbourhoods_stay_in_the_grid(
    grid: tuple[int, int, int], origin: tuple[int, int, int], expected: list[tuple[int, int, int]]
) -> None:
    assert list(map(tuple, address_streams.neighborhood_blocks(grid, origin).tolist())) == expected


ENDLESS = 2**40  # sectors of an array that no cache holds


def all_of(grid: Dim3, like: float | None = None) -> ActiveRegion:
    """A grid whose blocks all work."""
    x, y, z = grid
    return ActiveRegion((range(x), range(y), range(z)), x * y * z if like is None else like)


def stream(
    windows: list[int], sectors: list[int], strides: list[tuple[int, int, int]], **changes: object
) -> AccessStream:
    """A stream of loads of the block in the origin."""
    rows = len(sectors)
    made = AccessStream(
        origin=(0, 0, 0),
        window=np.array(windows),
        round=np.array(windows),
        sector=np.array(sectors),
        store=np.zeros(rows, np.bool_),
        reads=np.ones(rows, np.bool_),
        cached=np.ones(rows, np.bool_),
        again=np.zeros(rows, np.bool_),
        copied=np.zeros(rows, np.bool_),
        stride=np.array(strides).reshape(rows, 3) * SECTOR_BYTES,
        phase=np.zeros(rows, np.int64),
        low=np.zeros(rows, np.int64),
        high=np.full(rows, ENDLESS),
        affine=np.ones(rows, np.bool_),
        advance=np.zeros(rows, np.int64),
        windows=max(windows) + 1,
        sectors=rows,
        load_sectors=rows,
        cacheable_share=1.0,
        load_share=1.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def matrix_product(width: int, tile: int) -> AccessStream:
    """A block's tiles of M and N, a window a phase: M's move with y, N's with x.

    Both matrices are square, M from sector 0 on and N behind it, 8 elements a sector.
    """
    row, tile_sectors = width // 8, tile // 8
    windows, sectors, strides = [], [], []
    for phase in range(width // tile):
        for y in range(tile):
            for x in range(tile_sectors):
                windows += [phase, phase]
                sectors += [y * row + phase * tile_sectors + x]
                strides += [(0, tile * row, 0)]
                sectors += [width * row + (phase * tile + y) * row + x]
                strides += [(tile_sectors, 0, 0)]
    return stream(windows, sectors, strides)


def geometry(**changes: int) -> CacheGeometry:
    made = CacheGeometry(
        multiprocessors=4,
        resident_blocks=2,
        l1_bytes=64 * 1024,
        l2_bytes=1 << 20,
        dram_access_bytes=32,
    )
    return replace(made, **changes)


def test_accesses_to_one_line_of_a_window_are_told_apart_from_one_of_several_sectors() -> None:
    # Windows 0, 0 and 1: all of line 5; the last sector of it and the first one of line 6; line 5.
    window, count = np.array([0, 0, 1]), np.array([4, 2, 1])
    lines = np.array([20, 21, 22, 23, 23, 24, 20]) // LINE_SECTORS

    used = _lines_used_again(window, count, lines)

    rows = _numbered_lines(np.array([0, 0, 0, 0, 0, 1]), np.array([5, 5, 5, 5, 6, 5]))
    assert np.isin(rows, used).tolist() == [True] * 4 + [False] * 2


def test_affine_accesses_have_the_stride_of_the_block() -> None:
    made = stream([0, 1], [100, 200], [(3, 50, 0), (0, 0, 7)])

    grid = all_of((10, 10, 10))
    moved = address_streams.translate_sectors(
        made, grid.order(np.array([(0, 0, 0), (2, 0, 0), (1, 3, 5)])), grid
    )

    assert moved.tolist() == [[100, 200], [106, 200], [253, 235]]


def test_strides_of_less_than_a_sector_add_up() -> None:
    """A word a block, from the sixth one of sector 100 on, and back from it."""
    made = stream([0, 0], [100, 100], [(0, 0, 0)] * 2, phase=np.array([20, 20]))
    made = replace(made, stride=np.array([(4, 0, 0), (-4, 0, 0)]))

    moved = address_streams.translate_sectors(made, np.array([0, 2, 3, 11, 6]), all_of((12, 1, 1)))

    assert moved.T.tolist() == [[100, 100, 101, 102, 101], [100, 100, 100, 99, 99]]


def test_affine_accesses_stay_in_their_array() -> None:
    """As `x[i % n]`: an array of 100 sectors from 200 on, and one that no block leaves."""
    low, high = np.array([200, 0]), np.array([299, ENDLESS])
    made = stream([0, 0], [230, 400], [(30, 0, 0)] * 2, low=low, high=high)

    moved = address_streams.translate_sectors(made, np.arange(5), all_of((5, 1, 1)))

    assert moved[:, 0].tolist() == [230, 260, 290, 220, 250]
    assert moved[:, 1].tolist() == [400, 430, 460, 490, 520]


def test_segments_of_blocks_that_follow_one_another_advance_through_their_array() -> None:
    """Arrays of 25 lines from sector 200 on and of 10 from 400 on, and 100 blocks."""
    low, high = np.array([0, 200, 200, 400]), np.array([ENDLESS, 299, 299, 439])
    made = stream([0] * 4, [100, 200, 298, 417], [(3, 0, 0)] * 4, low=low, high=high)
    made = replace(made, affine=np.array([True, False, False, False]), advance=np.ones(4, int))
    block = np.arange(100)

    moved = address_streams.translate_sectors(made, block, all_of((100, 1, 1)))

    assert (moved[:, 0] == 100 + 3 * block).all()
    lines = block * 25 // 100  # a line further every fourth block
    assert (moved[:, 1] == 200 + 4 * lines).all()
    assert (moved[:, 2] == 200 + (98 + 4 * lines) % 100).all()  # round the array's end
    assert (moved[:, 3] == 400 + (17 + 4 * (block * 10 // 100)) % 40).all()


@pytest.mark.parametrize("advance", [-1000, 0, 1000])
def test_blocks_that_do_not_follow_one_another_scatter_over_the_pages_of_an_array(
    advance: int,
) -> None:
    """Each of 512 blocks reads 64 lines of 63 of 1280 pages of 2048 lines; 2.5 pages a block."""
    pages = np.random.default_rng(1).integers(0, 1280, 63)
    lines = (2048 * pages[:, None] + 64 * 7 + np.arange(64)).reshape(-1)
    made = stream([0] * len(lines), (4 * lines).tolist(), [(0, 0, 0)] * len(lines))
    high = np.full(len(lines), 1280 * 2048 * 4 - 1)
    made = replace(
        made, affine=np.zeros(len(lines), bool), advance=np.full(len(lines), advance), high=high
    )
    read, *_ = caches.dram_bytes(
        made, all_of((512, 1, 1)), geometry(l2_bytes=1 << 28, resident_blocks=512)
    )

    touched = 1 - np.exp(-512 * len(lines) / (1280 * 2048))  # by random draws
    assert read == pytest.approx(touched * 1280 * 2048 * 32, rel=0.1)


def test_launch_order_positions_are_counted_in_the_region() -> None:
    part = ActiveRegion((range(3, 7), range(2, 4), range(5, 8)), 24)
    places = part.coordinates(np.arange(24))

    expected = [(x, y, z) for z in part.region[2] for y in part.region[1] for x in part.region[0]]
    assert list(map(tuple, places.tolist())) == expected
    assert part.order(places).tolist() == list(range(24))


def test_only_active_blocks_are_simulated_and_scaled_to_the_count() -> None:
    """Each reads 4 sectors of its own, nothing is kept: half of the blocks, or half more."""
    made = stream([0] * 4, list(range(4)), [(4, 0, 0)] * 4)
    cache = geometry(l2_bytes=0)

    for like in (100, 50, 150):
        assert caches.dram_bytes(made, all_of((100, 1, 1), like), cache).loaded == like * 4 * 32


def test_each_input_is_read_once_where_the_l2_holds_it() -> None:
    read, _, written = caches.dram_bytes(matrix_product(64, 16), all_of((4, 4, 1)), geometry())

    assert read == 2 * 64 * 64 * 4
    assert written == 0


def test_without_an_l2_each_window_is_read_again() -> None:
    # A wave is 2 rows of 4 blocks. In each of 4 phases it touches 2 tiles of M and 4 of N; the
    # grid is 2 waves, and a tile is 16 x 16 x 4 bytes.
    read, *_ = caches.dram_bytes(matrix_product(64, 16), all_of((4, 4, 1)), geometry(l2_bytes=0))

    assert read == 2 * 4 * (2 + 4) * 1024


def test_memory_is_read_by_its_own_access_size() -> None:
    far_apart = stream([0, 0], [0, 100], [(0, 0, 0)] * 2)

    read, *_ = caches.dram_bytes(far_apart, all_of((1, 1, 1)), geometry(dram_access_bytes=64))

    assert read == 2 * 64


@pytest.mark.parametrize("atomic", [False, True])
def test_written_lines_are_evicted_from_a_small_l2(atomic: bool) -> None:
    blocks, each = 1 << 12, 1 << 7
    made = stream(
        [0] * each,
        list(range(each)),
        [(each, 0, 0)] * each,
        store=np.ones(each, np.bool_),
        reads=np.full(each, atomic),
    )
    total = blocks * each * 32

    kept = caches.dram_bytes(made, all_of((blocks, 1, 1)), geometry(l2_bytes=total))
    spilled = caches.dram_bytes(made, all_of((blocks, 1, 1)), geometry(l2_bytes=total // 4))

    read = total if atomic else 0  # an atomic changes what is there
    assert kept == (0, read, 0)
    assert spilled[:2] == (0, read)
    assert spilled.written == pytest.approx(total * 3 / 4, rel=0.01)


def test_blocks_on_one_multiprocessor_share_its_l1() -> None:
    # Four multiprocessors and four columns of blocks: the two on one are in the same column and
    # share N's tiles, not M's. Of four tiles three miss.
    rate = caches.l1_reads(matrix_product(64, 16), all_of((4, 4, 1)), geometry()).miss_rate

    assert rate == pytest.approx(3 / 4)


def test_blocks_find_in_the_l1_what_earlier_ones_left() -> None:
    """A block reads a sector of 64, and a multiprocessor runs 64 blocks, one of each wave of four.

    Which of the four is left to chance. Each sixteenth wave reads the same four sectors, so that of
    each four 4 * (1 - (3 / 4)**4) are read on a multiprocessor.
    """
    made = stream([0], [0], [(1, 0, 0)], high=np.array([63]))

    rate = caches.l1_reads(made, all_of((256, 1, 1)), geometry(resident_blocks=1)).miss_rate

    assert rate == pytest.approx(1 - (3 / 4) ** 4, abs=0.1)


@pytest.mark.parametrize(
    ("again", "between", "rate"), [(0, 100, 0.5), (0, 1000, 1.0), (1, 1000, 0.5)]
)
def test_stores_take_room_in_the_l1(again: int, between: int, rate: float) -> None:
    """Of 512 lines, a block reads 300, stores `between` others, and reads 300 of either again.

    The last ones, where these are of the stored lines.
    """
    read, stored = 4 * np.arange(300), 4 * (1000 + np.arange(between))
    sectors = np.concatenate([read, stored, stored[-300:] if again else read])
    windows = np.repeat([0, 1, 2], [300, between, 300])
    made = stream(
        windows.tolist(),
        sectors.tolist(),
        [(10_000, 0, 0)] * len(sectors),
        store=windows == 1,
        reads=windows != 1,
        load_sectors=600,
    )

    found = caches.l1_reads(made, all_of((4, 1, 1)), geometry(resident_blocks=1)).miss_rate

    # Sets lose lines in turn, so some of the last ones go, too.
    assert found == pytest.approx(rate, abs=0.11 if again else 1e-6)


def test_reads_of_several_multiprocessors_are_merged() -> None:
    """A row's four blocks read its tile of M; a column's four share one L1 and read N's once."""
    merging = replace(geometry(resident_blocks=4), merged_by_readers=((2.0, 1.25), (4.0, 2.0)))

    share = caches.l1_reads(matrix_product(64, 16), all_of((4, 4, 1)), merging).coalesced_share

    assert share == pytest.approx((1.0 / 2.0 + 0.25) / 1.25)


def test_reads_of_the_first_wave_alone_are_merged() -> None:
    """Of its half of the blocks, four read a row's tile of M; the two of a column share N's."""
    merging = replace(geometry(resident_blocks=2), merged_by_readers=((2.0, 1.25), (4.0, 2.0)))

    share = caches.l1_reads(matrix_product(64, 16), all_of((4, 4, 1)), merging).coalesced_share

    assert share == pytest.approx((1 + (1.0 / 2.0 + 0.5) / 1.5) / 2)


def test_later_waves_merge_the_reads_of_neighbouring_blocks() -> None:
    """Two blocks of a wave read a row's tile of M after one another, and columns' tiles apart."""
    made = matrix_product(64, 16)
    apart = replace(
        geometry(l1_bytes=0, resident_blocks=1), multiprocessors=2, merged_by_readers=((2.0, 1.0),)
    )

    alone = caches.l1_reads(made, all_of((4, 4, 1)), apart).coalesced_share
    merging = replace(apart, merged_later=((2.0, 1.6),))
    share = caches.l1_reads(made, all_of((4, 4, 1)), merging).coalesced_share

    assert alone == pytest.approx(1.0)
    # All of the 8 waves but the first one; half of what a block reads is of M.
    assert share == pytest.approx(1 / 8 + 7 / 8 * (1 / 1.6 + 1) / 2)


@pytest.mark.parametrize(("sectors", "merged"), [([0, 1], 1.6), ([0], 1.0), ([0, 4], 1.0)])
def test_later_waves_do_not_merge_lone_sectors_of_lines(sectors: list[int], merged: float) -> None:
    """All blocks of a row read the same one or two sectors, of one line or of two."""
    made = stream([0] * len(sectors), sectors, [(0, 16, 0)] * len(sectors))
    apart = replace(geometry(l1_bytes=0, resident_blocks=1), multiprocessors=2)
    merging = replace(apart, merged_by_readers=((2.0, 1.0),), merged_later=((2.0, 1.6),))

    share = caches.l1_reads(made, all_of((4, 4, 1)), merging).coalesced_share

    assert share == pytest.approx(1 / 8 + 7 / 8 / merged)


STEADY = ReadMerging(
    units=((1, 0),),
    most=4,
    coalescer_clocks=200.0,
    rests=(),
    miss_rests=(),
    latency_clocks=300.0,
    deviation_clocks=0.0,
    miss_clocks=700.0,
    miss_deviation_clocks=0.0,
    pace_deviation=0.0,
    start_clocks=0.0,
)
"""A coalescer of all multiprocessors, before blocks that never lose step."""


def test_reads_of_blocks_in_step_are_merged_by_groups() -> None:
    """Four blocks read each tile, those of a row of M, those of a column of N: one read is left.

    A row of a tile is a line.
    """
    merging = replace(geometry(l1_bytes=0, resident_blocks=1), multiprocessors=16, reads=STEADY)
    apart = replace(merging, reads=replace(STEADY, units=((8, 0), (8, 1))))

    made, grid = matrix_product(128, 32), all_of((4, 4, 1))

    assert caches.l1_reads(made, grid, merging).coalesced_share == pytest.approx(1 / 4)
    # Rows of blocks lie in one group, columns half in each.
    share = caches.l1_reads(made, grid, apart).coalesced_share
    assert share == pytest.approx((1 / 4 + 2 / 4) / 2)


@pytest.mark.parametrize(
    ("sectors", "rows", "share"),
    [([0, 1], 4, 1 / 2), ([0], 4, 1 / 8 + 3 / 4), ([0], 3, 1 / 2)],
)
def test_lone_sectors_of_blocks_in_step_merge_up_to_three_waves(
    sectors: list[int], rows: int, share: float
) -> None:
    """Waves of two blocks that read the same one or two sectors of a line."""
    made = stream([0] * len(sectors), sectors, [(0, 16, 0)] * len(sectors))
    apart = replace(geometry(l1_bytes=0, resident_blocks=1), multiprocessors=2, reads=STEADY)

    found = caches.l1_reads(made, all_of((2, rows, 1)), apart).coalesced_share

    assert found == pytest.approx(share)


@pytest.mark.parametrize(("most", "share"), [(10_000, 1 / 4), (100, 1.0)])
def test_blocks_without_barriers_are_simulated_in_full_or_not(
    monkeypatch: pytest.MonkeyPatch, most: int, share: float
) -> None:
    """Else the table counts, which merges nothing here: first rounds tell nothing of later ones."""
    monkeypatch.setattr(caches, "_MOST_FREE_READS", most)
    free = replace(STEADY, between_barriers=False)
    merging = replace(geometry(l1_bytes=0, resident_blocks=1), multiprocessors=16, reads=free)

    found = caches.l1_reads(matrix_product(128, 32), all_of((4, 4, 1)), merging).coalesced_share

    assert found == pytest.approx(share)


@pytest.mark.parametrize(("clocks", "rate"), [(0.0, 0.5), (64 * 20_000.0, 1.0)])
def test_blocks_that_compute_for_long_do_not_share_an_l1(clocks: float, rate: float) -> None:
    """Two blocks of an SM read the same 64 lines, one in each round; the L1 holds four.

    With little work they go at one pace, and the second one finds each line. With much, the first
    one has read all when the second one is at its second line.
    """
    made = stream(list(range(64)), list(range(0, 256, 4)), [(0, 0, 0)] * 64)
    shared = replace(geometry(l1_bytes=4 * LINE_BYTES, resident_blocks=2), multiprocessors=1)
    paced = replace(shared, paces=replace(STEADY, block_clocks=clocks))

    assert caches.l1_reads(made, all_of((2, 1, 1)), shared).miss_rate == pytest.approx(0.5)
    assert caches.l1_reads(made, all_of((2, 1, 1)), paced).miss_rate == pytest.approx(
        rate, abs=0.04
    )


def test_addresses_that_depend_on_data_are_not_merged_in_step() -> None:
    made = replace(
        matrix_product(64, 16), affine=np.zeros(len(matrix_product(64, 16).sector), bool)
    )
    merging = replace(geometry(l1_bytes=0, resident_blocks=1), multiprocessors=16, reads=STEADY)

    assert caches.l1_reads(made, all_of((4, 4, 1)), merging).coalesced_share == 1.0


@pytest.mark.parametrize(("lines", "rate"), [(120, 1 / 2), (57, 1.0)])
def test_a_warp_that_walks_rows_needs_a_line_for_each(lines: int, rate: float) -> None:
    """`row_sum`: 32 threads, each along its own row, use the four sectors of a line in turn."""
    steps = 64
    made = stream(
        list(np.repeat(np.arange(steps), 32)),
        [thread * 1024 + step // 2 for step in range(steps) for thread in range(32)],
        [(32 * 1024, 0, 0)] * 32 * steps,
    )
    one_block = geometry(l1_bytes=lines * LINE_BYTES, resident_blocks=1)

    found = caches.l1_reads(made, all_of((4, 1, 1)), one_block).miss_rate

    # Two steps share a sector where lines live on; else each step fetches its sector anew.
    assert found == pytest.approx(rate, abs=0.03)


def test_accesses_that_bypass_the_l1_always_miss() -> None:
    made = stream([0, 1], [5, 5], [(0, 0, 0)] * 2, cached=np.zeros(2, np.bool_))

    assert caches.l1_reads(made, all_of((1, 1, 1)), geometry()).miss_rate == 1


def test_a_block_without_accesses_reads_no_memory() -> None:
    nothing = np.zeros(0, np.int64)
    made = replace(
        stream([0], [0], [(0, 0, 0)]),
        **dict.fromkeys(("window", "sector", "low", "high"), nothing),
        **dict.fromkeys(("store", "reads", "cached", "affine"), nothing.astype(np.bool_)),
        stride=np.zeros((0, 3), np.int64),
    )

    assert caches.dram_bytes(made, all_of((4, 4, 1)), geometry()) == (0, 0, 0)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([1, 16]))
def test_a_sampled_simulation_approximates_the_whole_one(seed: int, stride: int) -> None:
    """Random reads of 1 MiB through a cache of a quarter of it; or of each 16th sector of it."""
    generator = np.random.default_rng(seed)
    sectors = generator.integers(0, (1 << 15) // stride, 4096) * stride
    windows = list(np.repeat(np.arange(64), 64))
    made = stream(windows, list(sectors), [(0, 0, 0)] * 4096, high=np.full(4096, 32767))
    made = replace(made, affine=np.zeros(4096, np.bool_))
    cache, grid = geometry(l2_bytes=1 << 18), all_of((80, 2, 1))
    whole, *_ = caches.dram_bytes(made, grid, cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "_LARGEST_SIMULATION", 16_384)
        thinned, *_ = caches.dram_bytes(made, grid, cache)

    assert thinned == pytest.approx(whole, rel=0.15)


def test_a_large_sampled_simulation_finds_the_same_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line in some, in a cache smaller by as much, is missed as often."""
    generator = np.random.default_rng(1)
    windows = np.sort(generator.integers(0, 200, 20_000)).tolist()
    sectors = generator.integers(0, 4_000, 20_000).tolist()
    read = replace(stream(windows, sectors, [(0, 0, 0)] * 20_000), windows=200)
    geometry = CacheGeometry(1, 2, 64 * 1024, 0, 64)

    def rate() -> float:
        return caches.l1_reads(read, all_of((8, 1, 1)), geometry).miss_rate

    whole = rate()
    monkeypatch.setattr(caches, "_LARGEST_L1_SIMULATION", 10_000)

    assert 0.1 < whole < 0.9
    assert rate() == pytest.approx(whole, rel=0.1)

"""The sectors that launches read from the L2 and from DRAM, against all their addresses.

The expected figures come from NumPy alone: which 32-byte sectors each block touches, or an exact
least-recently-used cache over all accesses in the order of the blocks.
"""

from __future__ import annotations

import csv
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import launches
import numpy as np
import pytest
from launches import user_launch
from numpy.typing import NDArray
from paths import REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation import counting, executed_addresses, representative_block
from memlab.device.emulation.device import emulate
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.emulation.execution import Execution
from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.kernels.launch import Buffer, Dim3, InMemoryArray, Launch, Scalar, SingleValue

pytestmark = pytest.mark.slow

THREADS, SECTOR = 256, 32
RESULTS = REPOSITORY / "docs" / "results"
launch_of = partial(launches.launch_of, threads=THREADS)
H200 = loader.load_datasheet("h200")
EXACT = replace(H200, dram_access_bytes=SECTOR, l2_partitions=1, dram_launch_bytes=None)
"""An H200 whose DRAM accesses are one sector, whose L2 is in one piece, and whose launches read
nothing but what their threads access."""

SPMV = """extern "C" __global__ void k(const int *rowptr, const int *col, const double *val,
                                         const double *x, double *y, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        double sum = 0;
        for (int j = rowptr[row]; j < rowptr[row + 1]; ++j)
            sum += val[j] * x[col[j]];
        y[row] = sum;
    }
}
"""
SEGMENTS = """extern "C" __global__ void k(const float *x, const int *first, float *y, int m)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int j = 0; j < m; ++j)
        sum += x[first[i] + j];
    y[i] = sum;
}
"""
GATHER = """extern "C" __global__ void k(const int *index, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[index[i]];
}
"""
PAGES = """extern "C" __global__ void k(const int *table, const float *x, float *y)
{
    int head = blockIdx.x, sequence = blockIdx.y;
    float sum = 0;
    for (int k = 0; k < 32; ++k) {
        const float *page = x + (table[sequence * 32 + k] * 8 + head) * 512;
        sum += page[threadIdx.x] + page[256 + threadIdx.x];
    }
    y[(sequence * 8 + head) * blockDim.x + threadIdx.x] = sum;
}
"""
EXPAND = """extern "C" __global__ void k(const int *rowptr, const int *col, const int *level,
                                         int *next, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && level[row] == 3)
        for (int j = rowptr[row]; j < rowptr[row + 1]; ++j)
            if (level[col[j]] < 0)
                next[col[j]] = 4;
}
"""
COPY = """extern "C" __global__ void k(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (CONDITION)
        y[i] = x[i];
}
"""


def array_of(name: str, values: NDArray[Any]) -> Buffer:
    return Buffer(name, values.shape, str(values.dtype), "in", InMemoryArray(values))


def run(launch: Launch, properties: DeviceProperties = EXACT) -> Measurement:
    return EmulatedDevice("h200", properties).run(launch, seed=3)


def sectors(element: NDArray[Any], element_bytes: int, array: int) -> NDArray[np.int64]:
    """The sectors of elements; different arrays have different sectors."""
    return (array << 40) + np.asarray(element, np.int64) * element_bytes // SECTOR


def rows_of_lengths(lengths: NDArray[np.int64], seed: int) -> dict[str, NDArray[Any]]:
    """A sparse matrix with rows of the given lengths, at random columns."""
    generator, rows = np.random.default_rng(seed), len(lengths)
    pointer = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return {
        "rowptr": pointer,
        "col": generator.integers(0, rows, pointer[-1], dtype=np.int32),
        "val": generator.random(pointer[-1]),
        "x": generator.random(rows),
    }


def spmv(matrix: dict[str, NDArray[Any]], blocks: int) -> Launch:
    rows = len(matrix["x"])
    given = [array_of(name, values) for name, values in matrix.items()]
    y = Buffer("y", (rows,), "float64", "out")
    return launch_of(SPMV, *given, y, Scalar("rows", "int32", rows), blocks=blocks)


def read_by_blocks(matrix: dict[str, NDArray[Any]]) -> list[NDArray[np.int64]]:
    """The distinct sectors that each block with rows reads."""
    pointer, found = matrix["rowptr"], []
    for first in range(0, len(matrix["x"]), THREADS):
        last = min(first + THREADS, len(matrix["x"]))
        of_rows = np.arange(pointer[first], pointer[last])
        read = [
            sectors(np.arange(first, last + 1), 4, 0),
            sectors(of_rows, 4, 1),
            sectors(of_rows, 8, 2),
            sectors(matrix["col"][of_rows], 8, 3),
        ]
        found.append(np.unique(np.concatenate(read)))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("blocks", [20, 47, 300], ids=lambda blocks: f"{blocks} blocks")
def test_rows_of_irregular_length_are_read_once_for_each_block(seed: int, blocks: int) -> None:
    """20 blocks have rows, at most one per SM, and the L1 holds all that a block reads."""
    lengths = np.random.default_rng(seed).geometric(1 / 13, 5000)
    matrix = rows_of_lengths(lengths, seed)
    read = read_by_blocks(matrix)

    counters = run(spmv(matrix, blocks)).counters

    assert counters.l2_read_sectors == pytest.approx(sum(map(len, read)), rel=0.06)
    once = SECTOR * len(np.unique(np.concatenate(read)))
    assert counters.dram_read_bytes == pytest.approx(once, rel=0.06)
    assert counters.dram_read_bytes <= sum(values.nbytes for values in matrix.values()) + 4 * SECTOR


@pytest.mark.slow
def test_a_loop_that_ends_early_in_some_warps_reads_only_its_elements() -> None:
    """Most warps are done, and read nothing, while the longest rows of 800 elements go on."""
    lengths = np.random.default_rng(5).pareto(1.1, 5000).clip(max=160).astype(np.int64) * 5
    matrix = rows_of_lengths(lengths, 5)
    read = read_by_blocks(matrix)

    counters = run(spmv(matrix, 20)).counters

    assert counters.l2_read_sectors == pytest.approx(sum(map(len, read)), rel=0.15)
    assert counters.dram_read_bytes <= SECTOR * counters.l2_read_sectors


@pytest.mark.parametrize("blocks", [79, 300])
@pytest.mark.parametrize(("share", "near"), [(0.1, False), (0.1, True), (0.5, True), (0.01, False)])
def test_a_step_through_a_graph_reads_the_edges_of_its_frontier(
    share: float, near: bool, blocks: int
) -> None:
    """Breadth-first search: some of 20,000 vertices are expanded to near or random vertices."""
    rows, generator = 20_000, np.random.default_rng(0)
    lengths = generator.geometric(1 / 12, rows)
    pointer = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    row_of_edge, furthest = np.repeat(np.arange(rows), lengths), 500 if near else rows // 2
    away = generator.integers(-furthest, furthest, pointer[-1])
    col = ((row_of_edge + away) % rows).astype(np.int32)
    level = np.where(generator.random(rows) < share, 3, generator.integers(-1, 1, rows))
    launch = launch_of(
        EXPAND,
        array_of("rowptr", pointer),
        array_of("col", col),
        array_of("level", level.astype(np.int32)),
        Buffer("next", (rows,), "int32", "inout", SingleValue(0)),
        Scalar("rows", "int32", rows),
        blocks=blocks,
    )
    read = []
    for first in range(0, rows, THREADS):
        block = np.arange(first, min(first + THREADS, rows))
        front = block[level[block] == 3]
        edges = np.flatnonzero(np.isin(row_of_edge, front))
        looked_at = np.concatenate((block, col[edges]))
        touched = [sectors(looked_at, 4, 2), sectors(front, 4, 0), sectors(front + 1, 4, 0)]
        read.append(np.unique(np.concatenate([*touched, sectors(edges, 4, 1)])))

    counters = run(launch).counters

    assert counters.l2_read_sectors == pytest.approx(sum(map(len, read)), rel=0.12)
    once = SECTOR * len(np.unique(np.concatenate(read)))
    assert counters.dram_read_bytes == pytest.approx(once, rel=0.12)


def test_sectors_that_a_thread_reads_again_hit() -> None:
    """Each thread reads 100 words from a random one on: 13 or 14 sectors of eight words."""
    threads, words = 2048, 100
    first = np.random.default_rng(0).integers(0, (threads - 1) * words, threads, dtype=np.int32)
    x, y = np.ones(threads * words, np.float32), Buffer("y", (threads,), "float32", "out")
    launch = launch_of(
        SEGMENTS,
        array_of("x", x),
        array_of("first", first),
        y,
        Scalar("m", "int32", words),
        blocks=threads // THREADS,
    )
    of_blocks = (first[:, None] + np.arange(words)).reshape(-1, THREADS * words)
    read = [np.unique(sectors(elements, 4, 0)) for elements in of_blocks]
    of_first = threads * 4 // SECTOR

    counters = run(launch).counters

    assert counters.l2_read_sectors == pytest.approx(sum(map(len, read)) + of_first, rel=0.03)
    once = SECTOR * (len(np.unique(np.concatenate(read))) + of_first)
    assert counters.dram_read_bytes == pytest.approx(once, rel=0.08)


def gather(elements: int, blocks: int) -> tuple[Launch, NDArray[np.int64]]:
    """A launch with one random read per thread, and the elements that each block reads."""
    index = np.random.default_rng(1).integers(0, elements, blocks * THREADS, dtype=np.int32)
    launch = launch_of(
        GATHER,
        array_of("index", index),
        array_of("x", np.ones(elements, np.float32)),
        Buffer("y", (index.size,), "float32", "out"),
        blocks=blocks,
    )
    return launch, index.reshape(blocks, THREADS).astype(np.int64)


def test_blocks_on_one_multiprocessor_share_what_they_gather() -> None:
    """Eight blocks are resident on each of four SMs; all read one small array.

    No reads are merged on the way to the L2.
    """
    launch, index = gather(elements=32_768, blocks=32)
    four = replace(EXACT, multiprocessor_count=4, l2_merging_sms={})
    together = [index[first::4] for first in range(4)]
    read = sum(len(np.unique(sectors(elements, 4, 0))) for elements in together)

    measured = run(launch, four)

    assert measured.occupancy.blocks_per_sm == 8
    assert measured.counters.l2_read_sectors == read + index.size * 4 // SECTOR


def random_gathers() -> Iterator[tuple[Mapping[str, int], float, float]]:
    """Launches of benchmarks/random_gathers.cu with few reads, and what an H200 counted of them.

    The array is in DRAM before the launch. Each block has an SM of its own.

    Yields:
        A launch, the sectors that its L1s read, and the share that is left of them in the L2.
    """
    with (RESULTS / "h200-random-gathers.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            launch = {name: int(number) for name, number in row.items()}
            reads = launch["blocks"] * launch["threads"] * launch["trips"]
            if launch["whole"] and not launch["cached"] and reads < 50_000:
                l1 = launch["l1_sectors"]
                yield launch, l1, launch["l2_sectors"] / l1


@pytest.mark.parametrize(("measured", "l1_sectors", "left"), list(random_gathers()))
def test_few_random_reads_of_a_word_are_merged(
    measured: Mapping[str, int], l1_sectors: float, left: float
) -> None:
    """Which words the lanes read is the same on the GPU, so the L1s' reads are, too."""
    words, trips = measured["words"], measured["trips"]
    threads = measured["blocks"] * measured["threads"]
    text = (
        f"--grid {measured['blocks']} --block {measured['threads']} --shared {150 * 1024}"
        f" --arg u32[{words}]=randint:1:1000000 --arg out:u32[{threads}]"
        f" --arg u32={words} --arg u32={trips}"
    )
    launch = user_launch(f"{REPOSITORY / 'benchmarks' / 'random_gathers.cu'}:gathers", text.split())

    counters = run(launch, H200).counters

    assert counters.lrc_read_sectors == pytest.approx(l1_sectors, rel=0.01)
    assert counters.l2_read_sectors / counters.lrc_read_sectors == pytest.approx(left, abs=0.02)


@pytest.mark.parametrize("executed", [True, False], ids=["executed", "large"])
def test_pages_that_a_table_names_are_read_where_they_lie(
    executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 sequences of 32 pages of 640, each of 2 KiB for each of 8 heads; a block for each head."""
    if not executed:
        monkeypatch.setattr(executed_addresses, "REPLAYED_BY_DATA", 0)
        monkeypatch.setattr(executed_addresses, "REPLAYED_LANE_INSTRUCTIONS", 0)
    table = np.random.default_rng(4).integers(0, 640, 32 * 32, dtype=np.int32)
    x = np.ones(640 * 8 * 512, np.float32)
    y = Buffer("y", (256 * THREADS,), "float32", "out")

    launch = launch_of(PAGES, array_of("table", table), array_of("x", x), y)
    read = run(replace(launch, grid=(8, 32, 1)))

    once = len(np.unique(table)) * 8 * 512 * 4 + table.nbytes
    assert read.counters.dram_read_bytes == pytest.approx(once, rel=0.001 if executed else 0.15)


@pytest.mark.parametrize("first", [0, 5])
def test_blocks_that_share_a_sector_read_those_of_their_own_words(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word for each block, eight to a sector: the array is read once, a sector by each block."""
    monkeypatch.setattr(executed_addresses, "REPLAYED_LANE_INSTRUCTIONS", 0)
    source = """extern "C" __global__ void k(const float *x, float *y)
    {
        y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x + FIRST];
    }"""
    blocks = 1000
    x = Buffer("x", (blocks + first,), "float32", "in")
    y = Buffer("y", (blocks * THREADS,), "float32", "out")
    launch = launch_of(source.replace("FIRST", str(first)), x, y, blocks=blocks)
    words = sectors(np.arange(first, first + blocks), 4, 0)

    counters = run(launch).counters

    assert counters.dram_read_bytes == pytest.approx(SECTOR * len(np.unique(words)), abs=SECTOR)
    warps = THREADS // 32
    assert counters.global_load_sectors == warps * blocks
    assert counters.l1_read_sector_hits == pytest.approx((warps - 1) * blocks, rel=0.001)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_large_sparse_matrix_are_read_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many blocks to be executed again: rows of as many elements in the mean."""
    monkeypatch.setattr(executed_addresses, "REPLAYED_BY_DATA", 0)
    matrix = rows_of_lengths(np.random.default_rng(seed).integers(0, 26, 50_000), seed)
    once = SECTOR * len(np.unique(np.concatenate(read_by_blocks(matrix))))

    assert run(spmv(matrix, 196)).counters.dram_read_bytes == pytest.approx(once, rel=0.1)


def missed(read: NDArray[np.int64], lines: int) -> int:
    """The sectors that miss in an LRU cache of lines."""
    held: OrderedDict[int, set[int]] = OrderedDict()
    count = 0
    for sector in read.tolist():
        line = sector // 4
        filled = held.pop(line, set())
        count += sector not in filled
        held[line] = filled | {sector}
        if len(held) > lines:
            held.popitem(last=False)
    return count


@pytest.mark.parametrize("most", [executed_addresses.MOST_ACCESSES, 10_000], ids=["all", "sample"])
@pytest.mark.parametrize("l2_bytes", [2**18, 2**19, 2**20, 2**22])
def test_an_array_larger_than_the_l2_is_read_again(
    l2_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 blocks gather 1 MiB at random without an L1, while as much is streamed."""
    monkeypatch.setattr(executed_addresses, "MOST_ACCESSES", most)
    launch, index = gather(elements=2**18, blocks=256)
    small = replace(EXACT, l2_cache_bytes=l2_bytes, l1_cache_bytes_per_sm=0, multiprocessor_count=8)
    streamed = np.arange(index.size).reshape(index.shape)
    in_order = [sectors(streamed, 4, 0), sectors(index, 4, 1), sectors(streamed, 4, 2)]
    written = index.size * 4 // SECTOR
    read = missed(np.stack(in_order, axis=1).reshape(-1), l2_bytes // 128) - written

    assert run(launch, small).counters.dram_read_bytes == pytest.approx(SECTOR * read, rel=0.15)


def copied(blocks: int, n: int, condition: str = "i < n") -> Launch:
    source = COPY.replace("CONDITION", condition)
    x, y = Buffer("x", (n,), "float32", "in"), Buffer("y", (n,), "float32", "out")
    return launch_of(source, x, y, Scalar("n", "int32", n), blocks=blocks)


@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("blocks", [1000, 2100, 9000, 60_000])
def test_idle_blocks_change_only_the_launch_time(
    sampled: bool, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 blocks and one element are active: in the larger grids, the middle is idle."""
    n = 999 * THREADS + 1
    if sampled:
        monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)

    exact, measured = run(copied(1000, n)), run(copied(blocks, n))

    assert measured.counters.dram_read_bytes == pytest.approx(4 * n, rel=0.001)
    assert measured.time.bounds_s["dram"] == pytest.approx(exact.time.bounds_s["dram"])
    waits_s, bounds_s = exact.time.bounds_s["latency"], measured.time.bounds_s
    assert 0.95 * waits_s <= bounds_s["latency"] <= waits_s + 0.02 * bounds_s["launch"]


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("blockIdx.x >= 700", 3 / 10),
        ("blockIdx.x < 300", 3 / 10),
        ("blockIdx.x >= 200 && blockIdx.x < 240", 4 / 100),
        ("blockIdx.x % 7 == 3", 1 / 7),
        ("blockIdx.x == 0", 1 / 1000),
    ],
)
def test_active_blocks_are_found_anywhere_in_the_grid(condition: str, share: float) -> None:
    n = 1000 * THREADS

    counters = run(copied(1000, n, condition)).counters

    assert counters.dram_read_bytes == pytest.approx(4 * n * share, rel=0.01)
    assert counters.l2_read_sectors * SECTOR == pytest.approx(4 * n * share, rel=0.01)


ONE = """extern "C" __global__ void k(const float *x, float *y, int n)
{
    if (blockIdx.x == 7 && threadIdx.x == 0)
        for (int i = 0; i < n; i++)
            y[i] = x[i];
}
"""


def one(blocks: int, n: int) -> Launch:
    x, y = Buffer("x", (n,), "float32", "in"), Buffer("y", (n,), "float32", "out")
    return launch_of(ONE, x, y, Scalar("n", "int32", n), blocks=blocks)


def test_one_active_block_is_found_in_a_large_grid() -> None:
    """In 4,096 blocks it has no active neighbour; in 15 it is the middle one."""
    n = 512

    alone, measured = run(one(15, n)), run(one(4096, n))

    assert measured.counters.dram_read_bytes == alone.counters.dram_read_bytes == 4 * n
    waits_s = alone.time.bounds_s["latency"]
    assert measured.time.bounds_s["latency"] == pytest.approx(waits_s, rel=0.05)


def test_few_active_blocks_between_many_idle_ones_are_found() -> None:
    """Every 64th of 8,192 blocks is active, none in the middle of an even part of the grid."""
    n = 8192 * THREADS

    counters = run(copied(8192, n, "blockIdx.x % 64 == 5")).counters

    assert counters.dram_read_bytes == pytest.approx(4 * n / 64, rel=0.01)
    assert counters.l2_read_sectors * SECTOR == pytest.approx(4 * n / 64, rel=0.01)


@pytest.mark.parametrize("grid", [(40, 40, 1), (64, 64, 1), (20, 100, 1)])
def test_the_active_corner_of_a_grid_is_read_once(grid: Dim3) -> None:
    """Blocks are resident row by row, whatever part of a row is active."""
    source = """extern "C" __global__ void k(const float *x, float *y, int n, int m)
    {
        int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
        if (i < n && j < m)
            y[j * n + i] = x[j * n + i];
    }"""
    n, m = (8 * extent - 5 for extent in grid[:2])
    x, y = Buffer("x", (m, n), "float32", "in"), Buffer("y", (m, n), "float32", "out")
    sizes = Scalar("n", "int32", n), Scalar("m", "int32", m)
    launch = replace(launch_of(source, x, y, *sizes, blocks=1), grid=grid, block=(16, 16, 1))

    assert run(launch).counters.dram_read_bytes == pytest.approx(4 * n * m, rel=0.03)


ROWS = """extern "C" __global__ void k(const float *x, float *y, int n)
{
  size_t row = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * n;
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += LOAD;
  for (int i = 0; i < n; i++) y[row + i] = sum;
}
"""


@pytest.mark.parametrize("load", ["x[row + i]", "__ldcg(x + row + i)"])
def test_what_a_long_block_does_at_last_has_its_share(load: str) -> None:
    """Its loads are all recorded, through the L1 or not, and some of its stores."""
    blocks, threads, n = 32, 32, 50_000
    words = blocks * threads * n
    x, y = Buffer("x", (words,), "float32", "in"), Buffer("y", (words,), "float32", "out")
    source = ROWS.replace("LOAD", load)
    launch = launch_of(source, x, y, Scalar("n", "int32", n), blocks=blocks, threads=threads)

    counters = run(launch, H200).counters

    assert counters.dram_read_bytes == pytest.approx(4 * words, rel=0.02)
    left = H200.l2_cache_bytes  # of what was written last
    assert 4 * words - left < counters.dram_write_bytes < 4 * words


def test_a_warp_without_a_counterpart_has_the_stride_of_its_instruction() -> None:
    """One warp of the second block is active; other warps of the first have no counterpart."""
    launch = copied(2, THREADS + 32)
    execution = Execution.of(launch, compile_launch(launch, H200.compute_capability), 0)

    stream = representative_block.record_block(execution).stream

    of_block = THREADS * 4 // SECTOR
    assert stream.affine.all()
    assert stream.sectors == len(stream.sector) == 2 * of_block
    assert (stream.stride == (4 * THREADS, 0, 0)).all()
    x, y = execution.memory.allocations
    for array, store in ((x, False), (y, True)):
        first = array.address // SECTOR
        assert (stream.sector[stream.store == store] == first + np.arange(of_block)).all()
        assert (stream.low[stream.store == store] == first).all()
        assert (stream.high[stream.store == store] == first + array.size // SECTOR - 1).all()


@pytest.mark.slow
def test_a_block_takes_as_long_as_its_slowest_warp() -> None:
    """One row has 4,000 elements, at different places in the block; the others have one."""

    def clocks(long: int | None) -> float:
        lengths = np.ones(THREADS, np.int64)
        if long is not None:
            lengths[long] = 4000
        launch = spmv(rows_of_lengths(lengths, 1), 1)
        compiled = compile_launch(launch, EXACT.compute_capability)
        return emulate(launch, compiled, EXACT, seed=3).work.warp_clocks

    assert clocks(200) == pytest.approx(clocks(0), rel=0.05)
    assert clocks(200) > 100 * clocks(None)

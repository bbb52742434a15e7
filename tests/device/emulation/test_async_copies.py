"""Counters of `cp.async`, against those that Nsight Compute counted on an H200."""

import csv

import pytest
from paths import REPOSITORY

import memlab

COPY = """
template <int BYTES, int STRIDE> __global__ void copy(const char *x, int *out)
{
  __shared__ __align__(16) char tile[256 * STRIDE];
  unsigned to = __cvta_generic_to_shared(tile + threadIdx.x * STRIDE);
  const char *from = x + (blockIdx.x * 256 + threadIdx.x) * BYTES;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(from), "n"(BYTES));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = *(int *)(tile + threadIdx.x * STRIDE);
}
"""


@pytest.mark.parametrize(
    ("size", "stride", "wavefronts"),
    [(4, 4, 32), (4, 8, 64), (4, 32, 256), (8, 8, 64), (8, 16, 128), (8, 32, 256)],
)
def test_a_copy_is_one_store_with_the_conflicts_of_its_banks(
    size: int, stride: int, wavefronts: int
) -> None:
    arguments = [f"i8[{1024 * size}]", memlab.out(1024, "i32")]
    kernel = memlab.source(COPY, f"copy<{size}, {stride}>")
    counters = memlab.run(kernel, grid=4, block=256, args=arguments).measurement.counters
    assert counters.shared_store_instructions == 4 * 8
    assert counters.shared_store_wavefronts == wavefronts


ROWS = """
template <int ROW> __global__ void rows(const char *x, int *out, int depth)
{
  extern __shared__ __align__(128) char tile[];
  int row = threadIdx.x / 4, part = threadIdx.x % 4 * 16;
  unsigned to = __cvta_generic_to_shared(tile + row * ROW + part);
  int total = 0;
  for (int step = 0; step < depth; step++) {
    const char *from = x + ((blockIdx.x * 64 + row) * depth + step) * 64 + part;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    total += *(int *)(tile + row * ROW + part);
    __syncthreads();
  }
  out[blockIdx.x * 256 + threadIdx.x] = total;
}
"""


@pytest.mark.parametrize(
    ("row_bytes", "fetches"),
    # Rows of 80 bytes as those of `mma-half`: an H200 reads 24 sectors of 16.
    [(64, 1.0), (80, 1.5), (96, 1.0)],
)
def test_a_sector_is_fetched_for_each_piece_of_shared_memory(
    row_bytes: int, fetches: float
) -> None:
    depth = 300  # more copies than are looked at
    arguments = [f"i8[{4 * 64 * depth * 64}]", memlab.out(1024, "i32"), depth]
    kernel = memlab.source(ROWS, f"rows<{row_bytes}>")
    run = memlab.run(kernel, grid=4, block=256, args=arguments, shared=64 * row_bytes)
    counters = run.measurement.counters
    assert counters.global_load_sectors == 4 * 64 * depth * 2
    assert counters.lrc_read_sectors == fetches * counters.global_load_sectors
    assert counters.l2_read_sectors - counters.l2_read_sector_hits == counters.global_load_sectors
    assert counters.dram_read_bytes == pytest.approx(4 * 64 * depth * 64, rel=0.01)


ROWS_OF_ONE_WARP = """
__global__ void copies(const char *x, int *out, int lanes_per_row, int pitch, int offset)
{
  extern __shared__ __align__(1024) char shared[];
  int lane = threadIdx.x, row = lane / lanes_per_row, column = lane % lanes_per_row;
  unsigned to = __cvta_generic_to_shared(shared) + row * pitch + column * 16 + offset;
  const char *from = x + row * 4096 + column * 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  out[lane] = shared[lane];
}
"""


def measured_copies() -> list[dict[str, int]]:
    with (REPOSITORY / "docs" / "results" / "h200-copies.csv").open(newline="") as file:
        rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return [row for row in rows if row["bypasses_l1"]]


@pytest.mark.parametrize("row", measured_copies(), ids=lambda row: "-".join(map(str, row.values())))
def test_copies_that_bypass_the_l1_take_the_measured_wavefronts(row: dict[str, int]) -> None:
    """An H200 counted 64 copies, and one more access."""
    shape = [row[name] for name in ("lanes_per_row", "pitch", "offset")]
    arguments = ["i8[65536]", memlab.out(32, "i32"), *shape]
    kernel = memlab.source(ROWS_OF_ONE_WARP, "copies")
    run = memlab.run(kernel, grid=1, block=32, args=arguments, shared=20000)
    counters = run.measurement.counters
    assert 64 * counters.shared_async_store_wavefronts == row["wavefronts"] - 1
    ideal = counters.shared_async_store_wavefronts - counters.shared_excessive_wavefronts
    assert 64 * ideal == row["ideal_wavefronts"] - 1


SHARED_ROWS = """
__global__ void copied(const int4 *data, int4 *out, int readers, int chunks, int pitch, int first)
{
  extern __shared__ __align__(1024) int4 rows[];
  int thread = threadIdx.x, row = thread / chunks, of_row = 256 / chunks;
  const int4 *from = data + (blockIdx.x / readers * of_row + row) * 256 + thread % chunks;
  int4 *to = rows + first + row * pitch + thread % chunks;
  int4 sum = make_int4(0, 0, 0, 0);
  for (int round = 0; round < 256 / chunks; ++round) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from + round * chunks));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    sum.x += rows[first + (of_row - 1 - row) * pitch + thread % chunks].x;
    __syncthreads();
  }
  out[blockIdx.x * 256 + thread] = sum;
}
"""


def measured_rows() -> list[dict[str, int]]:
    with (REPOSITORY / "docs" / "results" / "h200-copied-rows.csv").open(newline="") as file:
        rows = [
            {name: int(value) for name, value in row.items() if value.isdigit()}
            for row in csv.DictReader(file)
        ]
    return [
        row
        for row in rows
        if row["asynchronous"] and row["readers"] == 4 and row["blocks"] == 64
        if row["chunks"] > 2 and row["first"] in (0, 1, 5, 6)
    ]


@pytest.mark.parametrize(
    "row",
    measured_rows(),
    ids=lambda row: "-".join(str(row[n]) for n in ("chunks", "pitch", "first")),
)
def test_reads_of_rows_that_blocks_share_are_merged_as_measured(row: dict[str, int]) -> None:
    names = ("readers", "chunks", "pitch", "first")
    rows = 64 // row["readers"] * (256 // row["chunks"])
    arguments = [f"i32[{rows * 1024}]", memlab.out(64 * 1024, "i32"), *(row[n] for n in names)]
    kernel = memlab.source(SHARED_ROWS, "copied")
    run = memlab.run(kernel, grid=64, block=256, args=arguments, shared=150 * 1024)
    counters = run.measurement.counters
    assert counters.lrc_read_sectors == pytest.approx(row["l1_sectors"], rel=0.001)
    # The two reads of a sector in two pieces are merged like any others: 10% high if all are such.
    assert counters.l2_read_sectors == pytest.approx(row["l2_sectors"], rel=0.11)

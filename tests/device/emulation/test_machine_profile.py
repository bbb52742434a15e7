"""What the time model is told of memory accesses, against figures computed by hand."""

from __future__ import annotations

import launches
import numpy as np
import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import emulate
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.kernels.launch import Buffer, InMemoryArray, Launch, Scalar

H200 = loader.load_datasheet("h200")
THREADS = 256
GATHER = """extern "C" __global__ void k(const int *index, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[index[i]];
}
"""
SHARED_ROW = """extern "C" __global__ void k(const float *x, float *y)
{
    y[blockIdx.x * 256 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x % 32];
}
"""
COPY = """extern "C" __global__ void k(const char *x, float *y, int bytes)
{
    __shared__ __align__(128) char tile[64 * ROW];
    int row = threadIdx.x / 4, part = threadIdx.x % 4 * 16;
    unsigned to = __cvta_generic_to_shared(tile + row * ROW + part);
    const char *from = x + (blockIdx.x * 64 + row) * 128 + part;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    y[blockIdx.x * 256 + threadIdx.x] = tile[row * ROW + part];
}
"""

TWICE = """extern "C" __global__ void k(const float *x, float *y)
{
    const float *from = x + (blockIdx.x * 32 + threadIdx.x) * 33;
    float first, again;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(first) : "l"(from));
    __syncthreads();
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(again) : "l"(from + (first == 2.0f)));
    y[blockIdx.x * 32 + threadIdx.x] = again;
}
"""

SUM_IN_PLACE = """extern "C" __global__ void k(float *x, float *y)
{
    float *of_block = x + blockDim.x * blockIdx.x;
    for (int offset = blockDim.x >> 1; offset > 0; offset >>= 1) {
        if (threadIdx.x < offset) of_block[threadIdx.x] += of_block[threadIdx.x + offset];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = of_block[0];
}
"""


def profile_of(launch: Launch) -> LaunchProfile:
    """What a launch on the emulated H200 tells the time model."""
    compiled = compile_launch(launch, H200.compute_capability)
    profile = emulate(launch, compiled, H200, 0).profile
    assert profile is not None
    return profile


def access_of(profile: LaunchProfile, name: str) -> Access:
    """The access of the only instruction of a name."""
    instructions = enumerate(profile.code.instructions)
    (number,) = (number for number, each in instructions if each.name == name)
    return profile.accesses[number]


def test_a_sector_that_waits_for_dram_has_the_bytes_that_dram_reads() -> None:
    """Each line is read by two blocks, on SMs of the two halves of the L2.

    The second one misses the half of its SM, but not the half in front of DRAM.
    """
    sms, words_per_line = 132, 32
    lines = np.random.default_rng(0).permutation(sms * THREADS).astype(np.int32)
    of_blocks = lines.reshape(sms, THREADS) * words_per_line
    index = np.concatenate((of_blocks, np.roll(of_blocks, 1, axis=0))).reshape(-1)
    launch = launches.launch_of(
        GATHER,
        Buffer("index", index.shape, "int32", "in", InMemoryArray(index)),
        Buffer("x", (lines.size * words_per_line,), "float32", "in"),
        Buffer("y", index.shape, "float32", "out"),
        blocks=2 * sms,
        threads=THREADS,
    )

    # A line that is read alone takes 64 bytes of DRAM for its sector, and the index 32 a sector.
    gathered, read = lines.size, index.nbytes // 32
    expected = (gathered * 64 + read * 32) / (gathered + read)
    assert profile_of(launch).dram_sector_bytes == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("row_bytes", "copied_bytes", "lines", "sectors", "wavefronts"),
    # Rows of 80 bytes as those of `mma-half`: an H200 reads 24 sectors of 16. A copy of no bytes
    # writes zeros.
    [(64, 16, 8, 16, 4), (80, 16, 8, 24, 8), (64, 0, 0, 0, 4)],
)
def test_a_copy_to_shared_memory_is_one_access(
    row_bytes: int, copied_bytes: int, lines: float, sectors: float, wavefronts: float
) -> None:
    """A warp copies 8 rows of 64 bytes, each in a line of its own."""
    blocks = 264
    launch = launches.launch_of(
        COPY,
        Buffer("x", (blocks * 64 * 128,), "int8", "in"),
        Buffer("y", (blocks * THREADS,), "float32", "out"),
        Scalar("bytes", "int32", copied_bytes),
        blocks=blocks,
        threads=THREADS,
        defines={"ROW": str(row_bytes)},
    )
    access = access_of(profile_of(launch), "LDGSTS")
    assert (access.lines, access.sectors) == (lines, sectors)
    assert access.passes == wavefronts
    assert access.missed == (1 if copied_bytes else 0)


def test_a_load_takes_a_clock_for_each_line_that_misses_and_fewer_for_hits() -> None:
    """Lanes read 32 lines and banks, in each of four banks of tags 8 or a few more."""
    blocks, size = 132, 132 * 32 * 33
    x, y = Buffer("x", (size,), "float32", "in"), Buffer("y", (blocks * 32,), "float32", "out")
    profile = profile_of(launches.launch_of(TWICE, x, y, blocks=blocks, threads=32))
    instructions = enumerate(profile.code.instructions)
    first, again = (profile.accesses[at] for at, each in instructions if each.name == "LDG")

    assert (first.missed, again.missed) == (1, 0)
    assert first.passes == 32
    assert 8 <= again.passes <= 12


def test_warps_wait_for_what_another_one_has_asked_for() -> None:
    """The 8 warps of a block read one line at once: one of them moves it."""
    blocks = 132
    launch = launches.launch_of(
        SHARED_ROW,
        Buffer("x", (blocks * 32,), "float32", "in"),
        Buffer("y", (blocks * THREADS,), "float32", "out"),
        blocks=blocks,
        threads=THREADS,
    )
    access = access_of(profile_of(launch), "LDG")
    assert access.missed == pytest.approx(1 / 8)
    assert access.dram == 1
    assert (access.joined, access.joined_dram) == (1, 1)


PRODUCT = """extern "C" __global__ void k(const float *x, const float *y, float *z, int n)
{
    int row = blockIdx.x / (n / 32) * 32 + threadIdx.x / 32;
    int column = blockIdx.x % (n / 32) * 32 + threadIdx.x % 32;
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) sum += __ldcv(x + row * n + i) * y[i * n + column];
    z[row * n + column] = sum;
}
"""


@pytest.mark.parametrize("width", [256, 1024])
def test_warps_wait_for_others_in_grids_that_are_not_replayed_whole(width: int) -> None:
    """The 32 warps of a block read a line of the second matrix at once, in each step."""
    matrices = [Buffer(name, (width**2,), "float32", "in") for name in ("x", "y")]
    result = Buffer("z", (width**2,), "float32", "out")
    launch = launches.launch_of(
        PRODUCT,
        *matrices,
        result,
        Scalar("n", "int32", width),
        blocks=width**2 // 1024,
        threads=1024,
    )
    profile = profile_of(launch)
    (joined,) = (a.joined for a in profile.accesses.values() if a.sectors == 4 and a.missed < 1)
    assert joined == pytest.approx(1)


ROWS = """extern "C" __global__
void k(const int *column, const float *value, const float *x, float *y)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = lane; k < 48; k += 32) {
        size_t place = (size_t)row * 48 + k;
        sum += value[place] * x[column[place]];
    }
    y[row * 32 + lane] = sum;
}
"""


def test_an_instruction_whose_predicate_is_off_asks_for_nothing() -> None:
    """Warps read 48 places each, in two trips of a loop whose machine code issues three."""
    rows, words = 1056, 1 << 20
    column = np.random.default_rng(3).integers(0, words // 8, (rows, 48)).astype(np.int32) * 8
    launch = launches.launch_of(
        ROWS,
        Buffer("column", column.shape, "int32", "in", InMemoryArray(column)),
        Buffer("value", column.shape, "float32", "in"),
        Buffer("x", (words,), "float32", "in"),
        Buffer("y", (rows * 32,), "float32", "out"),
        blocks=rows // 8,
        threads=THREADS,
    )
    profile = profile_of(launch)
    (number,) = set(profile.active)
    flow = profile.flows[number]
    sectors = issues = 0.0
    for (start, stop), count in zip(flow.blocks, flow.executions, strict=True):
        for place in range(start, stop):
            if profile.code.instructions[place].name == "LDG":
                issues += count
                sectors += count * profile.accesses[place].sectors
    assert issues == pytest.approx(9)  # for 6 requests
    assert sectors == pytest.approx(48 + 2 * 6, rel=0.01)


def test_a_request_of_no_lane_takes_a_wavefront() -> None:
    """Two of eight warps store to shared memory, with two lanes to each bank; all take part."""
    source = """extern "C" __global__ void k(float *y)
    {
        extern __shared__ float words[];
        int t = threadIdx.x;
        if (t < 64) words[2 * t] = t;
        __syncthreads();
        y[blockIdx.x * 256 + t] = words[t];
    }
    """
    launch = launches.launch_of(
        source,
        Buffer("y", (4 * THREADS,), "float32", "out"),
        blocks=4,
        threads=THREADS,
        shared=4 * THREADS,
    )

    assert access_of(profile_of(launch), "STS").passes == pytest.approx((2 * 2 + 6 * 1) / 8)


@pytest.mark.parametrize(
    "blocks",
    [20_000, pytest.param(100_000, marks=pytest.mark.slow)],
    ids=["replayed", "by strides"],
)
def test_data_that_a_block_reads_again_is_missed_in_its_first_round_only(blocks: int) -> None:
    """Of 8 requests of each load, the 2 of the first round miss 4 sectors each: those of a block.

    The other 6 read 4 sectors, 2 and then 1, 1, 1, 1.
    """
    x = Buffer("x", (blocks * 128,), "float32", "inout")
    y = Buffer("y", (blocks,), "float32", "out")
    profile = profile_of(launches.launch_of(SUM_IN_PLACE, x, y, blocks=blocks, threads=128))
    instructions = enumerate(profile.code.instructions)
    of_loop = [profile.accesses[at] for at, each in instructions if each.name == "LDG"][:2]

    for access in of_loop:
        assert access.sectors == pytest.approx(18 / 8)
        assert access.missed == pytest.approx(8 / 18, rel=0.02)
        assert access.progress_in_block
        parts = np.array(access.missed_by_progress)
        assert parts[: len(parts) // 4] == pytest.approx(4, rel=0.02)
        assert parts[len(parts) // 4 :] == pytest.approx(0, abs=0.05)

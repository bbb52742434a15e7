"""How often lanes try to add to halves in global memory, against what an H200 counted."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launches import launch_of, user_launch
from numpy.typing import NDArray
from paths import REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.device import Emulation, emulate, resident_blocks
from memlab.device.emulation.retries import cas_loops
from memlab.device.emulation.retries.cas_loops import ObservedAdditions
from memlab.device.emulator.models.half_sums import HALF_TYPES, changes_of_sum
from memlab.device.measurement import Time
from memlab.kernels.launch import Buffer, InMemoryArray, Launch, Scalar, SingleValue

H200 = load_datasheet("h200")
LOOPS = f"{REPOSITORY / 'benchmarks' / 'cas_loops.cu'}:halves"
with (REPOSITORY / "docs" / "results" / "h200-cas-loops.csv").open(newline="") as file:
    COUNTED = {
        (row["kernel"], int(row["blocks"]), int(row["words"]), int(row["every"])): row
        for row in csv.DictReader(file)
        if row["threads"] == "256"
    }


def emulated(launch: Launch) -> tuple[Emulation, Time]:
    """A launch on the emulated H200, and its modelled time."""
    compiled = compile_launch(launch, H200.compute_capability)
    found = emulate(launch, compiled, H200, 1)
    return found, found.time(resident_blocks(launch, compiled, H200), H200)


def swaps(found: Emulation) -> tuple[int, int]:
    """The compare-and-swaps that warps and threads execute."""
    listed = [step for step in found.listing if "CAS" in step.text]
    return sum(step.warps for step in listed), sum(step.threads for step in listed)


@pytest.mark.parametrize(
    "case", [(8, 1, 4), (132, 16, 16), (1056, 1024, 256), (132, 65536, 1), (1056, 65536, 4)]
)
def test_failing_tries_are_those_of_the_hardware(case: tuple[int, int, int]) -> None:
    blocks, words, every = case
    row, lanes = COUNTED["halves", *case], blocks * 256
    text = f"--grid {blocks} --block 256 --arg inout:u32[{words * 32}] --arg u32={words}"
    found, time = emulated(user_launch(LOOPS, [*text.split(), "--arg", f"u32={every}"]))
    warp_tries, lane_tries = swaps(found)

    failing = float(row["lane_tries"]) / lanes - 1
    assert lane_tries / lanes - 1 == pytest.approx(failing, rel=0.45)
    failing_of_warps = float(row["warp_tries"]) * 32 / lanes - 1
    # Two measurements of the first launch differ by 17%.
    assert warp_tries * 32 / lanes - 1 == pytest.approx(failing_of_warps, rel=0.4)
    assert time.median_s * 1e9 == pytest.approx(float(row["duration_ns"]), rel=0.3)
    assert found.counters.global_atomic_requests == warp_tries
    assert found.counters.global_reduction_requests == 0
    lanes_per_sector = {1: 32, 65536: 1}.get(words)
    if lanes_per_sector:
        sectors = lane_tries / lanes_per_sector
        assert found.counters.global_atomic_sectors == pytest.approx(sectors, rel=0.01)


SUM = """#include <cuda_fp16.h>
extern "C" __global__ void k(const half *x, half *sum, int rounds)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    half own = x[thread];
    float work = 1.0f;
    for (int round = 0; round < rounds; ++round)
        work = work * 0.5f + 1.0f;
    if (work < 3.0f)
        atomicAdd(sum + (OF_BLOCK ? 2 * blockIdx.x : thread % SUMS), own);
}
"""


def tries_of_sum(
    addend: float | NDArray[np.float16],
    blocks: int,
    sums: int = 1,
    rounds: int = 0,
    *,
    of_block: bool = False,
) -> float:
    """The tries of each lane that adds a number to one of some neighbouring sums.

    Args:
        addend: What all lanes add, or each of them.
        blocks: How many blocks of 256 lanes there are.
        sums: How many sums there are.
        rounds: How many dependent instructions each lane executes before.
        of_block: Whether the lanes of a block add to every other one of them, a block to one.
    """
    lanes = blocks * 256
    fill = SingleValue(addend) if isinstance(addend, float) else InMemoryArray(addend)
    x = Buffer("x", (lanes,), "float16", "in", fill)
    total = Buffer("sum", (sums,), "float16", "inout", SingleValue(0))
    more = {"blocks": blocks, "threads": 256, "defines": {"SUMS": sums, "OF_BLOCK": int(of_block)}}
    found, _ = emulated(launch_of(SUM, x, total, Scalar("rounds", "int32", rounds), **more))
    return swaps(found)[1] / lanes


def test_additions_that_no_longer_change_a_sum_do_not_fail() -> None:
    """Ones change a half until it is 2048; all additions of 0 succeed at once."""
    few, many = tries_of_sum(1.0, 1056) - 1, tries_of_sum(1.0, 4 * 1056) - 1

    assert many == pytest.approx(few / 4, rel=0.1)
    assert few * 1056 * 256 / 2048 == pytest.approx(0.39 * 1056 * 256, rel=0.1)  # tries per change
    assert tries_of_sum(0.0, 1056) == 1


def test_times_of_additions_that_fail_have_a_wide_interval() -> None:
    """From 0.625 to 1.65 times what is modelled lay 80% of those that were measured."""
    x = Buffer("x", (64 * 256,), "float16", "in", SingleValue(1.0))
    for addend, is_wide in ((1.0, True), (0.0, False)):
        x = replace(x, fill=SingleValue(addend))
        total = Buffer("sum", (1,), "float16", "inout", SingleValue(0))
        defines = {"SUMS": 1, "OF_BLOCK": 0}
        launch = launch_of(
            SUM, x, total, Scalar("rounds", "int32", 0), blocks=64, threads=256, defines=defines
        )
        _, time = emulated(launch)
        assert time.interval_low_s is not None
        assert time.interval_high_s is not None
        assert (time.interval_low_s < 0.7 * time.median_s) == is_wide
        assert (time.interval_high_s > 1.5 * time.median_s) == is_wide


def test_each_try_at_the_only_word_is_a_pass_of_its_slice_without_an_addition() -> None:
    x = Buffer("x", (1056 * 256,), "float16", "in", SingleValue(1.0))
    total = Buffer("sum", (1,), "float16", "inout", SingleValue(0))
    more: dict[str, Any] = {"blocks": 1056, "threads": 256}
    more["defines"] = {"SUMS": 1, "OF_BLOCK": 0}
    found, _ = emulated(launch_of(SUM, x, total, Scalar("rounds", "int32", 0), **more))

    assert found.counters.global_atomic_slice_passes == pytest.approx(swaps(found)[1], rel=0.01)
    assert found.counters.global_atomic_float_passes == 0


def test_two_halves_of_a_word_make_each_other_fail() -> None:
    """Each of the two sums changes 2048 times, and all lanes wait for their word."""
    one, two = tries_of_sum(1.0, 1056) - 1, tries_of_sum(1.0, 1056, sums=2) - 1

    assert two == pytest.approx(2 * one, rel=0.1)


@pytest.mark.parametrize("blocks", [1, 8, 64])
def test_lanes_wait_for_those_of_their_block_where_it_has_a_word_of_its_own(blocks: int) -> None:
    tries = tries_of_sum(1.0, blocks, sums=2 * blocks, of_block=True)

    assert tries == pytest.approx(1 + 0.39 * 256, rel=0.05)


ADDERS = """#include <cuda_fp16.h>
extern "C" __global__ void k(half *sums)
{
    if (WHO)
        atomicAdd(sums, (half)1);
    if (TWICE)
        atomicAdd(sums + 1, (half)1);
}
"""


def tries_of_adders(who: str, blocks: int, twice: str = "false") -> list[float]:
    """The tries of lanes that add to one of two halves of a word, or also to the other one."""
    sums = Buffer("sums", (2,), "float16", "inout", SingleValue(0))
    defines = {"WHO": who, "TWICE": twice}
    launch = launch_of(ADDERS, sums, blocks=blocks, threads=256, defines=defines)
    found, _ = emulated(launch)
    listed = [step for step in found.listing if "CAS" in step.text]
    lines = {step.ptx_line: 0 for step in listed}
    for step in listed:
        lines[step.ptx_line] += step.threads
    return list(lines.values())


ONE_HALF = """#include <cuda_fp16.h>
extern "C" __global__ void k(half *sums)
{
    if (threadIdx.x == 0)
        atomicAdd(sums + blockIdx.x * 40503u % WORDS * 64, (half)(blockIdx.x % 2 ? -1 : 1));
}
"""


@pytest.mark.parametrize("case", [(132, 1), (1056, 1), (4224, 16)])
def test_lone_lanes_of_blocks_fail_as_often_as_measured(case: tuple[int, int]) -> None:
    """An addition of each block, which all change their word."""
    blocks, words = case
    sums = Buffer("sums", (words * 64,), "float16", "inout", SingleValue(0))
    more: dict[str, Any] = {"blocks": blocks, "threads": 256, "defines": {"WORDS": words}}
    found, _ = emulated(launch_of(ONE_HALF, sums, **more))

    failing = float(COUNTED["firsts", blocks, words, 1]["lane_tries"]) / blocks - 1
    assert swaps(found)[1] / blocks - 1 == pytest.approx(failing, rel=0.3)


def test_only_lanes_that_add_wait() -> None:
    """A lane of each block, or the lanes of one block, of 1056: all change the half."""
    (of_blocks,) = tries_of_adders("threadIdx.x == 0", 1056)
    (of_lanes,) = tries_of_adders("blockIdx.x == 0", 264)

    assert of_blocks / 1056 == pytest.approx(1 + 0.39 * 1056, rel=0.05)
    assert of_lanes / 256 == pytest.approx(1 + 0.39 * 256, rel=0.05)


def test_two_additions_to_one_word_make_each_other_fail() -> None:
    """A word of two halves, to which two lines of the source add."""
    (alone,) = tries_of_adders("true", 4)
    both = tries_of_adders("true", 4, "true")

    assert len(both) == 2
    assert sum(both) / 2 == pytest.approx(alone, rel=0.15)  # as many wait, and change it


def test_rare_additions_are_no_error() -> None:
    """A sample of the blocks, of which no lane adds."""
    (rare,) = tries_of_adders("blockIdx.x * 256 + threadIdx.x == 9999999", 40_000)

    assert rare <= 1


def test_lanes_that_compute_do_not_wait_for_the_word() -> None:
    """Those of later waves: the blocks that start at once add at the same time."""
    addends = np.random.default_rng(4).choice(np.array([-1, 1], np.float16), 16 * 1056 * 256)
    adding, computing = (
        tries_of_sum(addends, 16 * 1056, sums=1 << 14, rounds=rounds) for rounds in (0, 20_000)
    )

    assert adding == pytest.approx(1 + 0.39 * 1056 * 256 / (1 << 13), rel=0.15)
    assert 1 + (adding - 1) / 100 < computing < 1 + (adding - 1) / 10


def test_what_is_not_followed_is_as_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All additions of 1 and -1 change a sum, however many of them are followed."""
    addends = np.random.default_rng(4).choice(np.array([-1, 1], np.float16), 1056 * 256)
    all_followed = tries_of_sum(addends, 1056, sums=64)
    monkeypatch.setattr(cas_loops, "_MOST_FOLLOWED", 10_000)

    assert tries_of_sum(addends, 1056, sums=64) == pytest.approx(all_followed)


def test_additions_in_shared_memory_are_no_loops_in_global_memory() -> None:
    """Both have one instruction in the PTX, which does not tell the memory."""
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void k(half *sums)
    {
        __shared__ half sum;
        if (threadIdx.x == 0)
            sum = 0;
        __syncthreads();
        atomicAdd(&sum, (half)1);
        __syncthreads();
        sums[blockIdx.x] = sum;
    }"""
    sums = Buffer("sums", (64,), "float16", "out")
    found, _ = emulated(launch_of(source, sums, blocks=64, threads=256))

    assert swaps(found)[1] in (0, 64 * 256)


def test_a_loop_with_the_line_of_another_instruction_is_found() -> None:
    """ptxas gives this loop the line of the conversion before the addition."""
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const float *x, half *sum)
    {
        __shared__ float part[8];
        float value = x[blockIdx.x * blockDim.x + threadIdx.x];
        for (int lanes = 16; lanes; lanes /= 2)
            value += __shfl_xor_sync(~0u, value, lanes);
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = value;
        __syncthreads();
        if (threadIdx.x == 0) {
            float all = 0;
            for (int warp = 0; warp < 8; ++warp)
                all += part[warp];
            atomicAdd(sum, __float2half(all / 256));
        }
    }"""
    x = Buffer("x", (264 * 256,), "float32", "in", SingleValue(1.0))
    total = Buffer("sum", (1,), "float16", "inout", SingleValue(0))
    found, _ = emulated(launch_of(source, x, total, blocks=264, threads=256))

    assert swaps(found)[1] / 264 == pytest.approx(1 + 0.39 * 264, rel=0.05)
    assert {s.source_line for s in found.listing if "CAS" in s.text} == {15}


def test_other_atomics_are_executed_once() -> None:
    """`atomicCAS` of the source has the tries that were executed."""
    source = """extern "C" __global__ void k(unsigned *word, int n)
    {
        atomicCAS(word + n, 0u, 1u);
    }"""
    word = Buffer("word", (1,), "uint32", "inout", SingleValue(0))
    found, _ = emulated(launch_of(source, word, Scalar("n", "int32", 0), blocks=4, threads=64))

    assert swaps(found) == (8, 256)


def rounded_to_bfloat16(number: float) -> float:
    """To nearest, ties to even."""
    bits = int(np.float32(number).view(np.uint32))
    bits += 0x7FFF + (bits >> 16 & 1)
    return float(np.uint32(bits >> 16 << 16).view(np.float32))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("first", "addends"),
    [
        (0.0, np.array([0.01])),
        (0.0, np.array([1.0])),
        (-2047.0, np.array([-1.0, 1.0, -1.0])),
        (0.0, np.random.default_rng(1).normal(size=999)),
        (0.5, np.random.default_rng(2).random(999)),
        (0.0, np.random.default_rng(3).normal(size=999) * 1e-6),
    ],
)
def test_sums_change_as_often_as_rounded_ones(
    kind: str, first: float, addends: NDArray[np.float64]
) -> None:
    additions = 20_000
    if kind == "f16":
        values = addends.astype(np.float16)
        start = np.array([first], np.float16)
        sums = np.add.accumulate(np.concatenate([start, np.resize(values, additions)]))
        numbers = values.astype(np.float64)
    else:
        numbers = np.array([rounded_to_bfloat16(number) for number in addends])
        totals = [first]
        for number in np.resize(numbers, additions):
            totals.append(rounded_to_bfloat16(totals[-1] + number))
        sums = np.array(totals)
    changes = int((sums[1:] != sums[:-1]).sum())

    assert changes_of_sum(first, numbers, additions, HALF_TYPES[kind], additions) == changes


def test_a_sum_that_is_infinite_no_longer_changes() -> None:
    changes = changes_of_sum(64992.0, np.array([64.0]), 100, HALF_TYPES["f16"], 100)

    assert changes == 9  # 65504 is the largest half, and infinity does not change


def test_a_sum_stays_infinite_whatever_follows() -> None:
    addends = np.array([64.0, 64.0, -32.0])

    assert changes_of_sum(65440.0, addends, 3000, HALF_TYPES["f16"], 3000) == 2


def test_the_last_additions_that_are_followed_stand_for_the_others() -> None:
    ones = np.ones(1)

    assert changes_of_sum(0.0, ones, 1e6, HALF_TYPES["f16"], 2000) == pytest.approx(1e6)
    assert changes_of_sum(0.0, ones, 1e6, HALF_TYPES["f16"], 4000) == 2048


def observed(word: NDArray[np.int64], changing: NDArray[np.float64]) -> ObservedAdditions:
    """Additions of whole warps in blocks of 256 threads."""
    lane = np.arange(len(word))
    return ObservedAdditions(np.full(len(word), 7), lane // 32, lane // 256, word, changing, 1e6)


@pytest.mark.parametrize(("words", "seed"), [(1, 5), (16, 5), (4096, 5), (4096, 6)])
def test_words_that_are_used_alike_have_equal_tries(words: int, seed: int) -> None:
    """However few of the additions to each word were observed."""
    drawn = np.random.default_rng(seed).integers(0, words, 8192)
    used, word = np.unique(drawn, return_inverse=True)

    tries = observed(word, np.full(len(used), 0.01)).attempts(1000.0 * words, blocks=1056)[7]

    failing = 0.39 * 0.01 * 1000
    assert tries.lane == pytest.approx(1 + failing, rel=0.1)
    drawn = np.random.default_rng(6).poisson(failing, (10_000, min(words, 32)))
    different = [len(set(of)) for of in drawn.tolist()]
    if words != 16:  # of which a warp uses some by chance
        assert tries.warp == pytest.approx(1 + drawn.max(axis=1).mean(), rel=0.1)
        assert tries.groups == pytest.approx(np.mean(different), rel=0.1)


def test_words_that_are_used_somewhat_more_fail_somewhat_more() -> None:
    """Half of the words are used three times as often; some two uses of each are observed."""
    generator = np.random.default_rng(8)
    weights = np.repeat([1.0, 3.0], 2048) / 8192
    used, word = np.unique(generator.choice(4096, 8192, p=weights), return_inverse=True)

    tries = observed(word, np.full(len(used), 0.01)).attempts(4_096_000.0, blocks=1056)[7]

    words = generator.choice(4096, (10_000, 32), p=weights)
    failed = generator.poisson(0.39 * 0.01 * 4_096_000 * weights[words])
    assert tries.warp == pytest.approx(1 + failed.max(axis=1).mean(), rel=0.1)


def test_a_word_that_is_used_more_fails_more() -> None:
    """Half of the additions are to one word, which they change, the others to their own words."""
    lane = np.arange(8192)
    word = np.where(lane % 2, 0, lane // 2 + 1)

    tries = observed(word, np.where(np.arange(4097) == 0, 0.01, 0.0)).attempts(3200.0, 12)[7]

    hot = 0.39 * 0.01 * 3200 / 2
    assert tries.lane == pytest.approx(1 + hot / 2, rel=0.1)

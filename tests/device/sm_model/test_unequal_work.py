"""The schedule of blocks that do unequal work, by hand-computed times, and times that follow it."""

import numpy as np
import pytest

import memlab
from memlab.device.sm_model.unequal_work import Place, makespan, mean_makespan

SOURCE = """
extern "C" __global__ void loop(const int* trips, float* out) {
  float sum = threadIdx.x;
  for (int i = 0; i < trips[blockIdx.x]; ++i) sum = sum * 0.5f + 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
MANY = 99.0


@pytest.mark.parametrize(
    ("work", "clocks"),
    [
        ([3, 1, 1, 1], 3),  # the second SM executes three blocks meanwhile
        ([1, 1, 1, 3], 4),  # the longest begins last
        ([2, 2, 2], 4),
    ],
)
def test_blocks_start_in_order_where_a_place_is_free_first(work, clocks):
    blocks = np.array(work, float)[:, None]
    assert makespan(blocks, Place(2, 1, MANY, MANY)) == pytest.approx(clocks)


def test_a_block_holds_its_place_until_its_last_warp_ends():
    blocks = np.array([[1, 5], [2, 2]], float)
    assert makespan(blocks, Place(1, 1, MANY, MANY)) == pytest.approx(7)


def test_equal_blocks_are_dealt_out_evenly():
    # Two SMs of three places each: the last four of ten blocks do not all start on one of them.
    blocks = np.full((10, 1), 100.0)
    assert makespan(blocks, Place(2, 3, MANY, 1, interval=1)) == pytest.approx(500, rel=0.02)


def test_blocks_start_one_after_the_other():
    place = Place(5, 1, MANY, MANY, interval=10)
    assert makespan(np.ones((5, 1)), place) == pytest.approx(41)
    assert mean_makespan(np.ones((5, 1)), place) == pytest.approx(41)
    # A block that waits 6 clocks has the work of so many, at half the speed, besides.
    assert makespan(np.full((2, 1), 100.0), Place(1, 2, MANY, 1, interval=6)) == pytest.approx(203)


def test_warps_of_an_sm_share_what_it_can_do():
    # Both at half the speed until one ends at 2; the other has 2 left.
    assert makespan(np.array([[1.0], [3.0]]), Place(1, 2, MANY, 1)) == pytest.approx(4)


def test_warps_of_a_sub_core_share_what_it_can_do():
    # The first and the fifth warp are on one sub-core: at half the speed until one ends at 4.
    work = np.array([[2, 3, 1, 1, 4]], float)
    assert makespan(work, Place(1, 1, 1, MANY)) == pytest.approx(6)
    assert makespan(work, Place(1, 1, 2, MANY)) == pytest.approx(4)


def test_the_schedule_is_that_of_a_plain_simulation():
    work = np.random.default_rng(3).uniform(1, 20, (50, 1))
    free = np.zeros(7)
    for clocks in work[:, 0]:
        first = free.argmin()
        free[first] += clocks
    assert makespan(work, Place(7, 1, MANY, MANY)) == pytest.approx(free.max())


def _time_s(tmp_path, trips):
    (tmp_path / "loop.cu").write_text(SOURCE)
    np.save(tmp_path / "trips.npy", np.array(trips, np.int32))
    run = memlab.run(
        f"{tmp_path / 'loop.cu'}:loop",
        grid=len(trips),
        block=32,
        args=[f"i32[]=@{tmp_path / 'trips.npy'}", f"out:f32[{32 * len(trips)}]"],
        device="h200",
    )
    return run.measurement.time.median_s


def test_the_time_is_that_of_the_longest_block(tmp_path):
    trips = [200] * 132
    few = _time_s(tmp_path, trips)
    trips[5] = 20_000
    # A trip is a load that hits and dependent arithmetic: the one block takes 100 times as many.
    alone = _time_s(tmp_path, [20_000])
    assert _time_s(tmp_path, trips) == pytest.approx(alone, rel=0.1)
    assert alone > 10 * few


def test_blocks_that_begin_early_hide_how_long_they_are(tmp_path):
    trips = np.full(132 * 64, 50)
    trips[:8] = 4000
    early = _time_s(tmp_path, trips)
    late = _time_s(tmp_path, trips[::-1])
    assert late > early


LISTS = """
extern "C" __global__ void sums(const int* first, const int* words, const int* step,
                                const float* list, float* out) {
  int block = blockIdx.x, at = first[block];
  float sum = 0.0f;
  for (int i = 0; i < words[block]; i++, at += step[block]) sum = sum * 0.5f + list[at];
  out[block] = sum;
}
"""


def _lists_s(words, steps):
    """The time in which a thread of each block reads so many words, so far apart."""
    blocks, ends = len(words), np.cumsum(np.array(words) * steps)
    run = memlab.run(
        memlab.source(LISTS, "sums"),
        grid=blocks,
        block=1,
        args=[
            np.append(0, ends[:-1]).astype(np.int32),
            np.array(words, np.int32),
            np.array(steps, np.int32),
            np.random.default_rng(1).uniform(-1, 1, int(ends[-1])).astype(np.float32),
            memlab.out(blocks, np.float32),
        ],
        device="h200",
    )
    return run.measurement.time.median_s


def test_the_longest_warp_hits_the_lines_that_it_reads_to_their_end():
    """One block reads a list word by word, the others a word of each line: half of all misses."""
    others = 1000
    alone = _lists_s([20_000], [1])

    found = _lists_s([*[20] * others, 20_000], [*[32] * others, 1])

    assert found == pytest.approx(alone, rel=0.2)


SLOW_AND_FAST = """
extern "C" __global__ void parts(const int* next, const int* trips, int walked, float* out) {
  float sum = 0.5f;
  int at = blockIdx.x * 32;
  if (threadIdx.x < 32)
    for (int i = 0; i < walked; i++) at = next[at];
  else
    for (int i = 0; i < trips[blockIdx.x]; i++) sum = sum * 0.75f + 0.25f;
  out[blockIdx.x * 64 + threadIdx.x] = sum + at;
}
"""


def test_a_warp_of_few_instructions_may_take_longest():
    """Each block has a warp that waits for its loads; another one's arithmetic is not its time."""
    blocks, items = 132, 1 << 16

    def time_s(trips):
        run = memlab.run(
            memlab.source(SLOW_AND_FAST, "parts"),
            grid=blocks,
            block=64,
            args=[
                np.roll(np.arange(items, dtype=np.int32), -4096),
                np.array(trips, np.int32),
                300,
                memlab.out(64 * blocks, np.float32),
            ],
            device="h200",
        )
        return run.measurement.time.median_s

    equal = time_s([100] * blocks)
    assert time_s([*[100] * (blocks - 1), 1000]) == pytest.approx(equal, rel=0.15)

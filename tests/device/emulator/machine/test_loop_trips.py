"""How often loops are entered and repeated, against trips counted in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx import LOOP_BY_WORD, READ_WORD, WORD_THREADS, Launched, run_with_words

from memlab.device.emulator.codegen.layout import UNROLLINGS

BLOCKS = 3
NESTED = (
    READ_WORD
    + """mov.u32 %r7, 0;
OUTER: mov.u32 %r5, 0; add.s32 %r8, %r4, %r7;
INNER: add.s32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r8; @%p1 bra INNER;
add.s32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 3; @%p2 bra OUTER;
ret;"""
)
SKIPPED = (
    READ_WORD
    + """mov.u32 %r5, 0; setp.eq.u32 %p2, %r4, 0; @%p2 bra DONE;
HEAD: add.s32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r4; @%p1 bra HEAD;
DONE: ret;"""
)
BROKEN = (
    READ_WORD
    + """mov.u32 %r5, 0;
HEAD: add.s32 %r5, %r5, 1; setp.ge.u32 %p1, %r5, %r4; @%p1 bra DONE;
setp.lt.u32 %p2, %r5, 4; @%p2 bra HEAD;
DONE: ret;"""
)


def trips_of(most: int, least: int = 1, seed: int = 0) -> NDArray[np.uint32]:
    drawn = np.random.default_rng(seed).integers(least, most + 1, (BLOCKS, WORD_THREADS))
    return drawn.astype("u4")


def by_warp(trips: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """The trips of each warp's lanes."""
    return [block[start : start + 32] for block in trips for start in range(0, WORD_THREADS, 32)]


def expected_rounds(trips: NDArray[np.uint32]) -> list[list[list[int]]]:
    """Of lanes and warps, by factor: how often an unrolled loop is entered, and how often run."""
    longest = [int(lanes.max()) for lanes in by_warp(trips)]
    return [
        [
            [sum(t >= factor for t in made) for factor in UNROLLINGS],
            [sum(t // factor for t in made) for factor in UNROLLINGS],
        ]
        for made in (trips.ravel().tolist(), longest)
    ]


def expected_rests(trips: NDArray[np.uint32]) -> list[list[int]]:
    """Rounds of each smaller factor that the warps make after those of a factor."""
    found = [
        [
            sum(int((lanes % factor // smaller).max()) for lanes in by_warp(trips))
            if smaller < factor
            else 0
            for smaller in UNROLLINGS
        ]
        for factor in UNROLLINGS
    ]
    found[0][0] = sum(bool(lanes.max()) for lanes in by_warp(trips))
    return found


def rounds(ran: Launched, loop: int = 0) -> list[list[list[int]]]:
    shape = 2, len(ran.program.loop_heads), 2, len(UNROLLINGS)
    found: list[list[list[int]]] = np.reshape(ran.tally.rounds, shape)[:, loop].tolist()
    return found


def rests(ran: Launched, loop: int = 0) -> list[list[int]]:
    shape = len(ran.program.loop_heads), len(UNROLLINGS), len(UNROLLINGS)
    found: list[list[int]] = np.reshape(ran.tally.rests, shape)[loop].tolist()
    return found


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("most", [3, 40, 150])
def test_unequal_trips(most: int, chunk: int | None) -> None:
    trips = trips_of(most)

    ran = run_with_words(LOOP_BY_WORD, trips, chunk)

    assert rounds(ran) == expected_rounds(trips)
    assert rests(ran) == expected_rests(trips)


@pytest.mark.parametrize("trips", [1, 8, 21, 32, 33, 100])
def test_equal_trips(trips: int) -> None:
    same = np.full((BLOCKS, WORD_THREADS), trips, "u4")

    ran = run_with_words(LOOP_BY_WORD, same)

    assert rounds(ran) == expected_rounds(same)
    assert rests(ran) == expected_rests(same)


def test_threads_that_leave_a_loop_out() -> None:
    trips = trips_of(40, least=0)
    trips[:, 32:64] = 0  # and a whole warp of each block

    ran = run_with_words(SKIPPED, trips)

    assert rounds(ran) == expected_rounds(trips)
    assert rests(ran) == expected_rests(trips)


def test_a_loop_that_is_entered_again() -> None:
    trips = trips_of(35)

    ran = run_with_words(NESTED, trips)

    each = [trips + more for more in range(3)]
    assert np.array_equal(rounds(ran, 1), sum(np.array(expected_rounds(t)) for t in each))
    assert np.array_equal(rests(ran, 1), sum(np.array(expected_rests(t)) for t in each))
    thrice = np.full_like(trips, 3)
    assert rounds(ran, 0) == expected_rounds(thrice)
    assert rests(ran, 0) == expected_rests(thrice)


def test_a_loop_left_from_its_middle() -> None:
    """Its rounds are known. Those that leave it there are not among those that leave its end."""
    trips = trips_of(9)
    made = np.minimum(trips, 4)

    ran = run_with_words(BROKEN, trips)

    assert rounds(ran) == expected_rounds(made)
    assert rests(ran)[0][0] == sum(bool((lanes > 4).any()) for lanes in by_warp(trips))

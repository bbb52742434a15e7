"""How many lanes and warps branch or exit, against counts in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx import LOOP_BY_WORD, READ_WORD, WORD_THREADS, Launched, run_with_words

BLOCKS = 3
FORWARD = READ_WORD + "setp.gt.u32 %p1, %r4, 4; @%p1 bra DONE; add.s32 %r5, %r4, 1; DONE: ret;"
EXIT = READ_WORD + "setp.gt.u32 %p1, %r4, 4; @%p1 exit; add.s32 %r5, %r4, 1; ret;"


def counted(ran: Launched, opcode: str) -> tuple[int, int, int]:
    """What was counted at the guarded instruction with an opcode."""
    (index,) = (
        index
        for index, step in enumerate(ran.program.steps)
        if step.instruction.opcode == opcode and step.instruction.guard
    )
    tally = ran.tally
    return tally.taken_lanes[index], tally.taken_warps[index], tally.parted_warps[index]


def expected(rounds: list[list[NDArray[np.bool_]]]) -> tuple[int, int, int]:
    """The counts of rounds: of each, the lanes of warps that come to the branch and take it."""
    warps = [warp for each in rounds for warp in each if len(warp)]
    return (
        sum(int(warp.sum()) for warp in warps),
        sum(bool(warp.any()) for warp in warps),
        sum(bool(warp.any() and not warp.all()) for warp in warps),
    )


def by_warp(values: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    return [block[start : start + 32] for block in values for start in range(0, WORD_THREADS, 32)]


def drawn(most: int) -> NDArray[np.uint32]:
    return np.random.default_rng(0).integers(1, most + 1, (BLOCKS, WORD_THREADS)).astype("u4")


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("most", [2, 40])
def test_lanes_that_stay_in_a_loop(most: int, chunk: int | None) -> None:
    trips = drawn(most)

    ran = run_with_words(LOOP_BY_WORD, trips, chunk)

    rounds = [[made[made >= trip] > trip for made in by_warp(trips)] for trip in range(1, most + 1)]
    assert counted(ran, "bra") == expected(rounds)


@pytest.mark.parametrize(("body", "opcode"), [(FORWARD, "bra"), (EXIT, "exit")])
@pytest.mark.parametrize("case", ["some", "all", "none", "whole warps"])
def test_lanes_that_leave_a_part_out(body: str, opcode: str, case: str) -> None:
    values = drawn(9)
    if case != "some":
        values[:] = 9 if case == "all" else 1
    if case == "whole warps":
        values[:, 32:64] = 9

    ran = run_with_words(body, values)

    assert counted(ran, opcode) == expected([[warp > 4 for warp in by_warp(values)]])

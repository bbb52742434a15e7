"""How many lanes and warps branch or exit, against counts in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx import Launched, kernel, run

BLOCKS, THREADS = 3, 88
START = """.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %a<9>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 88, %r1;
ld.param.u64 %a1, [in]; mul.wide.u32 %a2, %r3, 4; add.u64 %a1, %a1, %a2;
ld.global.u32 %r4, [%a1];
"""
LOOP = (
    START
    + """mov.u32 %r5, 0;
HEAD: add.s32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r4; @%p1 bra HEAD;
ret;"""
)
FORWARD = START + "setp.gt.u32 %p1, %r4, 4; @%p1 bra DONE; add.s32 %r5, %r4, 1; DONE: ret;"
EXIT = START + "setp.gt.u32 %p1, %r4, 4; @%p1 exit; add.s32 %r5, %r4, 1; ret;"


def launched(body: str, values: NDArray[np.uint32], chunk: int | None) -> Launched:
    grid, block = (BLOCKS, 1, 1), (THREADS, 1, 1)
    return run(kernel(body, ".u64 in"), {"in": values}, grid=grid, block=block, chunk=chunk)


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
    return [block[start : start + 32] for block in values for start in range(0, THREADS, 32)]


def drawn(most: int) -> NDArray[np.uint32]:
    return np.random.default_rng(0).integers(1, most + 1, (BLOCKS, THREADS)).astype("u4")


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("most", [2, 40])
def test_lanes_that_stay_in_a_loop(most: int, chunk: int | None) -> None:
    trips = drawn(most)

    ran = launched(LOOP, trips, chunk)

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

    ran = launched(body, values, None)

    assert counted(ran, opcode) == expected([[warp > 4 for warp in by_warp(values)]])

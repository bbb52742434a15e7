"""Unrolled loops in machine code, against trips counted by hand and in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import UNROLLINGS
from memlab.device.machine_code.flow_graph import ENTRY, FlowGraph, flow_graph
from memlab.device.machine_code.instructions import MachineCode, MachineInstruction
from memlab.device.machine_code.projection import project
from memlab.device.machine_code.ptx_profile import PtxCount, PtxLoop, PtxProfile, Rounds
from memlab.device.machine_code.unrolling import (
    LoopLimit,
    RoundLimit,
    UnrolledCode,
    counted_trips,
    last_trips,
    loop_limits,
    round_limits,
    unrolled_code,
)

COUNTER, CLOSING, BODY, OUTSIDE = 1, 2, 3, 9  # lines of the PTX
FLOATS = ("FFMA", "fma.rn.f32")
INTEGERS = ("IMAD", "mad.lo.s32")


def graph_of(*steps: tuple[str, str, int | None, int]) -> FlowGraph:
    """The flow of instructions: predicate and opcode with operands, target, and line of the PTX."""
    code = []
    for number, (guard, text, target, line) in enumerate(steps):
        opcode, _, operands = text.partition(" ")
        read = tuple(operands.split(", ")) if operands else ()
        goes_to = None if target is None else 16 * target
        code.append(MachineInstruction(16 * number, guard, opcode, read, goes_to, line, None))
    return flow_graph(MachineCode("k", (9, 0), tuple(code)))


def unrolled(operation: str, *, counted: bool) -> FlowGraph:
    """A loop unrolled by 4, as block 1, a block 3 for 2 trips more, and the loop as it was, 5."""

    def bodies(copies: int) -> list[tuple[str, str, int | None, int]]:
        move = ("", f"IADD3 R5, R5, -{copies:#x}, RZ", None, COUNTER)
        return [("", f"{operation} R2, R2, R13, R6", None, BODY)] * copies + [move] * counted

    four, two, one = bodies(4), bodies(2), bodies(1)
    # The branches of the blocks that only choose come from lines outside.
    first = 2
    second = first + len(four) + 1
    third = second + 1 + len(two) + 1
    end = third + len(one) + 1
    return graph_of(
        ("", "S2R R0, SR_TID.X", None, OUTSIDE),
        ("P0", "BRA", second, OUTSIDE),
        *four,
        ("P1", "BRA", first, CLOSING),
        ("P2", "BRA", second + 1 + len(two), OUTSIDE),
        *two,
        ("P3", "BRA", end, OUTSIDE),
        *one,
        ("P4", "BRA", third, CLOSING),
        ("", "EXIT", None, OUTSIDE),
    )


def profile_of(trips: NDArray[np.int64], opcode: str) -> PtxProfile:
    """The profile of a loop that the threads of warps repeat so often, shape (warps, 32)."""
    longest = trips.max(axis=1)
    lanes, warps = int(trips.sum()), int(longest.sum())

    def rounds(made: NDArray[np.int64]) -> dict[int, Rounds]:
        return {u: Rounds(int((made >= u).sum()), int((made // u).sum())) for u in UNROLLINGS}

    loop = PtxLoop(
        lanes,
        trips.size,
        rounds(trips),
        rounds(longest),
        {
            (u, smaller): int((trips % u // smaller).max(axis=1).sum())
            for u in UNROLLINGS
            for smaller in UNROLLINGS
            if smaller < u
        },
    )
    counts = (
        PtxCount(OUTSIDE, "mov.u32", trips.size, len(trips), False, -1),
        PtxCount(BODY, opcode, lanes, warps, False, 0),
        PtxCount(COUNTER, "add.s32", lanes, warps, False, 0, increment=-1),
        PtxCount(CLOSING, "bra", lanes, warps, True, 0),
    )
    return PtxProfile(trips.size, counts, (loop,))


def all_make(trips: int) -> NDArray[np.int64]:
    return np.full((2, 32), trips)


@pytest.mark.parametrize("trips", [1, 2, 3, 7, 8, 13, 100])
@pytest.mark.parametrize(("kind", "counted"), [(FLOATS, False), (FLOATS, True), (INTEGERS, True)])
def test_equal_trips_take_the_longest_code_that_they_fill(
    kind: tuple[str, str], counted: bool, trips: int
) -> None:
    graph, profile = unrolled(kind[0], counted=counted), profile_of(all_make(trips), kind[1])

    found = project(graph, profile)

    assert found is not None
    expected = [trips // 4, trips % 4 // 2, trips % 2]
    assert found.block_lanes[[1, 3, 5]] / 64 == pytest.approx(expected, abs=1e-4)
    assert found.block_warps[[1, 3, 5]] / 2 == pytest.approx(expected, abs=1e-4)
    # Each thread makes its own trips: none of them those of others, who would pass the loop by.
    entering = [edge.source not in (5, ENTRY) and edge.destination == 5 for edge in graph.edges]
    assert found.edge_lanes[entering].sum() / 64 == pytest.approx(trips % 2, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [FLOATS, INTEGERS])
def test_unequal_trips_are_divided_by_thread_and_warp(kind: tuple[str, str], seed: int) -> None:
    trips = np.random.default_rng(seed).integers(1, 30, (2, 32))
    graph, profile = unrolled(kind[0], counted=True), profile_of(trips, kind[1])

    found = project(graph, profile)

    assert found is not None
    made = np.stack((trips // 4, trips % 4 // 2, trips % 2))
    assert found.block_lanes[[1, 3, 5]] == pytest.approx(made.sum(axis=(1, 2)), abs=0.01)
    assert found.block_warps[[1, 3, 5]] == pytest.approx(made.max(axis=2).sum(axis=1), rel=1e-3)


def test_copies_are_found_by_counters_and_by_arithmetic() -> None:
    expected = [
        UnrolledCode(1, 0, 4, frozenset({0})),
        UnrolledCode(5, 0, 1, frozenset({4})),
        UnrolledCode(3, 0, 2),
    ]
    integers, floats = profile_of(all_make(9), INTEGERS[1]), profile_of(all_make(9), FLOATS[1])

    assert unrolled_code(unrolled("IMAD", counted=True), integers) == expected
    assert unrolled_code(unrolled("FFMA", counted=False), floats) == expected
    # HFMA2 loads constants of integers, and does not show how often they are computed.
    loads = unrolled_code(unrolled("HFMA2.MMA", counted=False), integers)
    assert [code.copies for code in loads] == [1, 1]


def test_limits_of_equal_trips() -> None:
    graph, profile = unrolled("FFMA", counted=False), profile_of(all_make(13), FLOATS[1])
    codes = unrolled_code(graph, profile)

    assert loop_limits(codes, profile) == [
        LoopLimit(1, frozenset({0}), 64 * 3, 3, 3),
        LoopLimit(5, frozenset({4}), 64 * 13, 13, 13 % 4),
    ]
    assert round_limits(codes, profile) == [
        RoundLimit({1: 2, 3: 1}, 64 * 6),
        RoundLimit({1: 1}, 64 * 3),
    ]


def test_limits_of_unequal_trips() -> None:
    """Half of the threads make 3 trips, which do not enter the unrolled loop, and half 9."""
    graph = unrolled("FFMA", counted=False)
    profile = profile_of(np.repeat([[3, 9]], 32, axis=0).repeat(16, axis=1)[:2], FLOATS[1])
    first, last = loop_limits(unrolled_code(graph, profile), profile)

    assert (first.most, first.usual_per_entry) == (32 * 2, 2)
    assert first.most_per_entry >= 2
    assert (last.most, last.usual_per_entry) == (32 * 12, 1)
    assert last.most_per_entry >= 9


@pytest.mark.parametrize("other_moves", [True, False])
def test_a_trip_that_does_not_move_the_counter_is_the_last_one(other_moves: bool) -> None:
    """All threads make 1 trip but one in 8, which makes 2: ptxas peels the last trip of all.

    Without another block for a trip, the one that does not move the counter may be for the rest.
    """
    body, move = ("", "FFMA R2, R2, R13, R6", None, BODY), "IADD3 R5, R5, -0x1, RZ"
    graph = graph_of(
        ("P0", "BRA", 4, OUTSIDE),
        body,
        ("", move if other_moves else "IADD3 R6, R5, -0x1, RZ", None, COUNTER),
        ("", "NOP", None, OUTSIDE),
        ("P1", "BRA", 7, OUTSIDE),
        body,
        ("", "NOP", None, OUTSIDE),
        ("", "EXIT", None, OUTSIDE),
    )
    trips = np.ones((2, 32), np.int64)
    trips[:, ::8] = 2
    profile = profile_of(trips, FLOATS[1])

    last = last_trips(graph, profile, unrolled_code(graph, profile))
    found = project(graph, profile)

    assert last == ({0: graph.block_at(5)} if other_moves else {})
    assert found is not None
    if other_moves:
        assert found.block_lanes[[graph.block_at(1), graph.block_at(5)]].tolist() == [8, 64]


@pytest.mark.parametrize(
    ("texts", "trips"),
    [
        (["IADD3 R5, R5, -0x10, RZ"], 4),
        (["IADD3 R5, R5.reuse, 0x8, RZ"], 2),
        (["IADD3 R4, P2, R4, 0x4, RZ"], 1),
        (["VIADD R5, R5, 0xfffffff8"], 2),
        (["UIADD3 UR4, UR4, 0xc, URZ"], 3),
        (["IADD3 R5, R5, 0x4, RZ", "IADD3 R5, R5, 0x8, RZ"], 3),
        (["IADD3 R5, R5, 0x8, RZ", "IADD3 R7, R7, 0x8, RZ"], 2),  # of one line, two counters
        (["IADD3 R6, R5, 0x8, RZ"], None),  # the index of a copy
        (["IADD3 R5, R5, R6, RZ"], None),
        (["IADD3 R5, R5, 0x6, RZ"], None),  # not whole trips
        (["IADD3.X R5, RZ, R5, RZ, P2, !PT"], None),
    ],
)
def test_trips_by_which_a_counter_is_moved_on(texts: list[str], trips: float | None) -> None:
    graph = graph_of(*[("", text, None, COUNTER) for text in texts], ("", "EXIT", None, OUTSIDE))
    count = PtxCount(COUNTER, "add.s32", 64, 2, False, 0, increment=4)

    assert counted_trips(graph, [0], {COUNTER: count}).get(COUNTER) == trips


def test_a_counter_that_is_moved_on_under_a_predicate_counts_no_trips() -> None:
    graph = graph_of(("P0", "IADD3 R5, R5, 0x4, RZ", None, COUNTER), ("", "EXIT", None, OUTSIDE))
    count = PtxCount(COUNTER, "add.s32", 64, 2, False, 0, increment=4)

    assert not counted_trips(graph, [0], {COUNTER: count})

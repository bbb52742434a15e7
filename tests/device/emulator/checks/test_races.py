"""Races and barriers against brute force: random programs, and every pair of their accesses."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ptx import kernel

from memlab.device.checking.findings import TOOLS
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.checks.observations import Observation
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx

THREADS = (0, 1, 2, 32, 33)  # those that do something, of two warps
OPCODES = {
    "load": "ld.shared.u32 %r1, [cells+{0}]",
    "store": "st.shared.u32 [cells+{0}], {1}",
    "atomic": "red.shared.add.u32 [cells+{0}], {1}",
}

Operation = tuple[str, int, int]  # an access: kind, thread, cell; a barrier: kind, number, 0

ACCESSES = st.tuples(st.sampled_from(list(OPCODES)), st.sampled_from(THREADS), st.integers(0, 1))
BARRIERS = st.tuples(st.just("block"), st.just(0), st.just(0))
WARP_BARRIERS = st.tuples(
    st.sampled_from(["warp", "warps", "named"]), st.integers(0, 1), st.just(0)
)
PARTIAL_BARRIERS = st.tuples(st.just("some"), st.integers(1, 7), st.just(0))  # lanes 0 to 2


def observe(operations: list[Operation]) -> list[tuple[Observation, int, int]]:
    """The observed races, with the indices of the earlier and the later access."""
    program = load_program(parse_ptx(kernel(text_of(operations))), "k")
    memory = GlobalMemory({})
    extents = {"global": [], "shared": [(0, program.static_shared_bytes)]}
    grid = Grid((1, 1, 1), (64, 1, 1), 0, b"")
    checker = Checker(program, grid, memory, extents, (), (), ("racecheck",))
    Chunk(program, grid, np.array([(0, 0, 0)]), memory, Workspace(), observers=[checker]).execute()
    found = []
    for observation in checker.observations():
        assert observation.other is not None
        found.append(
            (
                observation,
                checker.place(observation.other)[0] - 1,
                checker.place(observation.at)[0] - 1,
            )
        )
    return found


BLOCKS = 3
BLOCK_BYTES = 8  # of global memory, for each block
ANYWHERE = {
    **OPCODES,
    "global load": "ld.global.u16 %r1, [%rd0+{0}]",
    "global store": "st.global.u32 [%rd0+{0}], {1}",
    "global atomic": "red.global.add.u32 [%rd0+{0}], {1}",
    "exit": "exit",
}


def checked(
    operations: list[Operation], chunk: int, tools: Sequence[str] = TOOLS, apart: bool = True
) -> set[tuple[Any, ...]]:
    """All observations in several blocks, executed a given number at a time.

    Each has a part of the array in global memory, or all have the same.
    """
    start = f"mov.u32 %r5, %ctaid.x; mul.lo.u32 %r5, %r5, {BLOCK_BYTES * apart};"
    start += "cvt.u64.u32 %rd0, %r5; mov.u64 %rd1, cells_of_all; add.u64 %rd0, %rd0, %rd1;"
    text = text_of(operations, f".reg .b64 %rd<2>; {start}", ANYWHERE)
    cells = f".visible .global .align 8 .b8 cells_of_all[{BLOCK_BYTES * BLOCKS}];"
    program = load_program(parse_ptx(kernel(text, functions=cells)), "k")
    memory = GlobalMemory({"cells_of_all": (BLOCK_BYTES * BLOCKS, 4)})
    address = memory.find("cells_of_all").address
    extents = {
        "global": [(address, address + BLOCK_BYTES * BLOCKS)],
        "shared": [(0, program.static_shared_bytes)],
    }
    grid = Grid((BLOCKS, 1, 1), (64, 1, 1), 0, b"")
    checker = Checker(program, grid, memory, extents, (), ("cells_of_all",), tools)
    blocks = np.array([(block, 0, 0) for block in range(BLOCKS)])
    for first in range(0, BLOCKS, chunk):
        here = blocks[first : first + chunk]
        Chunk(program, grid, here, memory, Workspace(), observers=[checker]).execute()
    found = set()
    for observation in checker.observations():
        other = None if observation.other is None else checker.place(observation.other)
        what = (
            observation.tool,
            observation.kind,
            observation.space,
            observation.array,
            observation.address,
            observation.count,
        )
        found.add((*what, checker.place(observation.at), other))
    return found


def text_of(
    operations: list[Operation], start: str = "", opcodes: Mapping[str, str] = OPCODES
) -> str:
    """PTX in which every operation has its own line, from 1, and all threads wait at barriers."""
    lines = [".reg .pred %p<2>; .reg .b32 %r<9>; .shared .align 4 .b8 cells[12];"]
    lines.append(start)
    lines.append("mov.u32 %r0, %tid.x; shr.u32 %r2, %r0, 5; mov.u32 %r3, %lanemask_eq;")
    for number, (kind, which, cell) in enumerate(operations, 1):
        lines.append(f".loc 1 {number} 1")
        if kind == "block":
            lines.append("bar.sync 0;")
            continue
        if kind == "warp":
            lines.append(f"setp.eq.u32 %p1, %r2, {which}; @%p1 bar.warp.sync -1;")
            continue
        if kind == "warps":
            lines.append("bar.warp.sync -1;")
            continue
        if kind == "named":  # a barrier of the block, for one warp
            lines.append(f"setp.eq.u32 %p1, %r2, {which}; @%p1 bar.sync {which + 1}, 32;")
            continue
        if kind == "some":
            lines.append(f"setp.eq.u32 %p1, %r2, 0; and.b32 %r4, %r3, {which};")
            lines.append(f"setp.ne.and.u32 %p1, %r4, 0, %p1; @%p1 bar.warp.sync {which};")
            continue
        lines.append(f"setp.eq.u32 %p1, %r0, {which};")
        lines.append(f"@%p1 {opcodes[kind].format(4 * cell, number)};")
    return "\n".join([*lines, "ret;"])


def groups(kind: str, which: int) -> list[list[int]]:
    """The threads that wait for each other at a barrier."""
    warps = [[thread for thread in THREADS if thread // 32 == warp] for warp in range(2)]
    if kind == "block":
        return [list(THREADS)]
    if kind == "warps":
        return warps
    if kind == "some":
        return [[thread for thread in warps[0] if which >> thread & 1]]
    return [warps[which]]


def races(operations: list[Operation]) -> set[tuple[int, int]]:
    """All unordered pairs of accesses, by vector clocks."""
    known = {thread: dict.fromkeys(THREADS, -1) for thread in THREADS}
    seen: list[tuple[int, str, int, int, dict[int, int]]] = []
    for time, (kind, which, cell) in enumerate(operations):
        if kind in OPCODES:
            known[which][which] = time
            seen.append((time, kind, which, cell, dict(known[which])))
            continue
        for members in groups(kind, which):
            for other in THREADS:
                latest = max(known[thread][other] for thread in members)
                for thread in members:
                    known[thread][other] = latest
    found = set()
    for one, two in combinations(seen, 2):
        if one[3] != two[3] or one[2] == two[2] or {one[1], two[1]} in ({"load"}, {"atomic"}):
            continue
        if two[4][one[2]] < one[0]:
            found.add((one[0], two[0]))
    return found


HAZARDS = {"load": "RAW", "store": "WAW", "atomic": "WAW"}  # by the later access, after a write


FORGOTTEN = [("load", 32, 0), ("load", 0, 0), ("load", 1, 0), ("warp", 0, 0), ("store", 2, 0)]
"""Of three reads by two warps the first must not be forgotten: the write is ordered behind the
others."""
APART = [("named", 0, 0), ("block", 0, 0), ("store", 0, 0), ("warps", 0, 0), ("load", 32, 0)]
"""Both warps wait at the same time, independently."""


@example(FORGOTTEN)
@example(APART)
@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(ACCESSES, ACCESSES, BARRIERS, WARP_BARRIERS), min_size=2, max_size=14))
def test_a_cell_is_reported_exactly_where_some_pair_races(operations: list[Operation]) -> None:
    expected = races(operations)
    cells = {operations[two][2] for _, two in expected}
    assert {observation.address // 4 for observation, _, _ in observe(operations)} == cells


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(ACCESSES, ACCESSES, BARRIERS, WARP_BARRIERS, PARTIAL_BARRIERS),
        min_size=2,
        max_size=14,
    )
)
def test_every_pair_reported_races(operations: list[Operation]) -> None:
    expected = {frozenset(pair) for pair in races(operations)}
    for observation, one, two in observe(operations):
        assert frozenset((one, two)) in expected
        assert observation.other is not None
        assert (observation.other.thread, observation.at.thread) == (
            operations[one][1],
            operations[two][1],
        )
        kinds = (operations[one][0], operations[two][0])
        assert observation.kind == {"load": "WAR"}.get(kinds[0], HAZARDS[kinds[1]])


ACCESSES_ANYWHERE = st.tuples(
    st.sampled_from(list(ANYWHERE)), st.sampled_from(THREADS), st.integers(0, 1)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(ACCESSES_ANYWHERE, BARRIERS, WARP_BARRIERS), min_size=2, max_size=12))
def test_findings_depend_neither_on_the_blocks_at_once_nor_on_the_other_tools(
    operations: list[Operation],
) -> None:
    found = checked(operations, BLOCKS)

    assert checked(operations, 1) == checked(operations, 2) == found
    for tool in TOOLS:
        assert checked(operations, BLOCKS, (tool,)) == {
            finding for finding in found if finding[0] == tool
        }


GLOBAL_ACCESSES = st.tuples(
    st.sampled_from([operation for operation in ANYWHERE if "global" in operation]),
    st.just(0),
    st.just(0),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(GLOBAL_ACCESSES, min_size=1, max_size=5), st.integers(1, BLOCKS))
def test_blocks_race_wherever_one_writes_and_another_comes(
    operations: list[Operation], chunk: int
) -> None:
    # Thread 0 of each block does the same at one place. One store leaves what other blocks store.
    kinds = [kind for kind, _, _ in operations]
    stores = kinds.count("global store")
    racing = stores > 1 or ({*kinds} != {"global atomic"} and len({*kinds}) > 1)
    found = checked(operations, chunk, ("racecheck",), apart=False)

    assert bool(found) == racing
    for *_, (at, _, _), (other, _, _) in found:
        assert at >= other  # told in the order of the program, whoever ran first

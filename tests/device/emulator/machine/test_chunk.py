"""A chunk that runs other blocks, and the limits of its trace."""

from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ptx import blocks_of, fill_memory, kernel, parameter_space, run

from memlab.device.budget import Deadline
from memlab.device.emulator.machine import execution_trace
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.execution_trace import ExecutionTrace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.tally import Counts
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx

# --- Other blocks in the place of those that have ended ------------------------------------------

THREADS, BLOCKS = 40, 7

# Each thread adds up what nothing has written to, and the number of its block.
FRESH = kernel(
    """
    .reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p<3>;
    .shared .align 4 .b32 cells[64]; .local .align 4 .b32 own[2];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r6, cells; mad.lo.u32 %r6, %r1, 4, %r6;
    ld.shared.u32 %r3, [%r6]; ld.local.u32 %r4, [own+4]; add.u32 %r5, %r5, %r3;
    add.u32 %r5, %r5, %r4; add.u32 %r5, %r5, %r2;
    st.shared.u32 [%r6], 1000; st.local.u32 [own+4], 1000;
    mad.lo.u32 %r7, %r2, 40, %r1; mul.wide.u32 %a2, %r7, 4; ld.param.u64 %a1, [out];
    add.u64 %a1, %a1, %a2; st.global.u32 [%a1], %r5; add.u32 %r5, %r5, 1000; ret;
    """,
    ".u64 out",
)


def chunk_of(text: str, blocks: Any, workspace: Workspace, *observers: Observer) -> Any:
    """A chunk of a kernel that has one array, `out`, and its memory."""
    program, arrays = load_program(parse_ptx(text), "k"), {"out": np.zeros(BLOCKS * THREADS, "u4")}
    memory = fill_memory(program, arrays)
    parameters = parameter_space(program, memory, arrays)
    grid = Grid((BLOCKS, 1, 1), (THREADS, 1, 1), 0, parameters)
    chunk = Chunk(program, grid, np.array(blocks), memory, workspace, observers=observers)
    return SimpleNamespace(chunk=chunk, memory=memory, out=memory.bytes_of("out").view("u4"))


def test_a_chunk_starts_other_blocks_as_new_ones() -> None:
    blocks = np.array(blocks_of((BLOCKS, 1, 1)))
    made = chunk_of(FRESH, blocks[:3], Workspace())
    chunk = made.chunk
    chunk.execute()
    assert made.out.tolist() == [t // THREADS if t < 3 * THREADS else 0 for t in range(280)]
    first = chunk.take_tally()
    for some in (blocks[3:6], blocks[6:]):
        assert chunk.restart(some, None, Deadline(60))
        chunk.execute()
    assert made.out.tolist() == [t // THREADS for t in range(BLOCKS * THREADS)]
    rest = chunk.take_tally()
    assert [3 * n for n in rest.lanes] == [4 * n for n in first.lanes]
    assert first.lanes[0] == 3 * THREADS


def test_a_taken_tally_leaves_no_counts_behind() -> None:
    loop = "again: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3; @%p1 bra again;"
    text = kernel(f".reg .b32 %r<2>; .reg .pred %p<2>; mov.u32 %r1, 0; {loop} ret;", ".u64 out")
    chunk = chunk_of(text, blocks_of((1, 1, 1)), Workspace()).chunk
    for part in fields(Counts):
        counts = getattr(chunk.context.counts, part.name)
        assert counts.size
        counts[:] = 5
    assert any(chunk.take_tally().lanes)
    left = chunk.take_tally()
    assert not any(any(getattr(left, counter.name)) for counter in fields(left))


# Lanes read a register of their neighbour; only lane 0 has written it.
EXCHANGED = kernel(
    """
    .reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra join;
    add.u32 %r3, %r2, 9;
    join: shfl.sync.bfly.b32 %r4, %r3, 1, 31, 0xffffffff;
    mad.lo.u32 %r5, %r2, 40, %r1; mul.wide.u32 %a2, %r5, 4; ld.param.u64 %a1, [out];
    add.u64 %a1, %a1, %a2; st.global.u32 [%a1], %r4; ret;
    """,
    ".u64 out",
)
# Each thread adds up, in a loop, a register that only the first thread sets before.
GUARDED = kernel(
    """
    .reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r6, 0;
    @%p1 mov.u32 %r3, 7;
    again: add.u32 %r3, %r3, %r2; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra again;
    mad.lo.u32 %r5, %r2, 40, %r1; mul.wide.u32 %a2, %r5, 4; ld.param.u64 %a1, [out];
    add.u64 %a1, %a1, %a2; st.global.u32 [%a1], %r3; ret;
    """,
    ".u64 out",
)


@pytest.mark.parametrize(
    ("text", "first_values"),
    [
        (FRESH, lambda block: [block, block, block]),
        (EXCHANGED, lambda block: [0, block + 9, 0]),
        (GUARDED, lambda block: [3 * block + 7, 3 * block, 3 * block]),
    ],
    ids=["fresh", "exchanged", "guarded"],
)
def test_registers_begin_as_zeros_whatever_their_memory_held(
    text: str, first_values: Callable[[int], list[int]]
) -> None:
    workspace, garbage = Workspace(), np.random.default_rng(3).bytes(3 * 2 * 32 * 8 * 40)
    workspace.frames(1, len(garbage))[:] = np.frombuffer(garbage, np.uint8)
    blocks = np.array(blocks_of((BLOCKS, 1, 1)))
    made = chunk_of(text, blocks[:3], workspace)
    for some in (blocks[3:6], blocks[6:]):
        made.chunk.execute()
        registers = made.chunk.context.frames[:, : made.chunk.context.layout.registers_size]
        registers[:] = np.frombuffer(garbage, np.uint8, registers.size).reshape(registers.shape)
        assert made.chunk.restart(some, None, Deadline(60))
    made.chunk.execute()
    for block, found in enumerate(made.out.reshape(BLOCKS, THREADS).tolist()):
        first = first_values(block)
        assert found == first + (THREADS - 3) * first[-1:]


def test_a_chunk_that_others_followed_or_that_keeps_state_does_not_start_again() -> None:
    blocks, workspace = np.array(blocks_of((BLOCKS, 1, 1))), Workspace()
    chunk = chunk_of(FRESH, blocks[:2], workspace).chunk
    assert not chunk.restart(blocks[2:4], None, Deadline(60))  # its own blocks have not run
    chunk.execute()
    assert not chunk.restart(blocks[2:5], None, Deadline(60))  # too many
    assert chunk.restart(blocks[2:4], None, Deadline(60))
    chunk.execute()
    chunk_of(FRESH, blocks[:1], workspace).chunk.execute()
    assert not chunk.restart(blocks[4:6], None, Deadline(60))
    spin = "loop: ld.volatile.global.u32 %r1, [%a1]; setp.ne.u32 %p1, %r1, 0; @%p1 bra loop;"
    declared = ".reg .b32 %r<3>; .reg .b64 %a<3>; .reg .pred %p<3>; ld.param.u64 %a1, [out];"
    for text, observers in (
        (FRESH, [Observer()]),
        (kernel(f"{declared} {spin} ret;", ".u64 out"), []),
        (kernel("bar.sync 1, 64; ret;", ".u64 out"), []),
    ):
        keeping = chunk_of(text, blocks[:1], Workspace(), *observers).chunk
        keeping.execute()
        assert not keeping.restart(blocks[:1], None, Deadline(60))


# --- The limits of a trace -----------------------------------------------------------------------

STEPS = 10

# Each warp loads in a loop, from a place of its own; odd rounds are another branch's.
LOADS = kernel(
    f"""
    .reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, 0; ld.param.u64 %a1, [a];
    loop: mad.lo.u32 %r3, %r2, 96, %r1; mul.wide.u32 %a2, %r3, 4; add.u64 %a2, %a2, %a1;
    and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra even;
    ld.global.u32 %r5, [%a2]; bra.uni next;
    even: ld.global.u32 %r6, [%a2]; st.global.u32 [%a2], %r6;
    next: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, {STEPS}; @%p2 bra loop; ret;
    """,
    ".u64 a",
)
EVENTS = STEPS + STEPS // 2


def traced() -> ExecutionTrace:
    trace = ExecutionTrace()
    run(LOADS, {"a": np.zeros(96 * STEPS, "u4")}, block=(96, 1, 1), observers=[trace])
    return trace


def seen_by(trace: ExecutionTrace) -> list[tuple[int, int, int, list[int]]]:
    """The accesses in the order of their events: event, warp, base, sectors."""
    found = trace.accesses()
    sectors = [
        found.offsets[start : start + count].tolist()
        for start, count in zip(found.start.tolist(), found.count.tolist(), strict=True)
    ]
    columns = (column.tolist() for column in (found.event, found.warp, found.base))
    return sorted(zip(*columns, sectors, strict=True))


@pytest.mark.parametrize(
    ("limit", "most", "kept"),
    [
        ("_MOST_EVENTS", EVENTS, EVENTS),
        ("_MOST_EVENTS", 7, 7),
        # An event takes three warps, and each of these 4 sectors.
        ("_LARGEST_TRACE", 15 * EVENTS, EVENTS - 1),
        ("_LARGEST_TRACE", 100, 6),
        ("_LARGEST_TRACE", 1, 0),
    ],
)
def test_a_trace_keeps_its_first_events(
    limit: str, most: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = traced()
    monkeypatch.setattr(execution_trace, limit, most)
    cut = traced()
    assert (whole.accesses().seen, cut.accesses().seen) == (EVENTS, EVENTS)
    assert cut.accesses().index.tolist() == whole.accesses().index.tolist()[:kept]
    assert seen_by(cut) == [access for access in seen_by(whole) if access[0] < kept]
    assert len(seen_by(cut)) == 3 * kept


def test_a_path_keeps_its_first_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = traced().path()
    # 3 before the loop; in a round, 6 to the branch, 2 or 2 in an arm, 3 behind; the last returns.
    assert whole.instructions == sum(b - a for a, b in whole.ranges) == 3 + 11 * STEPS + 1
    monkeypatch.setattr(execution_trace, "LONGEST_PATH", 30)
    longest = traced().path()
    assert longest.ranges == whole.ranges[: len(longest.ranges)]
    followed = [b - a for a, b in longest.ranges]
    assert sum(followed[:-1]) <= 30 < sum(followed)
    monkeypatch.setattr(execution_trace, "_MOST_RANGES", 3)
    few = traced().path()
    assert few.ranges == whole.ranges[:3]
    assert few.instructions == longest.instructions == whole.instructions


# --- Named barriers ------------------------------------------------------------------------------


def test_threads_that_wait_forever_are_named() -> None:
    endless = chunk_of(kernel("bar.sync 1, 4096; ret;", ".u64 out"), [(0, 0, 0)], Workspace())
    with pytest.raises(KernelFault, match="a barrier of 4096 threads is never complete"):
        endless.chunk.execute()

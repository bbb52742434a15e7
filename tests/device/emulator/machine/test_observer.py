"""The hooks of an observer, and the decisions of an execution policy."""

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np
import pytest
from ptx import kernel, run

from memlab.device.emulator.machine.access_watch import WatchedAccess
from memlab.device.emulator.machine.execution_trace import ExecutionTrace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import KernelFault, Mask
from memlab.device.emulator.machine.observer import Action, ExecutionPolicy, Observer
from memlab.device.emulator.machine.scheduler import BarrierRelease
from memlab.device.emulator.program.program import DecodedInstruction, Program

DOUBLED = kernel(
    """
    .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %a<9>;
    mov.u32 %r1, %tid.x; ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2;
    setp.ge.u32 %p1, %r1, 20; @%p1 bra END;
    ld.global.u32 %r2, [%a1+4]; shl.b32 %r2, %r2, 1; st.global.u32 [%a1+4], %r2;
    END: ret;
    """,
    ".u64 a",
)
ATOMIC = kernel(
    """
    .reg .b32 %r<9>; .reg .b64 %a<9>;
    mov.u32 %r1, %tid.x; ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2;
    atom.global.add.u32 %r2, [%a1], 5; st.global.u32 [%a1], %r2; ret;
    """,
    ".u64 a",
)


def accesses_of(program: Program, space: str = "") -> list[int]:
    """The instructions that access memory, or one state space of it."""
    steps = enumerate(program.steps)
    return [
        n for n, step in steps if step.row.space and step.row.space == (space or step.row.space)
    ]


class Log(Observer):
    """Writes down the hooks in their order."""

    observes_flow: ClassVar[bool] = True

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def watched_instructions(self, program: Program) -> Collection[int]:
        return accesses_of(program)

    def chunk_started(self, chunk: Chunk) -> None:
        self.lines.append(("chunk", chunk.threads.lanes))

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        def run(mask: Mask) -> None:
            self.lines.append((step.row.kind, step.row.opcode))
            action(mask)

        return run if step.row.space == "global" else action

    def range_executed(self, start: int, stop: int, mask: Mask) -> None:
        self.lines.append(("range", start, stop, count(mask)))

    def memory_accessed(self, access: WatchedAccess) -> None:
        kind, space, lanes = access.instruction.kind, access.segment.name, count(access.mask)
        first = int(access.address[access.mask][0] - access.segment.origin)
        self.lines.append(("access", kind, space, first, lanes))

    def control_reached(self, index: int, mask: Mask, taken: Mask) -> None:
        self.lines.append(("control", index, count(mask), count(taken)))


def count(mask: Mask) -> int:
    """How many lanes a mask has."""
    return int(np.count_nonzero(mask))


def test_hooks_are_called_in_the_order_of_execution() -> None:
    log = Log()

    run(DOUBLED, {"a": np.arange(21, dtype=np.uint32)}, observers=[log])

    assert log.lines == [
        ("chunk", 32),
        ("range", 0, 1, 32),
        ("access", "load", "param", 0, 32),
        ("range", 1, 2, 32),
        ("range", 2, 5, 32),
        ("range", 5, 6, 32),
        ("load", "ld.global.u32"),
        ("access", "load", "global", 4, 20),
        ("range", 6, 7, 20),
        ("range", 7, 8, 20),
        ("store", "st.global.u32"),
        ("access", "store", "global", 4, 20),
        ("range", 8, 9, 20),
        ("range", 9, 10, 32),
    ]


def test_without_flow_only_watched_instructions_are_told() -> None:
    class Watcher(Log):
        observes_flow: ClassVar[bool] = False

        def watched_instructions(self, program: Program) -> Collection[int]:
            return 5, 8, 10

    log, arrays = Watcher(), {"a": np.arange(21, dtype=np.uint32)}

    done, alone = run(DOUBLED, arrays, observers=[log]), run(DOUBLED, arrays)

    assert log.lines == [
        ("chunk", 32),
        ("control", 5, 32, 12),
        ("store", "st.global.u32"),
        ("access", "store", "global", 4, 20),
    ]
    assert done["a"].tolist() == alone["a"].tolist() == [0, *range(2, 42, 2)]
    assert done.tally == alone.tally


def test_the_end_of_the_program_is_an_instruction_of_control() -> None:
    class Watcher(Log):
        def watched_instructions(self, program: Program) -> Collection[int]:
            return range(len(program.steps) + 1)

    log = Watcher()

    tally = run(kernel(".reg .b32 %r<2>; mov.u32 %r1, 3;"), {}, observers=[log]).tally

    assert log.lines == [("chunk", 32), ("range", 0, 1, 32), ("control", 1, 32, 32)]
    assert (tally.lanes, tally.warps) == ([32], [1])  # the end counts as none


class Odd(ExecutionPolicy):
    """Permits the lanes with odd numbers only."""

    def watched_instructions(self, program: Program) -> Collection[int]:
        return accesses_of(program, "global")

    def permitted_lanes(self, access: WatchedAccess) -> Mask:
        if access.segment.name != "global":
            return access.mask
        return access.mask & (np.arange(access.mask.size) % 2 == 1)


def test_lanes_that_the_policy_refuses_read_zero_and_their_stores_are_lost() -> None:
    log = Log()

    done = run(DOUBLED, {"a": np.arange(21, dtype=np.uint32)}, observers=[log, Odd()])

    expected = [value * (2 if value % 2 == 0 else 1) for value in range(21)]
    assert done["a"].tolist() == expected  # lane n has element n + 1
    assert ("access", "load", "global", 8, 10) in log.lines  # lane 1 is the first


def test_an_atomic_of_refused_lanes_leaves_memory_alone() -> None:
    start = np.arange(100, 132, dtype=np.uint32)

    done = run(ATOMIC, {"a": start}, observers=[Odd()])

    assert done["a"].tolist() == start.tolist()  # an odd lane stores what it found


@pytest.mark.parametrize("is_trial", [False, True])
def test_only_a_trial_run_ends_silently_at_a_fault(is_trial: bool) -> None:
    observer = ExecutionTrace() if is_trial else Log()
    start = np.arange(3, dtype=np.uint32)
    if is_trial:
        assert run(DOUBLED, {"a": start}, observers=[observer])["a"].tolist() == [0, 1, 2]
    else:
        with pytest.raises(KernelFault, match="illegal address"):
            run(DOUBLED, {"a": start}, observers=[observer])


def test_the_policy_opens_barriers() -> None:
    opened: list[list[int]] = []

    class Watched(ExecutionPolicy):
        def barrier_release(self, default: BarrierRelease | None) -> BarrierRelease:
            assert default is None  # no barrier of a part of the block

            def release(parked: dict[int, Mask]) -> Mask:
                opened.append(sorted(parked))
                return np.logical_or.reduce(list(parked.values()))

            return release

    run(kernel("bar.sync 0; bar.sync 0; ret;"), {}, observers=[Watched()])

    assert opened == [[1], [2]]


def test_a_chunk_runs_by_one_policy() -> None:
    with pytest.raises(ValueError, match="one policy"):
        run(kernel("ret;"), {}, observers=[ExecutionTrace(), ExecutionPolicy()])

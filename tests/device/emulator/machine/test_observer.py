"""The hooks of an observer, and the decisions of an execution policy."""

from typing import Any

import numpy as np
import pytest
from ptx import kernel, run

from memlab.device.emulator.machine.access_costs import SectorCount
from memlab.device.emulator.machine.address_resolution import MemoryInstruction, ResolvedAddresses
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.execution_trace import ExecutionTrace
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.observer import ChunkState, ExecutionPolicy, Observer
from memlab.device.emulator.machine.scheduler import BarrierRelease, Mask, Scheduler
from memlab.device.emulator.program.program import DecodedInstruction

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


class Log(Observer):
    """Writes down the hooks in their order."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def chunk_started(self, chunk: ChunkState) -> None:
        self.lines.append(("chunk", chunk.threads.lanes))

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        def run(mask: Mask | None) -> None:
            self.lines.append((step.row.kind, step.row.opcode))
            action(mask)

        return run if step.row.space == "global" else action

    def run_started(self, schedule: Scheduler) -> None:
        self.lines.append(("run", schedule.counter))

    def range_executed(self, start: int, stop: int, mask: Mask | None) -> None:
        self.lines.append(("range", start, stop, count(mask)))

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> None:
        space = addresses.segment.name
        self.lines.append(("access", instruction.kind, space, offset, count(mask)))

    def global_access_counted(self, index: int, warp_bases: Mask, cost: SectorCount) -> None:
        self.lines.append(("counted", index, len(warp_bases), cost.sectors))

    def guard_read(self, predicate: str, mask: Mask | None) -> None:
        self.lines.append(("guard", predicate, count(mask)))

    def control_transferred(self, index: int, mask: Mask | None) -> None:
        self.lines.append(("control", index, count(mask)))

    def trap_reached(self, index: int, mask: Mask | None) -> None:
        self.lines.append(("trap", index, count(mask)))


def count(mask: Mask | None) -> int | None:
    """How many lanes a mask has; None for all."""
    return None if mask is None else int(np.count_nonzero(mask))


def test_hooks_are_called_in_the_order_of_execution() -> None:
    log = Log()

    run(DOUBLED, {"a": np.arange(21, dtype=np.uint32)}, observers=[log])

    assert log.lines == [
        ("chunk", 32),
        ("run", 0),
        ("access", "load", "param", 0, None),
        ("range", 0, 6, None),
        ("guard", "%p1", None),
        ("control", 5, 12),
        ("load", "ld.global.u32"),
        ("counted", 6, 1, 3),
        ("access", "load", "global", 4, 20),
        ("store", "st.global.u32"),
        ("counted", 8, 1, 3),
        ("access", "store", "global", 4, 20),
        ("range", 6, 9, 20),
        ("range", 9, 10, None),
        ("control", 9, None),
    ]


def test_a_trap_is_told_before_it_ends_the_run() -> None:
    log = Log()

    with pytest.raises(KernelFault, match="trap"):
        run(kernel("trap; ret;"), {}, observers=[log])

    assert log.lines[-1] == ("trap", 0, None)


class Odd(ExecutionPolicy):
    """Permits the lanes with odd numbers only, and does not count."""

    counts_accesses = False

    def permitted_lanes(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> Mask | None:
        if addresses.segment.name != "global":
            return mask
        lanes = self._threads.alive if mask is None else mask
        return lanes & (np.arange(lanes.size) % 2 == 1)


def test_lanes_that_the_policy_refuses_read_zero_and_their_stores_are_lost() -> None:
    log = Log()

    done = run(DOUBLED, {"a": np.arange(21, dtype=np.uint32)}, observers=[log, Odd()])

    expected = [value * (2 if value % 2 == 0 else 1) for value in range(21)]
    assert done["a"].tolist() == expected  # lane n has element n + 1
    assert ("access", "load", "global", 4, 10) in log.lines
    assert not any(line[0] == "counted" for line in log.lines)
    assert not any(done.tally.requests)
    assert not any(done.tally.bytes)


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

            def release(parked: dict[int, Mask]) -> tuple[dict[int, Mask], dict[int, Mask]]:
                opened.append(sorted(parked))
                return parked, {}

            return release

    run(kernel("bar.sync 0; bar.sync 0; ret;"), {}, observers=[Watched()])

    assert opened == [[1], [2]]


def test_a_chunk_runs_by_one_policy() -> None:
    with pytest.raises(ValueError, match="one policy"):
        run(kernel("ret;"), {}, observers=[ExecutionTrace(), ExecutionPolicy()])

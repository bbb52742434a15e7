"""Runs a program over the lanes of a chunk of blocks, and counts.

Each instruction is bound once to the arrays it works on, so that running it is one call. Nothing
here knows an opcode: rows of the table say what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine import binding, printf
from memlab.device.emulator.machine.access_costs import ExecutionTrace, Patterns, Tally
from memlab.device.emulator.machine.accesses import Accesses, build_segments
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.memory import GlobalMemory, KernelFault
from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.partial_barriers import PartialBarriers, is_partial
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.machine.scheduler import Mask, Scheduler, active_warps
from memlab.device.emulator.machine.spin_waits import SpinWaitDetector
from memlab.device.emulator.machine.threads import Grid, Threads, source_excerpt
from memlab.device.emulator.machine.warp_synchronization import (
    ParticipatingLanes,
    WaitingGroups,
    WarpSynchronization,
)
from memlab.device.emulator.program.lowering import OPERAND_EXCEPTIONS, operand_error
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import PtxError
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.budget import Deadline
    from memlab.device.emulator.checks.checker import Checker
    from memlab.device.emulator.sampling.affine_values import AffineValues


_MAX_IDLE_ROUNDS = 3  # of all groups that wait: then none of a probe's blocks can go on


class Chunk:
    """Some blocks of a grid, with the registers and memories of their lanes.

    Attributes:
        tally: What each instruction did.
        trace: Global accesses in order, where they were asked for.
    """

    def __init__(
        self,
        program: Program,
        grid: Grid,
        blocks: NDArray[np.int64],
        global_memory: GlobalMemory,
        patterns: Patterns,
        trace: ExecutionTrace | None = None,
        source: Sequence[str] = (),
        recorder: Recorder | None = None,
        checker: Checker | None = None,
        deadline: Deadline | None = None,
        moves: AffineValues | None = None,
    ) -> None:
        """Prepare blocks, given by their coordinates (shape (blocks, 3)), for running."""
        self._deadline = deadline
        self.program, self.trace, self._recorder = program, trace, recorder
        self._checker = checker
        self.tally = Tally.zeros(len(program.steps))
        self._threads = Threads(grid, blocks, source)
        self.lanes = self._threads.lanes
        places = {each.name: global_memory.find(each.name).address for each in program.globals}
        self._operands = Operands(program, self._threads, places)
        spaces = build_segments(program, self._threads, global_memory)
        self._memory, self._spaces = global_memory, spaces
        if checker is not None:
            checker.begin(self._threads, self._operands, spaces)
        self._moves = moves
        if moves is not None:
            moves.begin(self._threads, self._operands)
        self._accesses = Accesses(
            self._threads, self._operands, spaces, patterns, self.tally, trace, recorder, checker
        )
        self._company = ParticipatingLanes()
        if checker is not None:
            checker.barriers.company = self._company
        self._rendezvous = PartialBarriers(program.steps, self._operands, self._threads)
        self._actions: list[Action | None] = []
        for index, step in enumerate(program.steps):
            try:
                self._actions.append(self._bind(index, step))
            except OPERAND_EXCEPTIONS as error:
                raise operand_error(step.instruction, source) from error

    def run(self) -> Tally:
        """Run every lane to its end.

        Raises:
            KernelFault: An access outside memory or misaligned; names source line, block
                and thread. With a checker such accesses are left out instead. Or the kernel
                stopped itself.
            OutOfTime: The deadline passed; names where a thread was then.
        """
        with np.errstate(all="ignore"):
            self._run()
        return self.tally

    def _run(self) -> None:
        checker = self._checker
        opener = None if checker is None else checker.open
        if opener is None and any(map(is_partial, self.program.steps)):
            opener = self._rendezvous.open
        block_lanes = self._threads.grid.padded_threads
        self._waiting = SpinWaitDetector(self.program, self._operands, self._spaces)
        awake = self._waiting.warps_to_resume
        schedule = Scheduler(
            self._threads.alive, opener, block_lanes, self.program.order, awake, self._meet
        )
        self._meetings = WarpSynchronization(
            self.program.steps, self._operands, schedule.live, self._company
        )
        if checker is not None:
            checker.barriers.schedule = schedule
        end = len(self.program.steps)
        lanes_change, warps_change = [0] * (end + 1), [0] * (end + 1)
        try:
            self._run_groups(schedule, lanes_change, warps_change)
        except KernelFault:
            # A probe's blocks may be one block several times, which then does too often what it
            # should do once: what is wrong in truth is found when the grid runs.
            if self.trace is None:
                raise
        np_lanes = np.cumsum(lanes_change[:-1])
        np_warps = np.cumsum(warps_change[:-1])
        self.tally.lanes = [a + int(b) for a, b in zip(self.tally.lanes, np_lanes, strict=True)]
        self.tally.warps = [a + int(b) for a, b in zip(self.tally.warps, np_warps, strict=True)]

    def _meet(self, waiting: WaitingGroups, held: Mask) -> tuple[WaitingGroups, WaitingGroups]:
        return self._meetings.execute_ready(waiting, held, self._actions)

    def _run_groups(
        self, schedule: Scheduler, lanes_change: list[int], warps_change: list[int]
    ) -> None:
        """Run group after group; the lists take by how many lanes and warps more run there."""
        steps, actions, end = self.program.steps, self._actions, len(self.program.steps)
        checker, deadline, meetings = self._checker, self._deadline, self._meetings
        may_wait = meetings.steps
        going = True
        while going:
            start, mask = schedule.counter, schedule.mask
            if deadline is not None and deadline.has_passed():
                raise deadline.error(self._place(steps[min(start, end - 1)], mask))
            stop = min(schedule.limit, end)
            counter = start
            while counter < stop:
                action = actions[counter]
                if action is None:
                    break
                if mask is not None and counter in may_wait and meetings.must_wait(counter, mask):
                    break
                action(mask)
                counter += 1
            at_control = counter < stop
            lanes = self.lanes if mask is None else int(np.count_nonzero(mask))
            warps = self.lanes // WARP_SIZE if mask is None else int(active_warps(mask).sum())
            lanes_change[start] += lanes
            warps_change[start] += warps
            lanes_change[counter + at_control] -= lanes
            warps_change[counter + at_control] -= warps
            if self.trace is not None:
                self.trace.stretch(start, counter + at_control, mask)
            if self._recorder is not None:
                self._recorder.stretch(start, counter + at_control, mask)
            schedule.counter = counter
            if not at_control:
                if counter >= end:
                    if checker is not None:
                        checker.record_control_flow(end, schedule.mask)
                    going = schedule.exit()
                else:
                    schedule.merge()
            else:
                going = self._transfer(schedule, steps[counter], counter, lanes)

    def _transfer(
        self, schedule: Scheduler, step: DecodedInstruction, counter: int, lanes: int
    ) -> bool:
        """Carry out a branch, an exit, a barrier or a meeting for the running group."""
        if step.row.kind == "warp":
            return schedule.meet()
        guard = step.instruction.guard
        if guard is not None:
            if self._checker is not None:
                self._checker.check_predicate(guard, schedule.mask)
            taken = self._operands.register(guard)
            if step.instruction.guard_negated:
                taken = ~taken
            if schedule.mask is not None:
                taken = taken & schedule.mask
            count = int(np.count_nonzero(taken))
            if count == 0:
                schedule.jump(counter + 1)
                return True
            if count < lanes:
                if step.row.kind == "branch":
                    if self._checker is not None:
                        self._checker.record_control_flow(counter, taken)
                    waits = self._waits(step, counter, taken)
                    schedule.split(taken, step.target)
                    return not waits or self._defer_group(schedule, step, counter)
                schedule.split(taken, counter)  # those taken lie lowest: they run on from here
        if self._checker is not None and step.row.kind in ("branch", "exit"):
            self._checker.record_control_flow(counter, schedule.mask)
        if step.row.kind == "branch":
            waits = self._waits(step, counter, schedule.mask)
            schedule.jump(step.target)
            return not waits or self._defer_group(schedule, step, counter)
        checker = self._checker if step.row.kind == "nothing" else None
        if checker is not None and checker.passes(counter, schedule.mask):
            schedule.jump(counter + 1)
            return True
        return schedule.exit() if step.row.kind == "exit" else schedule.park()

    def _waits(self, step: DecodedInstruction, counter: int, lanes: Mask | None) -> bool:
        """Whether lanes that take a branch do so to wait for another thread."""
        if step.target > counter:
            return False
        return self._waiting.is_spin_iteration(
            step.target, self._threads.alive if lanes is None else lanes
        )

    def _defer_group(self, schedule: Scheduler, step: DecodedInstruction, counter: int) -> bool:
        """Let others run before the group that waits; False where nothing is left to run.

        A probe's blocks may wait for blocks that are not among them: it ends there.
        """
        if schedule.counter == step.target:  # else another group runs first
            schedule.defer(counter)
        return self.trace is None or schedule.rounds_in_vain < _MAX_IDLE_ROUNDS

    def _bind(self, index: int, step: DecodedInstruction) -> Action | None:
        """What running an instruction calls; None for one that decides who runs next."""
        kind, operands, threads = step.row.kind, self._operands, self._threads
        match kind:
            case "branch" | "exit" | "barrier":
                return None
            case "nothing":
                if self._checker is None:
                    return _do_nothing
                ordering = self._checker.synchronization_action(step)
                if ordering is None:
                    return None
                action = ordering
            case "lanes":
                action = binding.bind_lanewise(operands, step)
            case "arrive":
                if self._checker is not None:
                    raise PtxError(
                        f"the checks do not follow {step.row.opcode}, in line "
                        f"{step.instruction.source_line}: put bar.sync in its place"
                    )
                action = partial(self._rendezvous.arrive, index)
            case "warp":
                action = binding.bind_collective(
                    operands, step, threads.alive, WARP_SIZE, self._company
                )
                if self._checker is not None:
                    action = self._checker.together(index, step, action)
            case "block":
                size = threads.grid.padded_threads
                action = binding.bind_collective(operands, step, threads.alive, size, self._company)
            case "print":
                action = self._print(step)
            case "trap":
                action = self._trap(index, step)
            case "load":
                action = self._accesses.load(index, step)
            case "store":
                action = self._accesses.store(index, step)
            case "atomic" | "reduce":
                action = self._accesses.atomic(index, step)
            case _:
                raise AssertionError(f"{kind} is replaced before a program is loaded")
        if self._moves is not None:
            action = self._moves.follow(step, action)
        if self._checker is not None:
            action = self._checker.follow(index, step, action)
        return binding.with_guard(operands, index, step, action, self.tally)

    def _trap(self, index: int, step: DecodedInstruction) -> Action:
        """`trap`, or an assertion that failed, with the address of its text."""
        texts = [self._operands.source(each, "u64") for each in step.instruction.operands]

        def run(mask: Mask | None) -> None:
            if self._checker is not None:
                self._checker.report_trap(index, mask)
            where = self._place(step, mask)
            if not texts:
                raise KernelFault(f"the kernel stopped itself (trap), {where}")
            lane = int(np.flatnonzero(self._threads.alive if mask is None else mask)[0])
            address = int(np.broadcast_to(value_of(texts[0]), self.lanes)[lane])
            asserted = printf.read_string(self._memory, address)
            raise KernelFault(f"assertion failed: {source_excerpt(asserted)}, {where}")

        return run

    def _print(self, step: DecodedInstruction) -> Action:
        """`printf`; a probe, whose blocks run again, does not."""
        form, values = (self._operands.source(each, "u64") for each in step.instruction.operands)

        def run(mask: Mask | None) -> None:
            lanes = self._threads.alive if mask is None else mask
            if self.trace is None:
                printf.print_lanes(self._memory, self._spaces, form, values, lanes)

        return run

    def _place(self, step: DecodedInstruction, mask: Mask | None) -> str:
        """Where the first of some lanes is, in words."""
        lane = int(np.flatnonzero(self._threads.alive if mask is None else mask)[0])
        return self._threads.place(lane, step.instruction)


def _do_nothing(mask: Mask | None) -> None:
    return None

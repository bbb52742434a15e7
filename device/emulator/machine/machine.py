"""Runs a program over the lanes of a chunk of blocks, and counts.

Each instruction is bound once to the arrays it works on, so that running it is one call. The
machine knows no opcode: the rows of the instruction table say what to do. Observers watch the run,
and one of them may direct it (`observer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine import binding, printf
from memlab.device.emulator.machine.access_costs import Patterns, Tally
from memlab.device.emulator.machine.access_counting import AccessCounter
from memlab.device.emulator.machine.accesses import Accesses, build_segments
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.memory import GlobalMemory, KernelFault
from memlab.device.emulator.machine.observer import ChunkState, Observer, policy_of
from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.partial_barriers import PartialBarriers, is_partial
from memlab.device.emulator.machine.scheduler import Mask, Scheduler, WaitingGroups, active_warps
from memlab.device.emulator.machine.spin_waits import SpinWaitDetector
from memlab.device.emulator.machine.threads import Grid, Threads
from memlab.device.emulator.machine.warp_synchronization import (
    ParticipatingLanes,
    WarpSynchronization,
)
from memlab.device.emulator.program.lowering import (
    OPERAND_EXCEPTIONS,
    operand_error,
    source_excerpt,
)
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.budget import Deadline


_MAX_IDLE_ROUNDS = 3
"""How often all groups of a trial run may wait without progress before it ends."""


class Chunk:
    """Some blocks of a grid, with the registers and memories of their lanes.

    Attributes:
        program: The kernel.
        tally: The counts of each instruction.
        lanes: How many lanes the blocks take.
    """

    def __init__(
        self,
        program: Program,
        grid: Grid,
        blocks: NDArray[np.int64],
        global_memory: GlobalMemory,
        patterns: Patterns,
        *,
        observers: Sequence[Observer] = (),
        source: Sequence[str] = (),
        deadline: Deadline | None = None,
    ) -> None:
        """Prepare blocks for running.

        Args:
            program: The kernel.
            grid: Its launch geometry and arguments.
            blocks: Coordinates of the blocks, shape (blocks, 3).
            global_memory: The launch's global memory.
            patterns: The launch's address patterns.
            observers: Watch the run; at most one of them is an `ExecutionPolicy`.
            source: The CUDA source's lines, for messages.
            deadline: When to stop.
        """
        self._deadline, self._observers = deadline, tuple(observers)
        self._policy = policy_of(observers)
        self.program = program
        self.tally = Tally.zeros(len(program.steps))
        self._threads = Threads(grid, blocks, source)
        self.lanes = self._threads.lanes
        addresses = {v.name: global_memory.find(v.name).address for v in program.globals}
        self._operands = Operands(program, self._threads, addresses)
        self._memory = global_memory
        self._spaces = build_segments(program, self._threads, global_memory)
        self._participants = ParticipatingLanes()
        chunk = ChunkState(self._threads, self._operands, self._spaces, self._participants)
        if self._policy not in self._observers:
            self._policy.chunk_started(chunk)
        for observer in self._observers:
            observer.chunk_started(chunk)
        access_observers = self._observers
        if self._policy.counts_accesses:
            counter = AccessCounter(self.lanes, self.tally, patterns, self._observers)
            access_observers = (counter, *access_observers)
        self._accesses = Accesses(chunk, self._policy, access_observers)
        self._partial_barriers = PartialBarriers(program.steps, self._operands, self._threads)
        self._actions: list[Action | None] = []
        for index, step in enumerate(program.steps):
            try:
                self._actions.append(self._bind(index, step))
            except OPERAND_EXCEPTIONS as error:
                raise operand_error(step.instruction, source) from error

    def run(self) -> Tally:
        """Run every lane to its end.

        Raises:
            KernelFault: An access outside memory or misaligned, unless the policy leaves such lanes
                out: the message names source line, block and thread. Or the kernel stopped itself.
            OutOfTime: The deadline passed: the message names a thread and where it was.
        """
        with np.errstate(all="ignore"):
            self._run()
        return self.tally

    def _run(self) -> None:
        steps = self.program.steps
        partial_release = self._partial_barriers.open if any(map(is_partial, steps)) else None
        self._spin_waits = SpinWaitDetector(self.program, self._operands, self._spaces)
        schedule = Scheduler(
            self._threads.alive,
            self._policy.barrier_release(partial_release),
            self._threads.grid.padded_threads,
            self.program.order,
            self._spin_waits.warps_to_resume,
            self._release_warp_waits,
        )
        self._warp_synchronization = WarpSynchronization(
            steps, self._operands, schedule.live, self._participants
        )
        for observer in self._observers:
            observer.run_started(schedule)
        # How many lanes and warps more execute an instruction than the one before it.
        lanes_change, warps_change = [0] * (len(steps) + 1), [0] * (len(steps) + 1)
        try:
            self._run_groups(schedule, lanes_change, warps_change)
        except KernelFault:
            # A block that runs several times does too often what it should do once: the launch
            # itself shows whether the kernel is at fault.
            if not self._policy.is_trial:
                raise
        lanes = np.cumsum(lanes_change[:-1])
        warps = np.cumsum(warps_change[:-1])
        self.tally.lanes = [a + int(b) for a, b in zip(self.tally.lanes, lanes, strict=True)]
        self.tally.warps = [a + int(b) for a, b in zip(self.tally.warps, warps, strict=True)]

    def _release_warp_waits(
        self, waiting: WaitingGroups, held: Mask
    ) -> tuple[WaitingGroups, WaitingGroups]:
        return self._warp_synchronization.execute_ready(waiting, held, self._actions)

    def _run_groups(
        self, schedule: Scheduler, lanes_change: list[int], warps_change: list[int]
    ) -> None:
        """Run group after group, noting where more or fewer lanes and warps begin to execute."""
        steps, actions, end = self.program.steps, self._actions, len(self.program.steps)
        deadline, observers = self._deadline, self._observers
        must_wait, may_wait = self._warp_synchronization.must_wait, self._warp_synchronization.steps
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
                if mask is not None and counter in may_wait and must_wait(counter, mask):
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
            for observer in observers:
                observer.range_executed(start, counter + at_control, mask)
            schedule.counter = counter
            if at_control:
                going = self._transfer(schedule, steps[counter], counter, lanes)
            elif counter < end:
                schedule.merge()
            else:
                self._control_transferred(end, schedule.mask)
                going = schedule.exit()

    def _transfer(
        self, schedule: Scheduler, step: DecodedInstruction, counter: int, lanes: int
    ) -> bool:
        """Execute a branch, an exit, a barrier or a wait of a warp; False when no group is left."""
        kind, guard = step.row.kind, step.instruction.guard
        if kind == "warp":
            return schedule.wait_for_warp()
        if guard is not None:
            for observer in self._observers:
                observer.guard_read(guard, schedule.mask)
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
                if kind == "branch":
                    self._control_transferred(counter, taken)
                    spins = self._spins(step, counter, taken)
                    schedule.split(taken, step.target)
                    return not spins or self._defer_group(schedule, step, counter)
                schedule.split(taken, counter)  # those taken lie lowest: they run on from here
        if kind == "branch":
            self._control_transferred(counter, schedule.mask)
            spins = self._spins(step, counter, schedule.mask)
            schedule.jump(step.target)
            return not spins or self._defer_group(schedule, step, counter)
        if kind == "exit":
            self._control_transferred(counter, schedule.mask)
            return schedule.exit()
        if kind == "nothing" and self._policy.may_pass(counter, schedule.mask):
            schedule.jump(counter + 1)
            return True
        return schedule.park()

    def _control_transferred(self, index: int, mask: Mask | None) -> None:
        for observer in self._observers:
            observer.control_transferred(index, mask)

    def _spins(self, step: DecodedInstruction, counter: int, mask: Mask | None) -> bool:
        """Whether lanes that take a branch do so to wait for another thread."""
        if step.target > counter:
            return False
        return self._spin_waits.is_spin_iteration(
            step.target, self._threads.alive if mask is None else mask
        )

    def _defer_group(self, schedule: Scheduler, step: DecodedInstruction, counter: int) -> bool:
        """Let others run before the group that waits; False where the run ends.

        The blocks of a trial run may wait for blocks that do not run: then it ends.
        """
        if schedule.counter == step.target:  # else another group runs first
            schedule.defer(counter)
        return not self._policy.is_trial or schedule.idle_rounds < _MAX_IDLE_ROUNDS

    def _bind(self, index: int, step: DecodedInstruction) -> Action | None:
        """The action of an instruction; None for one that decides which lanes run next."""
        kind, operands, threads = step.row.kind, self._operands, self._threads
        match kind:
            case "branch" | "exit" | "barrier":
                return None
            case "nothing":
                ordering = self._policy.bind_ordering(step)
                if ordering is None:
                    return None
                action = ordering
            case "lanes":
                action = binding.bind_lanewise(operands, step)
            case "arrive":
                action = partial(self._partial_barriers.arrive, index)
            case "warp" | "block":
                size = WARP_SIZE if kind == "warp" else threads.grid.padded_threads
                action = binding.bind_collective(
                    operands, step, threads.alive, size, self._participants
                )
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
        for observer in self._observers:
            action = observer.instruction_bound(index, step, action)
        return binding.with_guard(operands, index, step, action, self.tally)

    def _trap(self, index: int, step: DecodedInstruction) -> Action:
        """The action of `trap`, or of a failed assertion, whose operand is its text's address."""
        texts = [self._operands.source(operand, "u64") for operand in step.instruction.operands]

        def run(mask: Mask | None) -> None:
            for observer in self._observers:
                observer.trap_reached(index, mask)
            where = self._place(step, mask)
            if not texts:
                raise KernelFault(f"the kernel stopped itself (trap), {where}")
            lane = int(np.flatnonzero(self._threads.alive if mask is None else mask)[0])
            address = int(np.broadcast_to(value_of(texts[0]), self.lanes)[lane])
            asserted = printf.read_string(self._memory, address)
            raise KernelFault(f"assertion failed: {source_excerpt(asserted)}, {where}")

        return run

    def _print(self, step: DecodedInstruction) -> Action:
        """The action of `printf`; a trial run prints nothing."""
        form, values = (
            self._operands.source(operand, "u64") for operand in step.instruction.operands
        )

        def run(mask: Mask | None) -> None:
            lanes = self._threads.alive if mask is None else mask
            if not self._policy.is_trial:
                printf.print_lanes(self._memory, self._spaces, form, values, lanes)

        return run

    def _place(self, step: DecodedInstruction, mask: Mask | None) -> str:
        """The thread and the source line of the first of some lanes, for a message."""
        lane = int(np.flatnonzero(self._threads.alive if mask is None else mask)[0])
        return self._threads.place(lane, step.instruction)

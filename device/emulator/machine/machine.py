"""Runs a program over the lanes of a chunk of blocks, and counts.

The machine code runs stretches and schedules groups of lanes. Python does what is rare, and what
observers ask for (`observer`): the instructions that they watch are executed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import SPACES
from memlab.device.emulator.codegen.program_code import native_program
from memlab.device.emulator.codegen.schedule_code import Status
from memlab.device.emulator.codegen.stretches import (
    CONTROL_KINDS,
    INTERPRETED_KINDS,
    waits_for_members,
)
from memlab.device.emulator.codegen.use_code import NO_OTHER_WRITERS
from memlab.device.emulator.machine import printf
from memlab.device.emulator.machine.access_watch import AccessWatch
from memlab.device.emulator.machine.collective import execute_collective
from memlab.device.emulator.machine.context import (
    ChunkContext,
    Workspace,
    lanes_to_words,
    words_to_lanes,
)
from memlab.device.emulator.machine.flow_observation import FlowObservation
from memlab.device.emulator.machine.memory import (
    GlobalMemory,
    KernelFault,
    Mask,
    build_segments,
    find_fault,
)
from memlab.device.emulator.machine.observer import (
    Action,
    ChunkState,
    Observer,
    do_nothing,
    policy_of,
)
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.machine.partial_barriers import PartialBarriers
from memlab.device.emulator.machine.scheduler import Scheduler, WaitingGroups
from memlab.device.emulator.machine.spin_waits import SpinWaitDetector
from memlab.device.emulator.machine.tally import Tally, tally_of
from memlab.device.emulator.machine.threads import Grid, Threads
from memlab.device.emulator.machine.warp_synchronization import (
    ParticipatingLanes,
    WarpSynchronization,
)
from memlab.device.emulator.program.lowering import source_excerpt
from memlab.device.emulator.program.program import DecodedInstruction, Program, destinations
from memlab.device.emulator.ptx.parser import Register
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.budget import Deadline

_MAX_IDLE_ROUNDS = 3
"""How often all groups of a trial run may wait without progress before it ends."""
_OWN_SPACES = ("shared", "local", "param::func")
"""State spaces that belong to the blocks and threads of a chunk."""
_ALONE = 1, NO_OTHER_WRITERS
"""The writers of a chunk that runs alone."""
_WORK_BETWEEN_CHECKS = 200_000
"""Warps times stretches that run before the time limit is checked: some 20 to 100 ms."""


class Chunk:
    """Some blocks of a grid, with the registers and memories of their lanes.

    Attributes:
        program: The kernel.
        lanes: How many lanes the blocks take.
    """

    def __init__(
        self,
        program: Program,
        grid: Grid,
        blocks: NDArray[np.int64],
        global_memory: GlobalMemory,
        workspace: Workspace,
        *,
        writers: tuple[int, int] | None = None,
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
            workspace: Memory that no other chunk uses at the same time.
            writers: Number of these blocks as writers to global memory, and the lowest number of
                the blocks that run at the same time (`GlobalMemory.new_writers`); None where these
                blocks run alone.
            observers: Watch the run; at most one of them is an `ExecutionPolicy`.
            source: The CUDA source's lines, for messages.
            deadline: When to stop.

        Raises:
            PtxError: The operands of an instruction do not suit its opcode.
        """
        self._deadline, self._observers = deadline, tuple(observers)
        self._policy = policy_of(observers)
        self.program, self._memory, self._workspace = program, global_memory, workspace
        workspace.chunk = None
        self._threads = Threads(grid, blocks, source)
        self.lanes = self._threads.lanes
        self._segments = build_segments(program, self._threads, global_memory)
        everyone = tuple(dict.fromkeys((self._policy, *observers)))
        watched = {index for o in everyone for index in o.watched_instructions(program)}
        self._native = native_program(program, watched, source)
        addresses = {v.name: global_memory.find(v.name).address for v in program.globals}
        self._context = ChunkContext(
            self._native,
            self._threads,
            self._segments,
            global_memory,
            workspace,
            writers or _ALONE,
        )
        self._operands = Operands(program, self._native.layout, self._context, addresses)
        self._participants = ParticipatingLanes()
        chunk = ChunkState(
            self._threads, self._operands, self._segments, self._participants, self._context
        )
        for observer in everyone:
            observer.chunk_started(chunk)
        has_partial_barriers = self._native.has_partial_barriers
        opens = self._partial_barriers.open if has_partial_barriers else None
        release = self._policy.barrier_release(opens)
        self._context["opens_barriers"] = release is None
        loops = self._native.polling_loops
        self._keeps_state = bool(self._observers or has_partial_barriers or loops)
        self._spin_waits = SpinWaitDetector(loops, self._operands, self._segments)
        self._scheduler = Scheduler(
            self._native,
            self._context,
            grid.padded_threads,
            release,
            self._spin_waits.warps_to_resume,
            self._release_warp_waits,
        )
        self._flow = FlowObservation(self._native, self._context, self._scheduler, self._observers)
        self._may_wait: set[int] = set()
        watch = AccessWatch(chunk, self._policy, self._observers)
        executed = [index for index in sorted(watched) if not self._is_control(index)]
        self._actions = {index: self._bind(index, watch) for index in executed}
        self._context.interrupt_at(sorted(watched))

    # Most programs need neither of these: making them takes longer than short kernels run.

    @cached_property
    def _partial_barriers(self) -> PartialBarriers:
        return PartialBarriers(self.program.steps, self._operands, self._threads)

    @cached_property
    def _warp_synchronization(self) -> WarpSynchronization:
        return WarpSynchronization(
            self.program.steps, self._operands, self._scheduler, self._participants
        )

    def run(self) -> Tally:
        """Run every lane to its end, and count; the errors are those of `execute`."""
        self.execute()
        return tally_of(self._native, self._context)

    def take_tally(self) -> Tally:
        """The counts of all executions since the last time."""
        tally = tally_of(self._native, self._context)
        self._context.forget_counts()
        return tally

    def restart(
        self, blocks: NDArray[np.int64], writers: tuple[int, int] | None, deadline: Deadline
    ) -> bool:
        """Prepare other blocks for running.

        Returns:
            Whether that is possible: there are no more blocks than at first, the last ones have
            ended, and no other chunk has used the workspace since. Nothing watches the blocks, and
            none of their barriers and loops leaves anything behind.
        """
        last, lanes = self._workspace.chunk, len(blocks) * self._threads.grid.padded_threads
        if self._keeps_state or lanes > self.lanes or last is None or last() is not self:
            return False
        self._threads.blocks, self._deadline = blocks, deadline
        for space in _OWN_SPACES:
            self._segments[space].data[:] = 0
        self._context.restart(self._threads, self._memory, writers or _ALONE)
        return True

    def execute(self) -> None:
        """Run every lane to its end.

        Raises:
            KernelFault: An access outside memory or misaligned, unless the policy leaves such lanes
                out: the message names source line, block and thread. Or the kernel stopped itself.
            OutOfTime: The deadline passed: the message names a thread and where it was.
        """
        self._workspace.chunk = None
        for observer in self._observers:
            observer.run_started(self._scheduler)
        try:
            with np.errstate(all="ignore"):
                self._run()
        except KernelFault:
            # A block that runs several times does too often what it should do once: the launch
            # itself shows whether the kernel is at fault.
            if not self._policy.is_trial:
                raise
        finally:
            for use in ("loaded", "stored"):
                self._memory.arrays[use] |= self._context.arrays[use]
        self._workspace.chunk = ref(self)

    @property
    def has_conflict(self) -> bool:
        """Whether a store met one of other blocks that run at the same time."""
        return bool(self._context["conflict"])

    # --- Groups ----------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run group after group."""
        context, scheduler, flow = self._context, self._scheduler, self._flow
        status = Status.RUNNING
        while status != Status.DONE:
            if flow.is_needed or scheduler.idle_rounds:
                status = Status(context.call("advance"))
                if status == Status.RUNNING:
                    flow.advanced()
                    scheduler.note_progress()
                    status = Status(context.call("transfer"))
            else:
                context["work_left"] = _WORK_BETWEEN_CHECKS
                status = Status(context.call("run"))
            if status != Status.RUNNING:
                status = self._resolve(status)
            if self._deadline is not None and self._deadline.has_passed():
                raise self._deadline.error(self._place(scheduler.counter, scheduler.running))

    def _resolve(self, status: Status) -> Status:
        """Do what the machine code leaves to Python."""
        context, scheduler = self._context, self._scheduler
        match status:
            case Status.FAULT:
                raise self._fault()
            case Status.WAITING:
                return scheduler.release()
            case Status.INCOMPLETE:
                counter = scheduler.counter
                if self._warp_synchronization.must_wait(counter, scheduler.running):
                    context.call("count_range", counter, counter + 1)
                    self._flow.executed(counter, counter + 1, ends=True)
                    return scheduler.wait_for_warp()
                context["has_arrived"] = 1
            case Status.POLLS:
                return self._branch_back()
            case Status.AT_PYTHON:
                return self._execute_here()
            case Status.DONE:
                return status
        return Status.RUNNING

    def _branch_back(self) -> Status:
        """Lanes branch back to the head of a loop that polls memory: they may spin."""
        context, scheduler = self._context, self._scheduler
        counter, slot = scheduler.counter, self._native.slots[context["slot"]]
        step, taken = self.program.steps[counter], words_to_lanes(context.taken)
        for observer in self._observers:
            observer.control_transferred(counter, taken)
        spins = self._spin_waits.is_spin_iteration(step.target, taken)
        if np.array_equal(context.taken, context.mask):
            context.call("jump", int(slot["target"]))
        else:
            context.call("split", int(slot["target"]), int(slot["next"]))
        if not spins:
            return Status.RUNNING
        # The blocks of a trial run may wait for blocks that do not run: then it ends.
        status = Status.RUNNING
        if scheduler.counter == step.target:  # else another group runs first
            status = scheduler.defer(counter)
        ends = self._policy.is_trial and scheduler.idle_rounds >= _MAX_IDLE_ROUNDS
        return Status.DONE if ends else status

    # --- Instructions that Python executes -----------------------------------------------------

    def _execute_here(self) -> Status:
        """Execute an instruction that is rare, or that observers watch."""
        scheduler, context = self._scheduler, self._context
        counter, mask = scheduler.counter, scheduler.running
        if self._is_control(counter):
            self._flow.control_reached([o for o in self._observers if not o.observes_flow])
            status = Status(context.transfer_here())
            return status if status == Status.RUNNING else self._resolve(status)
        if counter in self._may_wait:
            return self._wait_here(counter, mask)
        step, watched = self.program.steps[counter], self._actions.get(counter)
        if watched is not None and waits_for_members(step):
            lacking = (context.mask != 0) & (context.live & ~context.mask != 0)
            if lacking.any() and self._warp_synchronization.must_wait(counter, mask):
                self._flow.executed(counter, counter + 1, ends=True)
                return scheduler.wait_for_warp()
        chosen = self._guarded_lanes(counter, step, mask)
        if chosen.any():
            (watched or self._interpreted(counter, step))(chosen)
        self._flow.executed_here()
        return Status(context.call("proceed"))

    def _wait_here(self, counter: int, mask: Mask) -> Status:
        """Execute an instruction at which the policy may let lanes wait."""
        scheduler, context = self._scheduler, self._context
        guard = self.program.steps[counter].instruction.guard
        slot = context["slot"]
        following = int(self._native.slots[slot]["next"])
        self._flow.executed(counter, counter + 1, ends=True)
        if guard is not None:
            for observer in self._observers:
                observer.guard_read(guard, mask)
            count = context.call("evaluate_guard")
            if 0 < count < context["lanes_running"]:
                return Status(context.call("split", slot, following))
            if not count:
                return Status(context.call("proceed"))
        if self._policy.may_pass(counter, mask):
            return Status(context.call("proceed"))
        scheduler.note_progress()
        return scheduler.continue_with(Status(context.call("park", following)))

    def _is_control(self, index: int) -> bool:
        steps = self.program.steps
        return index == len(steps) or steps[index].row.kind in CONTROL_KINDS

    def _guarded_lanes(self, index: int, step: DecodedInstruction, mask: Mask) -> Mask:
        """The lanes whose guard holds; the others are counted as switched off."""
        if step.instruction.guard is None:
            return mask
        count = self._context.call("evaluate_guard")
        self._context.lanes_off[index] += self._context["lanes_running"] - count
        return words_to_lanes(self._context.taken)

    def _bind(self, index: int, watch: AccessWatch) -> Action:
        """The action of an instruction that observers watch."""
        step = self.program.steps[index]
        kind = step.row.kind
        if kind == "nothing":
            ordering = self._policy.bind_ordering(step)
            action = do_nothing if ordering is None else ordering
            if ordering is None:
                self._may_wait.add(index)
        elif kind in ("load", "store", "atomic", "reduce"):
            action = watch.action(index, step, self._execute)
        elif kind in INTERPRETED_KINDS:
            action = self._interpreted(index, step)
        else:
            action = partial(self._execute, index)
        for observer in self._observers:
            action = observer.instruction_bound(index, step, action)
        return action

    def _execute(self, index: int, mask: Mask) -> None:
        """Execute an instruction that is a stretch of its own, by its machine code.

        Raises:
            KernelFault: It accesses memory outside its arrays.
        """
        step = self.program.steps[index]
        if step.row.kind == "warp" and self._participants.lanes is not None:
            self._execute_together(step, mask)
            return
        words = lanes_to_words(mask)
        number = self._native.slot_at[index]
        slot = self._native.slots[number : number + 1]
        if self._context.call("execute", slot.ctypes.data, words.ctypes.data):
            raise self._fault()
        self._context["clock"] += int(slot["clock"][0])

    def _execute_together(self, step: DecodedInstruction, mask: Mask) -> None:
        """Execute a collective with the operands that several groups bring to it."""
        participants = self._participants
        assert participants.lanes is not None
        results = execute_collective(step.row.opcode, participants.lanes, participants.sources)
        for operand, result in zip(destinations(step), results, strict=False):
            assert isinstance(operand, Register)
            self._operands.write(operand.name, result, mask)

    def _release_warp_waits(
        self, waiting: WaitingGroups, held: Mask
    ) -> tuple[WaitingGroups, WaitingGroups]:
        def action(index: int) -> Action:
            return self._actions.get(index) or partial(self._execute, index)

        return self._warp_synchronization.execute_ready(waiting, held, action)

    def _interpreted(self, index: int, step: DecodedInstruction) -> Action:
        """The action of an instruction of `INTERPRETED_KINDS`."""
        match step.row.kind:
            case "arrive":
                return partial(self._partial_barriers.arrive, index)
            case "block":
                return partial(self._vote_of_blocks, step)
            case "print":
                return partial(self._print, step)
            case _:
                return partial(self._trap, index, step)

    def _vote_of_blocks(self, step: DecodedInstruction, mask: Mask) -> None:
        """`bar.red` after its barrier: a vote of the lanes of each block."""
        to, source = step.instruction.operands
        shape = (-1, self._threads.grid.padded_threads)
        votes = np.broadcast_to(self._operands.source(source, "pred")(), self.lanes)
        function = step.row.function
        assert function is not None
        result = function(mask.reshape(shape), votes.reshape(shape))
        assert isinstance(to, Register)
        self._operands.write(
            to.name, np.broadcast_to(result, mask.reshape(shape).shape).reshape(-1), mask
        )

    def _trap(self, index: int, step: DecodedInstruction, mask: Mask) -> None:
        """`trap`, or a failed assertion, whose operand is its text's address."""
        for observer in self._observers:
            observer.trap_reached(index, mask)
        where = self._place(index, mask)
        if not step.instruction.operands:
            raise KernelFault(f"the kernel stopped itself (trap), {where}")
        text = self._operands.source(step.instruction.operands[0], "u64")()
        lane = int(np.flatnonzero(mask)[0])
        address = int(np.broadcast_to(text, self.lanes)[lane])
        asserted = printf.read_string(self._memory, address)
        raise KernelFault(f"assertion failed: {source_excerpt(asserted)}, {where}")

    def _print(self, step: DecodedInstruction, mask: Mask) -> None:
        """`printf`; a trial run prints nothing."""
        if not self._policy.is_trial:
            form, values = (self._operands.source(o, "u64") for o in step.instruction.operands)
            printf.print_lanes(self._memory, self._segments, form(), values(), mask)

    # --- Messages ------------------------------------------------------------------------------

    def _fault(self) -> KernelFault:
        """The error for the access at fault that the machine code found."""
        fault = self._context.record["fault"]
        step = self.program.steps[int(fault["index"])]
        segment = self._segments[SPACES[int(fault["space"])]]
        lanes = np.flatnonzero(int(fault["mask"]) >> np.arange(WARP_SIZE) & 1)
        site = self._native.sites[self._native.sites["index"] == fault["index"]][0]
        verb = "read" if step.row.kind == "load" else "write"
        found = find_fault(segment, fault["address"][lanes], int(site["size"]), verb)
        lane = int(fault["warp"]) * WARP_SIZE + int(lanes[found.lane])
        return KernelFault(f"{found}, {self._threads.place(lane, step.instruction)}")

    def _place(self, index: int, mask: Mask) -> str:
        """The thread and the source line of the first of some lanes, for a message."""
        step = self.program.steps[min(index, len(self.program.steps) - 1)]
        return self._threads.place(int(np.flatnonzero(mask)[0]), step.instruction)

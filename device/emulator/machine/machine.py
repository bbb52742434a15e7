"""Runs a program over the lanes of a chunk of blocks, and counts.

The machine code runs stretches and schedules groups of lanes. Python does what is rare, and what
observers ask for (`observer`): the instructions that they watch are executed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import proxy, ref

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import SPACES
from memlab.device.emulator.codegen.program_code import native_program
from memlab.device.emulator.codegen.schedule_code import Status
from memlab.device.emulator.codegen.stretches import CONTROL_KINDS, waits_for_members
from memlab.device.emulator.codegen.use_code import NO_OTHER_WRITERS
from memlab.device.emulator.machine import printf
from memlab.device.emulator.machine.access_watch import watch_access
from memlab.device.emulator.machine.context import (
    ChunkContext,
    Workspace,
    lanes_to_words,
    words_to_lanes,
)
from memlab.device.emulator.machine.endless_waits import EndlessWaits
from memlab.device.emulator.machine.heap import heap_action
from memlab.device.emulator.machine.memory import (
    GlobalMemory,
    KernelFault,
    Lanes,
    Mask,
    build_segments,
    find_fault,
)
from memlab.device.emulator.machine.observer import Action, Observer, policy_of
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.machine.partial_barriers import PartialBarriers
from memlab.device.emulator.machine.scheduler import Scheduler
from memlab.device.emulator.machine.spin_waits import SpinWaitDetector
from memlab.device.emulator.machine.tally import ChunkCounts, Tally, WarpWork
from memlab.device.emulator.machine.threads import Grid, Threads, cluster_peers, cluster_ranks
from memlab.device.emulator.machine.warp_synchronization import WarpSynchronization
from memlab.device.emulator.program.call_stack import STACK_LIMIT_BYTES
from memlab.device.emulator.program.lowering import source_excerpt
from memlab.device.emulator.program.program import GRID_WORKSPACE, DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import Register
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.budget import Deadline

TRAPS = {
    "trap.stack": f"stack overflow: calls are nested so deep that their frames take more than the "
    f"{STACK_LIMIT_BYTES} bytes of a thread (cudaLimitStackSize)",
    "trap.call": "illegal call: the pointer holds the address of no function that fits the call",
}
"""Why a thread cannot go on, by the opcode at which it stops."""
_MAX_IDLE_ROUNDS = 3
"""How often all groups of a trial run may wait without progress before it ends."""
_BARRIER_PHASE = np.uint32(1 << 31)
"""The bit of `GRID_WORKSPACE` that changes when all blocks have arrived."""
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
        threads: The thread of each lane.
        lanes: How many lanes the blocks take.
        segments: The state spaces by name.
        context: The memory that the chunk shares with its machine code.
        operands: The registers.
        warp_synchronization: The lanes that execute the current warp instruction together.
        scheduler: The groups of lanes.
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
        cuts: Collection[int] = (),
        source: Sequence[str] = (),
        deadline: Deadline | None = None,
        work: WarpWork | None = None,
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
            cuts: Instructions that are stretches of their own, besides those that are watched.
            source: The CUDA source's lines, for messages.
            deadline: When to stop.
            work: Is told what each warp has executed; None for nothing.

        Raises:
            PtxError: The operands of an instruction do not suit its opcode.
        """
        self._deadline, self._work = deadline, work
        self._observers: tuple[Observer, ...] = tuple(observers)
        self._policy = policy_of(observers)
        self._followers = [observer for observer in observers if observer.observes_flow]
        self.program, self._memory, self._workspace = program, global_memory, workspace
        workspace.chunk = None
        self.threads = Threads(grid, blocks, source)
        self.lanes = self.threads.lanes
        self.segments = build_segments(program, self.threads, global_memory)
        watched = sorted({i for o in observers for i in o.watched_instructions(program)})
        self._native = native = native_program(program, {*watched, *cuts}, source)
        self.context = ChunkContext(native, self.threads, self.segments, global_memory, workspace)
        self.context.begin(self.threads, writers or _ALONE)
        self.context.interrupt_at(watched)
        addresses = {v.name: global_memory.find(v.name).address for v in program.globals}
        self.operands = Operands(program, self.context, addresses)
        self.warp_synchronization = WarpSynchronization(self)
        loops = native.polling_loops
        self._lacks_blocks = program.waits_for_grid and len(blocks) < math.prod(grid.grid)
        self._keeps_state = bool(observers or native.has_partial_barriers or loops)
        self._spin_waits = SpinWaitDetector(loops, self.operands, self.segments)
        self._endless_waits = EndlessWaits(program.steps, loops, self.operands, self.segments)
        self.scheduler = Scheduler(
            native,
            self.context,
            grid.padded_threads,
            self._spin_waits.lanes_to_resume,
            self.warp_synchronization.execute_ready,
            partial(Chunk._end_endless_waits, proxy(self)),
        )
        for observer in observers:
            observer.chunk_started(self)
        opens = self._partial_barriers.open if native.has_partial_barriers else None
        self.scheduler.barrier_release = self._policy.barrier_release(opens)
        self.context["opens_barriers"] = self.scheduler.barrier_release is None
        self._slots: dict[int, tuple[int, int]] = {}  # of executed instructions: address, clocks
        self._watched = frozenset(watched)
        self._actions: dict[int, Action] = {}  # of instructions that Python has executed

    @cached_property
    def _partial_barriers(self) -> PartialBarriers:
        return PartialBarriers(self)

    @cached_property
    def cluster_lanes(self) -> tuple[Lanes, Lanes, Lanes]:
        """The block of each lane, its rank, and the numbers of blocks by block and rank."""
        blocks, cluster = self.threads.blocks, self.threads.grid.cluster
        block_of_lane = np.arange(self.lanes) // self.threads.grid.padded_threads
        own = cluster_ranks(blocks, cluster)[block_of_lane]
        return block_of_lane, own, cluster_peers(blocks, cluster)

    def _end_endless_waits(self, waiting: Mapping[int, Mask]) -> None:
        """End the run where all groups wait for mbarriers that nobody completes.

        Raises:
            KernelFault: They do.
        """
        found = self._endless_waits.find(waiting)
        if found is not None:
            self._policy.wait_is_endless(*found)
            lane = int(np.flatnonzero(found.lanes)[0])
            place = self.threads.place(lane, self.program.steps[found.step].instruction)
            raise KernelFault(f"a wait never ends: {found.reason}, {place}")

    def take_counts(self) -> ChunkCounts:
        """The counts of all executions since the last time."""
        return ChunkCounts(self._native, self.context.counts.take())

    def take_tally(self) -> Tally:
        """The tally of all executions since the last time."""
        return self.take_counts().tally()

    def restart(
        self, blocks: NDArray[np.int64], writers: tuple[int, int] | None, deadline: Deadline
    ) -> bool:
        """Prepare other blocks for running.

        Returns:
            Whether that is possible: there are no more blocks than at first, the last ones have
            ended, and no other chunk has used the workspace since. Nothing watches the blocks, and
            none of their barriers and loops leaves anything behind.
        """
        last, lanes = self._workspace.chunk, len(blocks) * self.threads.grid.padded_threads
        if self._keeps_state or lanes > self.lanes or last is None or last() is not self:
            return False
        self.threads.blocks, self._deadline = blocks, deadline
        for space in _OWN_SPACES:
            self.segments[space].data[:] = 0
        self.context.begin(self.threads, writers or _ALONE)
        return True

    def execute(self) -> None:
        """Run every lane to its end.

        Raises:
            KernelFault: An access outside memory or misaligned, unless the policy leaves such lanes
                out: the message names source line, block and thread. Or the kernel stopped itself.
            OutOfTime: The deadline passed: the message names a thread and where it was.
        """
        self._workspace.chunk = None
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
                self._memory.arrays[use] |= self.context.arrays[use]
            # What refers to the chunk would keep its memory until a collection of garbage.
            self._actions.clear()
            self._observers, self._followers = (), []
        self._workspace.chunk = ref(self)
        if self._work is not None:
            self._work.note(self.threads.blocks, self.context.warp_work)

    @property
    def has_conflict(self) -> bool:
        """Whether a store met one of other blocks that run at the same time."""
        return bool(self.context["conflict"])

    # --- Groups ----------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run group after group."""
        context, scheduler = self.context, self.scheduler
        status = Status.RUNNING
        while status != Status.DONE:
            if status != Status.RUNNING:
                status = self._resolve(status)
            elif self._followers or scheduler.idle_rounds:
                status = self._step()
            else:
                context["work_left"] = _WORK_BETWEEN_CHECKS
                status = Status(context.call("run"))
            if self._deadline is not None and self._deadline.has_passed():
                raise self._deadline.error(self._place(scheduler.counter, scheduler.running))

    def _step(self) -> Status:
        """Execute what lies at the running group's slot, and tell those who follow the flow."""
        context, scheduler = self.context, self.scheduler
        start, mask = scheduler.counter, scheduler.running
        stop = max(int(self._native.slots[context["slot"]]["stop"]), start + 1)
        status = Status(context.call("advance"))
        if status == Status.RUNNING:
            scheduler.note_progress()
            status = self._resolve(Status(context.call("transfer")))
            self._tell_range(start, stop, mask)
        return status

    def _tell_range(self, start: int, stop: int, mask: Mask) -> None:
        """Tell those who follow the flow what lanes have executed."""
        if start < len(self.program.steps):
            for observer in self._followers:
                observer.range_executed(start, stop, mask)

    def _resolve(self, status: Status) -> Status:
        """Do what the machine code leaves to Python."""
        match status:
            case Status.FAULT:
                raise self._fault()
            case Status.WAITING:
                return self.scheduler.release()
            case Status.INCOMPLETE:
                index, mask = self.scheduler.counter, self.scheduler.running
                if self.warp_synchronization.must_wait(index, mask):
                    self.context.call("count_range", index, index + 1)
                    self._tell_range(index, index + 1, mask)
                    return self.scheduler.wait_for_warp()
                self.context["has_arrived"] = 1
            case Status.POLLS:
                return self._branch_back()
            case Status.AT_PYTHON:
                return self._execute_here()
            case Status.DONE:
                return status
        return Status.RUNNING

    def _branch_back(self) -> Status:
        """Lanes branch back to the head of a loop that polls memory: they may spin."""
        context, scheduler = self.context, self.scheduler
        counter, slot = scheduler.counter, self._native.slots[context["slot"]]
        head = self.program.steps[counter].target
        spins = self._spin_waits.is_spin_iteration(head, words_to_lanes(context.taken))
        if np.array_equal(context.taken, context.mask):
            context.call("jump", int(slot["target"]))
        else:
            context.call("split", int(slot["target"]), int(slot["next"]))
        if not spins:
            return Status.RUNNING
        # The blocks of a trial run may wait for blocks that do not run: then it ends.
        status = Status.RUNNING
        if scheduler.counter == head:  # else another group runs first
            status = self._resolve(scheduler.defer(counter))
        if scheduler.idle_rounds and self._lacks_blocks:
            self._open_grid_barrier()
        ends = self._policy.is_trial and scheduler.idle_rounds >= _MAX_IDLE_ROUNDS
        return Status.DONE if ends else status

    def _open_grid_barrier(self) -> None:
        """Let the blocks of the grid that do not run arrive at its barrier."""
        barrier = self._memory.bytes_of(GRID_WORKSPACE.name).view(np.uint32)[1:]
        barrier[0] = ~barrier[0] & _BARRIER_PHASE
        self.scheduler.idle_rounds = 0

    # --- Instructions that Python executes -----------------------------------------------------

    def _execute_here(self) -> Status:
        """Execute an instruction that is rare, or that observers watch."""
        scheduler, context = self.scheduler, self.context
        index, mask = scheduler.counter, scheduler.running
        if self._is_control(index):
            self._guarded_lanes(index, mask)
            return Status(context.transfer_here())
        step = self.program.steps[index]
        if step.row.kind == "nothing" and self._policy.holds_lanes(step):
            return self._wait_here(index, mask)
        if waits_for_members(step) and self.warp_synchronization.must_wait(index, mask):
            return scheduler.wait_for_warp()
        if step.instruction.guard is not None:  # the other lanes are counted as switched off
            count = context.call("evaluate_guard")
            context.counts.lanes_off[index] += context["lanes_running"] - count
            mask = words_to_lanes(context.taken)
        if mask.any():
            self.action(index)(mask)
        return Status(context.call("proceed"))

    def _wait_here(self, index: int, mask: Mask) -> Status:
        """Execute an instruction at which the policy may let lanes wait."""
        context, slot = self.context, self.context["slot"]
        following = int(self._native.slots[slot]["next"])
        count = self._guarded_lanes(index, mask)
        if 0 < count < context["lanes_running"]:
            return Status(context.call("split", slot, following))
        if not count or self._policy.may_pass(index, mask):
            return Status(context.call("proceed"))
        self.scheduler.note_progress()
        return Status(context.call("park", following))

    def _is_control(self, index: int) -> bool:
        steps = self.program.steps
        return index == len(steps) or steps[index].row.kind in CONTROL_KINDS

    def _guarded_lanes(self, index: int, mask: Mask) -> int:
        """Tell observers of lanes at an instruction of control; counts those whose guard holds."""
        count = self.context.call("evaluate_guard")
        taken = words_to_lanes(self.context.taken)
        for observer in self._observers:
            observer.control_reached(index, mask, taken)
        return count

    def action(self, index: int) -> Action:
        """What executes an instruction that is a stretch of its own."""
        action = self._actions.get(index)
        if action is None:
            action = self._own_action(index)
            if index in self._watched:
                for observer in self._observers:
                    action = observer.instruction_bound(index, self.program.steps[index], action)
            self._actions[index] = action
        return action

    def _own_action(self, index: int) -> Action:
        """What executes an instruction, without what observers add."""
        step = self.program.steps[index]
        execute = partial(self._execute, index)
        match step.row.kind:
            case "nothing":
                return lambda mask: None
            case "load" | "store" | "atomic" | "reduce":
                return watch_access(index, step, self, self._policy, self._observers, execute)
            case "arrive":
                return partial(self._partial_barriers.arrive, index)
            case "block":
                return partial(self._vote_of_blocks, step)
            case "print":
                return partial(self._print, step)
            case "trap":
                return partial(self._trap, index, step)
            case "heap":
                return heap_action(
                    step, self.operands, self._memory.heap, partial(self._no_allocation, index)
                )
        return execute

    def _execute(self, index: int, mask: Mask) -> None:
        """Execute an instruction by its machine code.

        Raises:
            KernelFault: It accesses memory outside its arrays.
        """
        if self.warp_synchronization.write_results(index, mask):
            return
        if index not in self._slots:
            number = self._native.slot_at[index]
            slot = self._native.slots[number : number + 1]
            self._slots[index] = slot.ctypes.data, int(slot["clock"][0])
        (slot_address, clocks), words = self._slots[index], lanes_to_words(mask)
        if self.context.call("execute", slot_address, words.ctypes.data):
            raise self._fault()
        self.context["clock"] += clocks

    def _vote_of_blocks(self, step: DecodedInstruction, mask: Mask) -> None:
        """`bar.red` after its barrier: a vote of the lanes of each block."""
        to, source = step.instruction.operands
        assert isinstance(to, Register)
        assert step.row.function is not None
        shape = (-1, self.threads.grid.padded_threads)
        votes = np.broadcast_to(self.operands.read(source, "pred"), self.lanes).reshape(shape)
        result = step.row.function(mask.reshape(shape), votes)
        self.operands.write(to.name, np.broadcast_to(result, votes.shape).reshape(-1), mask)

    def _trap(self, index: int, step: DecodedInstruction, mask: Mask) -> None:
        """`trap`, or a failed assertion, whose operand is its text's address."""
        where = self._place(index, mask)
        if not step.instruction.operands:
            cause = TRAPS.get(step.row.opcode, "the kernel stopped itself (trap)")
            raise KernelFault(f"{cause}, {where}")
        text = np.broadcast_to(self.operands.read(step.instruction.operands[0], "u64"), self.lanes)
        address = int(text[np.flatnonzero(mask)[0]])
        asserted = printf.read_string(self._memory, address)
        raise KernelFault(f"assertion failed: {source_excerpt(asserted)}, {where}")

    def _no_allocation(self, index: int, mask: Mask) -> None:
        """Lanes free what is no allocation."""
        what = "invalid free: the address is that of no allocation, or freed already"
        raise KernelFault(f"{what}, {self._place(index, mask)}")

    def _print(self, step: DecodedInstruction, mask: Mask) -> None:
        """`printf`; a trial run prints nothing."""
        if not self._policy.is_trial:
            form, values = (self.operands.read(o, "u64") for o in step.instruction.operands)
            printf.print_lanes(self._memory, self.segments["local"], form, values, mask)

    # --- Messages ------------------------------------------------------------------------------

    def _fault(self) -> KernelFault:
        """The error for the access at fault that the machine code found."""
        fault = self.context.record["fault"]
        step = self.program.steps[int(fault["index"])]
        segment = self.segments[SPACES[int(fault["space"])]]
        lanes = np.flatnonzero(int(fault["mask"]) >> np.arange(WARP_SIZE) & 1)
        site = self._native.sites[self._native.sites["index"] == fault["index"]][0]
        verb = "read" if step.row.kind == "load" else "write"
        message, number = find_fault(segment, fault["address"][lanes], int(site["size"]), verb)
        if step.row.view and segment.name == "param":
            message = "illegal handle: it is that of no texture or surface of this launch"
        lane = int(fault["warp"]) * WARP_SIZE + int(lanes[number])
        return KernelFault(f"{message}, {self.threads.place(lane, step.instruction)}")

    def _place(self, index: int, mask: Mask) -> str:
        """The thread and the source line of the first of some lanes, for a message."""
        step = self.program.steps[min(index, len(self.program.steps) - 1)]
        return self.threads.place(int(np.flatnonzero(mask)[0]), step.instruction)

"""The protocol of the instruments that watch a chunk's run, and of the policy that directs it.

An `Observer` is told what happens. The one `ExecutionPolicy` of a chunk also decides what the
program leaves open: when barriers open, and what becomes of an access at fault. The plain policy
does as a GPU does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from memlab.device.emulator.machine import memory
from memlab.device.emulator.machine.memory import (
    AccessFault,
    GlobalMemory,
    KernelFault,
    Lanes,
    Segment,
)

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_costs import SectorCount
    from memlab.device.emulator.machine.address_resolution import (
        MemoryInstruction,
        ResolvedAddresses,
    )
    from memlab.device.emulator.machine.binding import Action
    from memlab.device.emulator.machine.operands import Operands
    from memlab.device.emulator.machine.scheduler import BarrierRelease, Mask, Scheduler
    from memlab.device.emulator.machine.threads import Threads
    from memlab.device.emulator.machine.warp_synchronization import ParticipatingLanes
    from memlab.device.emulator.program.program import DecodedInstruction


@dataclass(frozen=True)
class ChunkState:
    """The parts of a chunk that observers may read while it runs.

    Attributes:
        threads: The thread of each lane.
        operands: The registers.
        segments: The state spaces by name.
        participants: The lanes that execute the current warp instruction together.
    """

    threads: Threads
    operands: Operands
    segments: Mapping[str, Segment]
    participants: ParticipatingLanes


class Observer:
    """Watches the chunks of a launch. Every hook does nothing unless a subclass overrides it.

    A `mask` has a bool for each lane of the chunk, shape (lanes,); None stands for all lanes.

    Attributes:
        needs_every_warp: Whether `global_access_counted` must list the warps that take no part
            too. Leaving them out is faster.
    """

    needs_every_warp: ClassVar[bool] = False

    def chunk_started(self, chunk: ChunkState) -> None:
        """A chunk has its registers and memories; its instructions are bound next."""

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """An instruction was bound to the arrays it works on.

        Returns:
            The action to run in its place; it gets only lanes whose guard holds.
        """
        return action

    def run_started(self, schedule: Scheduler) -> None:
        """The chunk begins to run."""

    def range_executed(self, start: int, stop: int, mask: Mask | None) -> None:
        """Lanes executed the instructions from `start` up to, not including, `stop`."""

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> None:
        """Lanes are about to access a segment, `offset` bytes behind the resolved addresses."""

    def global_access_counted(self, index: int, warp_bases: Lanes, cost: SectorCount) -> None:
        """An access to global memory was counted.

        Args:
            index: The instruction.
            warp_bases: Address of each warp's first active lane, rounded down to its sector,
                shape (warps,).
            cost: Its sectors.
        """

    def guard_read(self, predicate: str, mask: Mask | None) -> None:
        """Lanes read the guard of a branch, an exit or a barrier."""

    def control_transferred(self, index: int, mask: Mask | None) -> None:
        """Lanes take a branch or exit; `index` lies behind the program where they reach its end."""

    def trap_reached(self, index: int, mask: Mask | None) -> None:
        """Lanes stop the kernel: by `trap`, or by an assertion that failed."""


class ExecutionPolicy(Observer):
    """An observer that decides what the program leaves open; here, as a GPU decides it.

    Attributes:
        is_trial: Whether the blocks run apart from the launch, some of them perhaps several times.
            A fault then ends the run silently, and so does waiting for blocks that do not run;
            `printf` prints nothing.
        counts_accesses: Whether memory accesses are counted into the chunk's tally.
    """

    is_trial: ClassVar[bool] = False
    counts_accesses: ClassVar[bool] = True

    _threads: Threads

    def chunk_started(self, chunk: ChunkState) -> None:
        """Keep the threads, to name the one whose access is at fault."""
        self._threads = chunk.threads

    def barrier_release(self, default: BarrierRelease | None) -> BarrierRelease | None:
        """The function that opens barriers; `default` is the program's own, if it needs one."""
        return default

    def bind_ordering(self, step: DecodedInstruction) -> Action | None:
        """The action of an instruction that computes nothing, such as a fence.

        Returns:
            None where lanes may have to wait at it: then `may_pass` decides when it is reached.
        """
        return do_nothing

    def may_pass(self, index: int, mask: Mask | None) -> bool:
        """Whether lanes go on at an instruction that has no action from `bind_ordering`."""
        return True

    def permitted_lanes(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> Mask | None:
        """The lanes that may carry out an access.

        Lanes left out read 0, and what they store is lost.

        Args:
            instruction: The access.
            addresses: What it accesses, without the offset.
            offset: Bytes added to each address.
            mask: The lanes that ask for it.

        Returns:
            `mask` itself where all of them may.

        Raises:
            KernelFault: An access is outside its memory or misaligned.
        """
        segment, size = addresses.segment, instruction.size
        low, high = addresses.low + offset, addresses.high + offset + size
        refused = instruction.kind != "load" and segment.name in memory.READ_ONLY
        if addresses.misalignment & (size - 1) or refused or not segment.check(low, high):
            self._check_each_lane(instruction, addresses, offset, mask)
        return mask

    def _check_each_lane(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> None:
        """Check the lanes one by one: they may access several arrays, each inside its own.

        Raises:
            KernelFault: Names the first lane at fault, if there is one.
        """
        segment, size, threads = addresses.segment, instruction.size, self._threads
        active = np.flatnonzero(threads.alive if mask is None else mask)
        start = np.broadcast_to(addresses.address, threads.lanes)[active]
        touched = start.astype(np.int64) + offset
        aligned = not (touched % size).any()
        if isinstance(segment, GlobalMemory) and aligned and segment.holds(touched, size):
            return
        verb = "read" if instruction.kind == "load" else "write"
        try:
            raise memory.find_fault(segment, touched, size, verb)
        except AccessFault as fault:
            place = threads.place(int(active[fault.lane]), instruction.step.instruction)
            raise KernelFault(f"{fault}, {place}") from None


def policy_of(observers: Sequence[Observer]) -> ExecutionPolicy:
    """The policy among a chunk's observers, or the plain one.

    Raises:
        ValueError: There are several.
    """
    policies = [observer for observer in observers if isinstance(observer, ExecutionPolicy)]
    if len(policies) > 1:
        raise ValueError("a chunk runs by one policy")
    return policies[0] if policies else ExecutionPolicy()


def do_nothing(mask: Mask | None) -> None:
    """The action of an instruction without effect."""

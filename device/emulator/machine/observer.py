"""The protocol of the instruments that watch a chunk's run, and of the policy that directs it.

An `Observer` is told what happens. The one `ExecutionPolicy` of a chunk also decides what the
program leaves open: when barriers open, and what becomes of an access at fault. The plain policy
does as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from memlab.device.emulator.machine.memory import Mask, Segment

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import MemoryInstruction, ResolvedAddresses
    from memlab.device.emulator.machine.context import ChunkContext
    from memlab.device.emulator.machine.operands import Operands
    from memlab.device.emulator.machine.scheduler import BarrierRelease, Scheduler
    from memlab.device.emulator.machine.threads import Threads
    from memlab.device.emulator.machine.warp_synchronization import ParticipatingLanes
    from memlab.device.emulator.program.program import DecodedInstruction, Program

Action: TypeAlias = Callable[[Mask], None]
"""Executes an instruction for the lanes of a mask."""


@dataclass(frozen=True)
class ChunkState:
    """The parts of a chunk that observers may read while it runs.

    Attributes:
        threads: The thread of each lane.
        operands: The registers.
        segments: The state spaces by name.
        participants: The lanes that execute the current warp instruction together.
        context: The memory that the chunk shares with its machine code.
    """

    threads: Threads
    operands: Operands
    segments: Mapping[str, Segment]
    participants: ParticipatingLanes
    context: ChunkContext


class Observer:
    """Watches the chunks of a launch. Every hook does nothing unless a subclass overrides it.

    A `mask` has a bool for each lane of the chunk, shape (lanes,).

    Attributes:
        observes_flow: Whether `range_executed`, `guard_read` and `control_transferred` are called.
            Without them, machine code runs on by itself.
    """

    observes_flow: ClassVar[bool] = False

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The positions of the instructions that the observer is told of one by one.

        Only for these are `instruction_bound` and `memory_accessed` called.
        """
        return ()

    def chunk_started(self, chunk: ChunkState) -> None:
        """A chunk has its registers and memories; its instructions are bound next."""

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """A watched instruction is ready to run.

        Returns:
            The action to run in its place; it gets only lanes whose guard holds.
        """
        return action

    def run_started(self, schedule: Scheduler) -> None:
        """The chunk begins to run."""

    def range_executed(self, start: int, stop: int, mask: Mask) -> None:
        """Lanes executed the instructions from `start` up to, not including, `stop`."""

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask,
    ) -> None:
        """Lanes are about to access a segment, `offset` bytes behind the resolved addresses."""

    def guard_read(self, predicate: str, mask: Mask) -> None:
        """Lanes read the guard of a branch, an exit or a barrier."""

    def control_transferred(self, index: int, mask: Mask) -> None:
        """Lanes take a branch or exit; `index` lies behind the program where they reach its end."""

    def trap_reached(self, index: int, mask: Mask) -> None:
        """Lanes stop the kernel: by `trap`, or by an assertion that failed."""


class ExecutionPolicy(Observer):
    """An observer that decides what the program leaves open; here, as a GPU decides it.

    Attributes:
        is_trial: Whether the blocks run apart from the launch, some of them perhaps several times.
            A fault then ends the run silently, and so does waiting for blocks that do not run;
            `printf` prints nothing.
    """

    is_trial: ClassVar[bool] = False

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

    def may_pass(self, index: int, mask: Mask) -> bool:
        """Whether lanes go on at an instruction that has no action from `bind_ordering`."""
        return True

    def permitted_lanes(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask,
    ) -> Mask:
        """The lanes that may carry out an access.

        Lanes left out read 0, and what they store is lost.

        Args:
            instruction: The access.
            addresses: What it accesses, without the offset.
            offset: Bytes added to each address.
            mask: The lanes that ask for it.

        Returns:
            `mask` itself where all of them may.
        """
        return mask


def policy_of(observers: Sequence[Observer]) -> ExecutionPolicy:
    """The policy among a chunk's observers, or the plain one.

    Raises:
        ValueError: There are several.
    """
    policies = [observer for observer in observers if isinstance(observer, ExecutionPolicy)]
    if len(policies) > 1:
        raise ValueError("a chunk runs by one policy")
    return policies[0] if policies else ExecutionPolicy()


def do_nothing(mask: Mask) -> None:
    """The action of an instruction without effect."""

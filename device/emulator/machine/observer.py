"""The protocol of the instruments that watch a chunk's run, and of the policy that directs it.

An `Observer` is told what happens. The one `ExecutionPolicy` of a chunk also decides what the
program leaves open: when barriers open, and what becomes of an access at fault. The plain policy
does as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from memlab.device.emulator.machine.memory import Mask

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk
    from memlab.device.emulator.machine.scheduler import BarrierRelease
    from memlab.device.emulator.program.program import DecodedInstruction, Program

Action: TypeAlias = Callable[[Mask], None]
"""Executes an instruction for the lanes of a mask."""


class Observer:
    """Watches the chunks of a launch. Every hook does nothing unless a subclass overrides it.

    A `mask` has a bool for each lane of the chunk, shape (lanes,).

    Attributes:
        observes_flow: Whether `range_executed` is called. Without it, machine code runs on by
            itself between the watched instructions.
    """

    observes_flow: ClassVar[bool] = False

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The positions of the instructions that the observer is told of one by one.

        That behind the last one is the program's end. Only for these are `instruction_bound`,
        `memory_accessed` and `control_reached` called.
        """
        return ()

    def chunk_started(self, chunk: Chunk) -> None:
        """A chunk has its registers and memories; its instructions are bound as they are met."""

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """A watched instruction, but none of control, is about to run in a chunk the first time.

        Returns:
            The action to run in its place; it gets only lanes whose guard holds.
        """
        return action

    def range_executed(self, start: int, stop: int, mask: Mask) -> None:
        """Lanes executed the instructions from `start` up to, not including, `stop`."""

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Lanes are about to access a state space."""

    def control_reached(self, index: int, mask: Mask, taken: Mask) -> None:
        """Lanes are at a branch, an exit, a barrier or the end; the guard holds for `taken`."""


class ExecutionPolicy(Observer):
    """An observer that decides what the program leaves open; here, as a GPU decides it.

    Attributes:
        is_trial: Whether the blocks run apart from the launch, some of them perhaps several times.
            A fault then ends the run silently, and so does waiting for blocks that do not run;
            `printf` prints nothing.
    """

    is_trial: ClassVar[bool] = False

    def barrier_release(self, default: BarrierRelease | None) -> BarrierRelease | None:
        """The function that opens barriers; `default` is the program's own, if it needs one."""
        return default

    def holds_lanes(self, step: DecodedInstruction) -> bool:
        """Whether lanes may have to wait at a watched instruction that computes nothing.

        Then `may_pass` decides when it is reached, and it has no action.
        """
        return False

    def may_pass(self, index: int, mask: Mask) -> bool:
        """Whether lanes go on at an instruction that `holds_lanes`."""
        return True

    def wait_is_endless(self, index: int, mask: Mask, reason: str) -> None:
        """Lanes wait at an instruction for what never comes; the run ends."""

    def permitted_lanes(self, access: WatchedAccess) -> Mask:
        """The lanes that may carry out an access: the access's own mask where all of them may.

        Lanes left out read 0, and what they store is lost.
        """
        return access.mask


def policy_of(observers: Sequence[Observer]) -> ExecutionPolicy:
    """The policy among a chunk's observers, or the plain one.

    Raises:
        ValueError: There are several.
    """
    policies = [observer for observer in observers if isinstance(observer, ExecutionPolicy)]
    if len(policies) > 1:
        raise ValueError("a chunk runs by one policy")
    return policies[0] if policies else ExecutionPolicy()

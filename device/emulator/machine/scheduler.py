"""Schedules the groups that the machine code leaves to Python: those that wait for other lanes.

`codegen.schedule_code` runs the groups of lanes of a chunk. A group that it cannot decide on waits
in one of three ways:

- At a barrier (`bar.sync`) it is *parked*. Barriers open when no other lane can run.
- At a collective (`warp_synchronization`) it waits for other lanes of its warps. Such groups are
  released before the barriers open.
- In a spin wait (`spin_waits`) it is *deferred* until all other groups have run as far as they can:
  since Volta, every thread makes progress.

For each of these, a function chooses the lanes that go on, when no other lane can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.codegen.schedule_code import Status
from memlab.device.emulator.machine.context import ChunkContext, lanes_to_words, words_to_lanes
from memlab.device.emulator.machine.memory import Mask

WaitingGroups: TypeAlias = dict[int, Mask]
"""Lanes that wait, by the program counter where they are; where they resume, if they are parked."""

BarrierRelease: TypeAlias = Callable[[WaitingGroups], Mask]
"""Chooses the lanes of parked groups that go on, when no other lane can run."""

WarpRelease: TypeAlias = Callable[[WaitingGroups, Mask], Mask]
"""Executes collectives that groups wait at; returns the lanes that have executed theirs.

The lanes of the second argument must not go on without the lanes that they wait for: those may
still arrive.
"""


_IDLE_ROUNDS = 2
"""After so many in succession, nothing but deferred groups is left that could make progress."""


class Scheduler:
    """The groups of lanes of one chunk of blocks.

    Attributes:
        barrier_release: Decides which parked groups go on; None opens all barriers at once.
        idle_rounds: How often in succession all deferred groups ran again and were deferred again.
    """

    barrier_release: BarrierRelease | None = None

    def __init__(
        self,
        native: NativeProgram,
        context: ChunkContext,
        block_lanes: int,
        select_resumable: Callable[[WaitingGroups], Mask],
        warp_release: WarpRelease,
        note_idle: Callable[[WaitingGroups], None],
    ) -> None:
        """Schedule a chunk.

        Args:
            native: The program.
            context: The chunk.
            block_lanes: Lanes of a block.
            select_resumable: Selects, of deferred groups, the lanes that have a reason to run
                again.
            warp_release: Releases the groups that wait at collectives.
            note_idle: Is told of deferred groups that have run again without progress.
        """
        self._native, self._context, self._block_lanes = native, context, block_lanes
        self._select_resumable, self._warp_release = select_resumable, warp_release
        self._note_idle = note_idle
        self._deferred: WaitingGroups = {}
        self._loops: dict[int, int] = {}  # of deferred groups: first and last instruction
        self._waiting_for_warp: WaitingGroups = {}
        self.idle_rounds = 0

    @property
    def counter(self) -> int:
        """Program counter of the running group."""
        return self._native.stretches[self._context["slot"]].start

    @property
    def running(self) -> Mask:
        """The lanes of the running group; a copy."""
        return words_to_lanes(self._context.mask)

    @property
    def live(self) -> Mask:
        """The lanes that have not exited; a copy."""
        return words_to_lanes(self._context.live)

    def note_progress(self) -> None:
        """Reset `idle_rounds` where the running group is outside the loops of deferred groups."""
        counter = self.counter
        if self.idle_rounds and not any(
            start <= counter <= end for start, end in self._loops.items()
        ):
            self.idle_rounds = 0

    def wait_for_warp(self) -> Status:
        """Hold the running group at a collective until other lanes of its warps arrive."""
        self.note_progress()
        return self._hold(self._waiting_for_warp)

    def defer(self, end: int) -> Status:
        """Defer the running group until the others can go no further.

        The group is at the head of a loop whose last instruction is `end`.
        """
        self._loops[self.counter] = end
        return self._hold(self._deferred)

    def waiting_groups(self) -> Iterator[tuple[int, Mask]]:
        """The groups that do not run now, with the program counters where they are."""
        for groups in (self._context.ready.masks(), self._waiting_for_warp, self._deferred):
            yield from groups.items()
        for counter, mask in self._context.parked.masks().items():
            yield counter - 1, mask

    def release(self) -> Status:
        """Let waiting groups go on, when no other group can run."""
        context = self._context
        if self._waiting_for_warp:
            going = self._warp_release(self._waiting_for_warp, self._held())
            self._waiting_for_warp = self._let_go(self._waiting_for_warp, going, behind=1)
        if len(context.parked) and not len(context.ready):
            self._open_barriers()
        if self._deferred and not len(context.ready):
            if self.idle_rounds >= _IDLE_ROUNDS:
                self._note_idle(self._deferred)
            self._deferred = self._let_go(self._deferred, self._select_resumable(self._deferred))
            self.idle_rounds += 1
        self._note_waiting()
        if not len(context.ready):
            return Status.DONE
        context.call("dequeue")
        return Status.RUNNING

    def _open_barriers(self) -> None:
        """Open the barriers that every live lane waits at.

        Where all open at once, they stay closed in blocks with deferred lanes.
        """
        parked = self._context.parked.take()
        going = ~self._held(always=self.barrier_release is None)
        opening = select_lanes(parked, going)
        if opening and self.barrier_release is not None:
            going &= self.barrier_release(opening)
        if select_lanes(opening, going):
            self.idle_rounds = 0
        self._enqueue(self._let_go(parked, going), "enqueue_parked")

    def _held(self, *, always: bool = False) -> Mask:
        """All lanes of the blocks that have a deferred lane, since that may still arrive.

        None, but for `always`, where the deferred lanes have run again without progress.
        """
        lanes = np.zeros_like(self.live).reshape(-1, self._block_lanes)
        if always or not self.idle_rounds:
            for mask in self._deferred.values():
                lanes |= mask.reshape(lanes.shape).any(axis=1, keepdims=True)
        return lanes.reshape(-1)

    def _hold(self, groups: WaitingGroups) -> Status:
        """Add the running group to others that wait, and run another one."""
        counter, mask = self.counter, self.running
        groups[counter] = groups[counter] | mask if counter in groups else mask
        self._note_waiting()
        return Status(self._context.call("next_group"))

    def _note_waiting(self) -> None:
        self._context["others_wait"] = bool(self._deferred or self._waiting_for_warp)

    def _let_go(self, groups: WaitingGroups, going: Mask, behind: int = 0) -> WaitingGroups:
        """Let lanes go on, so many instructions behind; returns the groups that stay."""
        resuming = {counter + behind: mask for counter, mask in groups.items()}
        self._enqueue(select_lanes(resuming, going), "enqueue")
        return select_lanes(groups, ~going)

    def _enqueue(self, groups: WaitingGroups, function: str) -> None:
        for counter, mask in groups.items():
            words = lanes_to_words(mask)
            self._context.call(function, int(self._native.slot_at[counter]), words.ctypes.data)


def select_lanes(groups: WaitingGroups, lanes: Mask) -> WaitingGroups:
    """Keep of each group only some lanes; drop the groups that have none of them."""
    return {counter: mask & lanes for counter, mask in groups.items() if (mask & lanes).any()}

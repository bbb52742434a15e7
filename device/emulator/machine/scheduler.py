"""Schedules the groups that the machine code leaves to Python: those that wait for other lanes.

`codegen.schedule_code` runs the groups of lanes of a chunk. A group that it cannot decide on waits
in one of three ways:

- At a barrier (`bar.sync`) it is *parked*. Barriers open when no other lane can run.
- At a collective (`warp_synchronization`) it waits for other lanes of its warps. Such groups are
  released before the barriers open.
- In a spin wait (`spin_waits`) it is *deferred* until all other groups have run as far as they can:
  since Volta, every thread makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.codegen.schedule_code import Status
from memlab.device.emulator.machine.context import ChunkContext, lanes_to_words, words_to_lanes
from memlab.device.emulator.machine.memory import Mask

WaitingGroups: TypeAlias = dict[int, Mask]
"""Lanes that wait, by the index of the instruction at which they resume."""

BarrierRelease: TypeAlias = Callable[[WaitingGroups], tuple[WaitingGroups, WaitingGroups]]
"""Divides the parked groups, when no other lane can run, into those that go on and those that stay.

Groups are masks by the program counter where they resume."""

WarpSyncRelease: TypeAlias = Callable[[WaitingGroups, Mask], tuple[WaitingGroups, WaitingGroups]]
"""Executes collectives that groups wait at; returns the groups that did and those that stay.

Groups are masks by the instruction that they wait at. The lanes of the second argument must not go
on without the lanes that they wait for: those may still arrive.
"""


class Scheduler:
    """The groups of lanes of one chunk of blocks.

    Attributes:
        idle_rounds: How often in succession all deferred groups ran again and were deferred again.
    """

    def __init__(
        self,
        native: NativeProgram,
        context: ChunkContext,
        block_lanes: int,
        barrier_release: BarrierRelease | None,
        select_resumable: Callable[[Mapping[int, Mask]], WaitingGroups],
        warp_release: WarpSyncRelease,
    ) -> None:
        """Schedule a chunk.

        Args:
            native: The program.
            context: The chunk.
            block_lanes: Lanes of a block.
            barrier_release: Decides which parked groups go on; None opens all barriers at once.
            select_resumable: Selects, of deferred groups, the lanes that have a reason to run
                again.
            warp_release: Releases the groups that wait at collectives.
        """
        self._native, self._context = native, context
        self._block_lanes, self._barrier_release = block_lanes, barrier_release
        self._select_resumable, self._warp_release = select_resumable, warp_release
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
        _add(self._waiting_for_warp, self.counter, self.running)
        return self._next()

    def defer(self, end: int) -> Status:
        """Defer the running group until the others can go no further.

        The group is at the head of a loop whose last instruction is `end`.
        """
        counter = self.counter
        _add(self._deferred, counter, self.running)
        self._loops[counter] = end
        return self._next()

    def waiting_groups(self) -> Iterator[tuple[int, Mask]]:
        """The groups that do not run now, with the program counters where they are."""
        starts = [stretch.start for stretch in self._native.stretches]
        for slot, words in self._context.ready.items():
            yield starts[slot], words_to_lanes(words)
        for groups in (self._waiting_for_warp, self._deferred):
            yield from groups.items()
        for slot, words in self._context.parked.items():
            yield starts[slot] - 1, words_to_lanes(words)

    def release(self) -> Status:
        """Let waiting groups go on, when no other group can run."""
        context = self._context
        if self._waiting_for_warp and not len(context.ready):
            self._release_warps()
        if len(context.parked) and not len(context.ready):
            self._release_barriers()
        if self._deferred and not len(context.ready):
            resumed = self._select_resumable(self._deferred)
            self._enqueue(resumed)
            self._deferred = {
                head: staying
                for head, mask in self._deferred.items()
                if (staying := mask & ~resumed[head] if head in resumed else mask).any()
            }
            self.idle_rounds += 1
        self._note_waiting()
        if not len(context.ready):
            return Status.DONE
        context.call("dequeue")
        return Status.RUNNING

    def continue_with(self, status: Status) -> Status:
        """Go on after the machine code has looked for another group."""
        return self.release() if status == Status.WAITING else status

    def _next(self) -> Status:
        """Run another group."""
        self._note_waiting()
        return self.continue_with(Status(self._context.call("next_group")))

    def _note_waiting(self) -> None:
        self._context["others_wait"] = bool(self._deferred or self._waiting_for_warp)

    def _release_barriers(self) -> None:
        """Open the barriers that every live lane waits at.

        In blocks with deferred lanes they stay closed, because these may still reach them, unless
        `barrier_release` decides and the deferred lanes have run again without progress.
        """
        parked = {
            self._native.stretches[slot].start: words_to_lanes(words)
            for slot, words in self._context.parked.take()
        }
        staying: WaitingGroups = {}
        opening = parked
        if self._deferred and (self._barrier_release is None or not self.idle_rounds):
            held = self._blocks_with(self._deferred)
            staying, opening = select_lanes(parked, held), select_lanes(parked, ~held)
        if opening:
            if self._barrier_release is not None:
                going, opening = self._barrier_release(opening)
            else:
                going, opening = opening, {}
            self._enqueue(going)
            self.idle_rounds = 0
        for groups in (staying, opening):
            self._enqueue(groups, "enqueue_parked")

    def _release_warps(self) -> None:
        """Let groups go on that wait for other lanes of their warps."""
        held = np.zeros(len(self._context.live) * 32, np.bool_)
        if self._deferred and not self.idle_rounds:
            held = self._blocks_with(self._deferred)
        released, self._waiting_for_warp = self._warp_release(self._waiting_for_warp, held)
        self._enqueue({counter + 1: mask for counter, mask in released.items()})

    def _enqueue(self, groups: Mapping[int, Mask], function: str = "enqueue") -> None:
        for counter, mask in groups.items():
            words = lanes_to_words(mask)
            self._context.call(function, int(self._native.slot_at[counter]), words.ctypes.data)

    def _blocks_with(self, groups: Mapping[int, Mask]) -> Mask:
        """All lanes of the blocks that have a lane in one of the groups, as a mask."""
        lanes = np.logical_or.reduce(list(groups.values())).reshape(-1, self._block_lanes)
        return np.asarray(np.repeat(lanes.any(axis=1), self._block_lanes))


def select_lanes(groups: WaitingGroups, lanes: Mask) -> WaitingGroups:
    """Keep of each group only some lanes; drop the groups that have none of them."""
    return {counter: mask & lanes for counter, mask in groups.items() if (mask & lanes).any()}


def _add(groups: WaitingGroups, counter: int, mask: Mask) -> None:
    known = groups.get(counter)
    groups[counter] = mask if known is None else known | mask

"""Schedules the groups of lanes of a chunk: the group with the lowest program counter runs first.

Lanes that diverge at a branch form groups, one per program counter. Always running the group with
the lowest program counter makes lanes reconverge where their paths join, because compilers mostly
lay out code so that the join lies behind both arms of the branch. Where they do not, `code_layout`
provides the order of the basic blocks.

A group waits in one of three ways:

- At a barrier (`bar.sync`) it is *parked*. Barriers open when no other lane can run.
- At a warp instruction (`warp_synchronization`) it waits for other lanes of its warps. Such groups
  are released before the barriers open.
- In a spin wait (`spin_waits`) it is *deferred* until all other groups have run as far as they can:
  since Volta, every thread makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.program.code_layout import BasicBlockOrder
from memlab.device.properties import WARP_SIZE

Mask = NDArray[np.bool_]
WaitingGroups: TypeAlias = dict[int, Mask]
"""Lanes that wait, by the index of the instruction at which they resume."""

BarrierRelease: TypeAlias = Callable[[dict[int, Mask]], tuple[dict[int, Mask], dict[int, Mask]]]
"""Divides the parked groups, when no other lane can run, into those that go on and those that stay.

Groups are masks by the program counter where they resume."""

WarpSyncRelease: TypeAlias = Callable[
    [dict[int, Mask], Mask], tuple[dict[int, Mask], dict[int, Mask]]
]
"""Executes warp instructions that groups wait at; returns the groups that did and those that stay.

Groups are masks by the instruction that they wait at. The lanes of the second argument must not go
on without the lanes that they wait for: those may still arrive.
"""

_NO_LIMIT = 1 << 60  # a program counter behind every instruction


class Scheduler:
    """The groups of lanes of one chunk of blocks.

    Attributes:
        live: The lanes that have not exited, as a mask; the array is updated in place.
        counter: Program counter of the running group.
        mask: Lanes of the running group; None when every lane of the chunk runs, which is the fast
            path.
        limit: The program counter at which the running group must stop, because another group waits
            there or has to run first.
        idle_rounds: How often in succession all deferred groups ran again and were deferred again.
    """

    def __init__(
        self,
        live: Mask,
        barrier_release: BarrierRelease | None = None,
        block_lanes: int = WARP_SIZE,
        order: BasicBlockOrder | None = None,
        select_resumable: Callable[[Mapping[int, Mask]], dict[int, Mask]] = dict,
        warp_release: WarpSyncRelease | None = None,
    ) -> None:
        """Begin with all lanes in one group, at the first instruction.

        Args:
            live: The lanes that are threads, as a mask.
            barrier_release: Decides which parked groups go on; None opens all barriers at once.
            block_lanes: Lanes of a block.
            order: The order of basic blocks where it is not that of the program counters.
            select_resumable: Selects, of deferred groups, the lanes that have a reason to run
                again.
            warp_release: Releases the groups that wait at warp instructions; needed where
                `wait_for_warp` is called.
        """
        self._order, self._select_resumable = order, select_resumable
        self._warp_release, self._barrier_release = warp_release, barrier_release
        self._block_lanes = block_lanes
        self._deferred: dict[int, Mask] = {}
        self._loops: dict[int, int] = {}  # of deferred groups: first and last instruction
        self.idle_rounds = 0
        self.live = live.copy()
        self._full = bool(live.all())
        self._ready: dict[int, Mask] = {}
        self._parked: dict[int, Mask] = {}
        self._waiting_for_warp: dict[int, Mask] = {}
        self.counter = 0
        self.mask: Mask | None = None if self._full else self.live.copy()
        self.limit = _NO_LIMIT

    def jump(self, counter: int) -> None:
        """Send the whole running group to another program counter."""
        self._progress()
        self.counter = counter
        if self._ready:
            self._enqueue(counter, self._running())
            self._dequeue()

    def split(self, taken: Mask, target: int) -> None:
        """Send the lanes in `taken` to `target` and the others to the next instruction."""
        self._progress()
        running = self._running()
        self._enqueue(target, taken & running)
        self._enqueue(self.counter + 1, running & ~taken)
        self._dequeue()

    def exit(self) -> bool:
        """End the running group; False when no lane is left."""
        self._progress()
        if self.mask is None:
            self.live[:] = False
        else:
            self.live &= ~self.mask
        self._full = False
        return self._next()

    def park(self) -> bool:
        """Hold the running group at a barrier before the next instruction.

        Returns:
            False when no lane is left.
        """
        self._progress()
        if self._barrier_release is None and (
            self.mask is None
            or (not self._ready and not self._parked and np.array_equal(self.mask, self.live))
        ):
            self.counter += 1  # all live lanes have arrived
            return True
        resume = self.counter + 1
        waiting = self._parked.get(resume)
        running = self._running()
        self._parked[resume] = running if waiting is None else waiting | running
        return self._next()

    def wait_for_warp(self) -> bool:
        """Hold the running group at an instruction that it executes with other lanes of its warps.

        Returns:
            False when no lane is left.
        """
        self._progress()
        waiting = self._waiting_for_warp.get(self.counter)
        running = self._running()
        self._waiting_for_warp[self.counter] = running if waiting is None else waiting | running
        return self._next()

    def defer(self, end: int) -> None:
        """Defer the running group until the others can go no further.

        The group is at the head of a loop whose last instruction is `end`.
        """
        waiting = self._deferred.get(self.counter)
        running = self._running()
        self._deferred[self.counter] = running if waiting is None else waiting | running
        self._loops[self.counter] = end
        self._next()

    def waiting_groups(self) -> Iterator[tuple[int, Mask]]:
        """The groups that do not run now, with the program counters where they are."""
        for groups in (self._ready, self._waiting_for_warp, self._deferred):
            yield from groups.items()
        for resume, mask in self._parked.items():
            yield resume - 1, mask

    def merge(self) -> None:
        """Merge the running group with the one that waits at its program counter."""
        self._enqueue(self.counter, self._running())
        self._dequeue()

    def _running(self) -> Mask:
        return self.live.copy() if self.mask is None else self.mask

    def _enqueue(self, counter: int, mask: Mask) -> None:
        waiting = self._ready.get(counter)
        self._ready[counter] = mask if waiting is None else waiting | mask

    def _dequeue(self) -> None:
        order = self._order
        key = None if order is None else order.positions.__getitem__
        self.counter = min(self._ready, key=key)
        mask = self._ready.pop(self.counter)
        self.limit = min(self._ready, key=key, default=_NO_LIMIT)
        if order is not None and self._ready:
            self.limit = order.limit(self.counter, self.limit)
        self.mask = None if self._full and not self._ready and bool(mask.all()) else mask

    def _next(self) -> bool:
        """Choose the next group to run; False when no lane is left."""
        if not self._ready and self._waiting_for_warp:
            self._release_warps()
        if not self._ready and self._parked:
            # Every live lane waits, so the barriers open. In blocks with deferred lanes they stay
            # closed, because these may still reach them, unless `barrier_release` decides
            # and the deferred lanes have run again without progress.
            release = self._barrier_release or _release_all
            staying: dict[int, Mask] = {}
            opening = self._parked
            if self._deferred and (self._barrier_release is None or not self.idle_rounds):
                held = self._blocks_with(self._deferred)
                staying, opening = (
                    select_lanes(self._parked, held),
                    select_lanes(self._parked, ~held),
                )
            if opening:
                self._ready, opening = release(opening)
                self.idle_rounds = 0
            self._parked = _merge_groups(staying, opening)
        if not self._ready and self._deferred:
            resumed = self._ready = self._select_resumable(self._deferred)
            self._deferred = {
                head: staying_mask
                for head, mask in self._deferred.items()
                if (staying_mask := mask & ~resumed[head] if head in resumed else mask).any()
            }
            self.idle_rounds += 1
        if not self._ready:
            return False
        self._dequeue()
        return True

    def _release_warps(self) -> None:
        """Let groups go on that wait for other lanes of their warps."""
        assert self._warp_release is not None
        held = np.zeros_like(self.live)
        if self._deferred and not self.idle_rounds:
            held = self._blocks_with(self._deferred)
        released, self._waiting_for_warp = self._warp_release(self._waiting_for_warp, held)
        self._ready = {counter + 1: mask for counter, mask in released.items()}

    def _progress(self) -> None:
        """Reset `idle_rounds` where the running group is outside the loops of deferred groups."""
        if self.idle_rounds and not any(
            start <= self.counter <= end for start, end in self._loops.items()
        ):
            self.idle_rounds = 0

    def _blocks_with(self, groups: dict[int, Mask]) -> Mask:
        """All lanes of the blocks that have a lane in one of the groups, as a mask."""
        lanes = np.logical_or.reduce(list(groups.values())).reshape(-1, self._block_lanes)
        return np.repeat(lanes.any(axis=1), self._block_lanes)


def select_lanes(groups: WaitingGroups, lanes: Mask) -> WaitingGroups:
    """Keep of each group only some lanes; drop the groups that have none of them."""
    return {counter: mask & lanes for counter, mask in groups.items() if (mask & lanes).any()}


def _merge_groups(a: dict[int, Mask], b: dict[int, Mask]) -> dict[int, Mask]:
    merged = dict(a)
    for counter, mask in b.items():
        merged[counter] = merged[counter] | mask if counter in merged else mask
    return merged


def _release_all(parked: dict[int, Mask]) -> tuple[dict[int, Mask], dict[int, Mask]]:
    return parked, {}


def active_warps(mask: Mask) -> Any:
    """Whether each warp has a lane in `mask`: bool, shape (warps,)."""
    words = mask.view(np.uint64).reshape(-1, WARP_SIZE // 8)  # 8 lanes per word: twice as fast
    return (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0

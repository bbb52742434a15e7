"""Who runs next: lanes grouped by program counter, the lowest first.

Lanes that part at a branch become groups. Running the group with the lowest program counter
makes lanes meet again where their paths join: compilers mostly lay code out so that a join lies
behind both of its arms, and where they do not, `layout` has the order. `bar.sync` parks a group
until no other lane can run, and before the barriers open those go on who wait for other lanes of
their warps alone (`meeting`). A group that waits in a loop for what another one will write is put
off: it *yields* until the others have gone as far as they can, as threads have progressed since
Volta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.program.code_layout import BasicBlockOrder
from memlab.device.properties import WARP_SIZE

Mask = NDArray[np.bool_]

BarrierRelease: TypeAlias = Callable[[dict[int, Mask]], tuple[dict[int, Mask], dict[int, Mask]]]
"""Says which of the parked groups go on, and which wait on, when no other lane can run."""

WarpSyncRelease: TypeAlias = Callable[
    [dict[int, Mask], Mask], tuple[dict[int, Mask], dict[int, Mask]]
]
"""Carries out what groups wait for other lanes of their warps at; says who did, and who waits on.

The second argument are lanes that may still have someone on the way to them.
"""

_NEVER = 1 << 60  # a program counter behind every instruction


class Scheduler:
    """The groups of lanes of one chunk of blocks.

    Attributes:
        live: The lanes that have not exited; always the same array.
        counter: Program counter of the running group.
        mask: Its lanes; None when every lane of the chunk runs, which is the fast path.
        limit: Where the running group meets another one, at the latest.
        rounds_in_vain: How often all that yielded have run again and only yielded again.
    """

    def __init__(
        self,
        live: Mask,
        opener: BarrierRelease | None = None,
        block_lanes: int = WARP_SIZE,
        order: BasicBlockOrder | None = None,
        awake: Callable[[Mapping[int, Mask]], dict[int, Mask]] = dict,
        meeting: WarpSyncRelease | None = None,
    ) -> None:
        """Begin with the lanes that are threads; without an opener all barriers open at once.

        `block_lanes` are the lanes of a block; `order` says which instruction lies lower where
        that is not the one with the lower program counter; `awake` says which of those that
        yielded have a reason to run again; `meeting` is needed where lanes `meet`.
        """
        self._order, self._awake, self._meeting = order, awake, meeting
        self._opener, self._block_lanes = opener, block_lanes
        self._yielded: dict[int, Mask] = {}
        self._loops: dict[int, int] = {}  # of those that yielded: first and last instruction
        self.rounds_in_vain = 0
        self.live = live.copy()
        self._full = bool(live.all())
        self._ready: dict[int, Mask] = {}
        self._parked: dict[int, Mask] = {}
        self._meetings: dict[int, Mask] = {}
        self.counter = 0
        self.mask: Mask | None = None if self._full else self.live.copy()
        self.limit = _NEVER

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
        """Hold the running group at a barrier before the next instruction."""
        self._progress()
        if self._opener is None and (
            self.mask is None
            or (not self._ready and not self._parked and np.array_equal(self.mask, self.live))
        ):
            self.counter += 1  # everyone is here
            return True
        resume = self.counter + 1
        waiting = self._parked.get(resume)
        running = self._running()
        self._parked[resume] = running if waiting is None else waiting | running
        return self._next()

    def meet(self) -> bool:
        """Hold the running group at an instruction that it carries out with lanes elsewhere."""
        self._progress()
        waiting = self._meetings.get(self.counter)
        running = self._running()
        self._meetings[self.counter] = running if waiting is None else waiting | running
        return self._next()

    def defer(self, end: int) -> None:
        """Put the running group off until the others can go no further.

        It is at the head of a loop whose last instruction is `end`.
        """
        waiting = self._yielded.get(self.counter)
        running = self._running()
        self._yielded[self.counter] = running if waiting is None else waiting | running
        self._loops[self.counter] = end
        self._next()

    def others(self) -> Iterator[tuple[int, Mask]]:
        """The groups that do not run now, each with the program counter where it is."""
        for groups in (self._ready, self._meetings, self._yielded):
            yield from groups.items()
        for resume, mask in self._parked.items():
            yield resume - 1, mask

    def merge(self) -> None:
        """Join the group that waits where the running group has arrived."""
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
        self.limit = min(self._ready, key=key, default=_NEVER)
        if order is not None and self._ready:
            self.limit = order.limit(self.counter, self.limit)
        self.mask = None if self._full and not self._ready and bool(mask.all()) else mask

    def _next(self) -> bool:
        if not self._ready and self._meetings:
            self._meet()
        if not self._ready and self._parked:
            # No lane can run: every live lane waits, so the barriers open; but those of blocks
            # that have lanes on their way to one stay shut, unless these wait in vain.
            opener = self._opener or _release_all
            staying: dict[int, Mask] = {}
            opening = self._parked
            if self._yielded and (self._opener is None or not self.rounds_in_vain):
                held = self._blocks_with(self._yielded)
                staying, opening = (
                    _select_lanes(self._parked, held),
                    _select_lanes(self._parked, ~held),
                )
            if opening:
                self._ready, opening = opener(opening)
                self.rounds_in_vain = 0
            self._parked = _merge_groups(staying, opening)
        if not self._ready and self._yielded:
            woken = self._ready = self._awake(self._yielded)
            self._yielded = {
                at: asleep
                for at, mask in self._yielded.items()
                if (asleep := mask & ~woken[at] if at in woken else mask).any()
            }
            self.rounds_in_vain += 1
        if not self._ready:
            return False
        self._dequeue()
        return True

    def _meet(self) -> None:
        """Let groups go on that have waited for other lanes of their warps."""
        assert self._meeting is not None
        held = np.zeros_like(self.live)
        if self._yielded and not self.rounds_in_vain:
            held = self._blocks_with(self._yielded)
        gone, self._meetings = self._meeting(self._meetings, held)
        self._ready = {counter + 1: mask for counter, mask in gone.items()}

    def _progress(self) -> None:
        """Note that the running group is elsewhere than where groups have yielded."""
        if self.rounds_in_vain and not any(
            start <= self.counter <= end for start, end in self._loops.items()
        ):
            self.rounds_in_vain = 0

    def _blocks_with(self, groups: dict[int, Mask]) -> Mask:
        """All lanes of the blocks that have lanes in some groups."""
        lanes = np.logical_or.reduce(list(groups.values())).reshape(-1, self._block_lanes)
        return np.repeat(lanes.any(axis=1), self._block_lanes)


def _select_lanes(groups: dict[int, Mask], lanes: Mask) -> dict[int, Mask]:
    return {counter: mask & lanes for counter, mask in groups.items() if (mask & lanes).any()}


def _merge_groups(a: dict[int, Mask], b: dict[int, Mask]) -> dict[int, Mask]:
    joined = dict(a)
    for counter, mask in b.items():
        joined[counter] = joined[counter] | mask if counter in joined else mask
    return joined


def _release_all(parked: dict[int, Mask]) -> tuple[dict[int, Mask], dict[int, Mask]]:
    return parked, {}


def active_warps(mask: Mask) -> Any:
    """Which warps have a lane in `mask`: bool, shape (warps,)."""
    words = mask.view(np.uint64).reshape(-1, WARP_SIZE // 8)  # 8 lanes a word: twice as fast
    return (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0

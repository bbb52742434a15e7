"""Who runs next: lanes grouped by program counter, the lowest first.

Lanes that part at a branch become groups. Running the group with the lowest program counter
makes lanes meet again where their paths join, with no analysis of the program: compilers lay
code out so that a join lies behind both of its arms. `bar.sync` parks a group until no other
lane can run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.properties import WARP_SIZE

Mask = NDArray[np.bool_]

Opener: TypeAlias = Callable[[dict[int, Mask]], tuple[dict[int, Mask], dict[int, Mask]]]
"""Says which of the parked groups go on, and which wait on, when no other lane can run."""

_NEVER = 1 << 60  # a program counter behind every instruction


class Schedule:
    """The groups of lanes of one chunk of blocks.

    Attributes:
        counter: Program counter of the running group.
        mask: Its lanes; None when every lane of the chunk runs, which is the fast path.
        limit: Where the running group meets another one, at the latest.
    """

    def __init__(self, live: Mask, opener: Opener | None = None) -> None:
        """Begin with the lanes that are threads; without an opener all barriers open at once."""
        self._opener = opener
        self._live = live.copy()
        self._full = bool(live.all())
        self._ready: dict[int, Mask] = {}
        self._parked: dict[int, Mask] = {}
        self.counter = 0
        self.mask: Mask | None = None if self._full else self._live.copy()
        self.limit = _NEVER

    def jump(self, counter: int) -> None:
        """Send the whole running group to another program counter."""
        self.counter = counter
        if self._ready:
            self._enqueue(counter, self._running())
            self._dequeue()

    def split(self, taken: Mask, target: int) -> None:
        """Send the lanes in `taken` to `target` and the others to the next instruction."""
        running = self._running()
        self._enqueue(target, taken & running)
        self._enqueue(self.counter + 1, running & ~taken)
        self._dequeue()

    def exit(self) -> bool:
        """End the running group; False when no lane is left."""
        if self.mask is None:
            self._live[:] = False
        else:
            self._live &= ~self.mask
        self._full = False
        return self._next()

    def park(self) -> bool:
        """Hold the running group at a barrier before the next instruction."""
        if self._opener is None and (
            self.mask is None
            or (not self._ready and not self._parked and np.array_equal(self.mask, self._live))
        ):
            self.counter += 1  # everyone is here
            return True
        resume = self.counter + 1
        waiting = self._parked.get(resume)
        running = self._running()
        self._parked[resume] = running if waiting is None else waiting | running
        return self._next()

    def merge(self) -> None:
        """Join the group that waits where the running group has arrived."""
        self._enqueue(self.counter, self._running())
        self._dequeue()

    def _running(self) -> Mask:
        return self._live.copy() if self.mask is None else self.mask

    def _enqueue(self, counter: int, mask: Mask) -> None:
        waiting = self._ready.get(counter)
        self._ready[counter] = mask if waiting is None else waiting | mask

    def _dequeue(self) -> None:
        self.counter = min(self._ready)
        mask = self._ready.pop(self.counter)
        self.limit = min(self._ready, default=_NEVER)
        self.mask = None if self._full and not self._ready and bool(mask.all()) else mask

    def _next(self) -> bool:
        if not self._ready:
            # No lane can run: every live lane of every block waits, so the barriers open.
            opener = self._opener or _open_all
            self._ready, self._parked = opener(self._parked)
        if not self._ready:
            return False
        self._dequeue()
        return True


def _open_all(parked: dict[int, Mask]) -> tuple[dict[int, Mask], dict[int, Mask]]:
    return parked, {}


def warps_of(mask: Mask) -> Any:
    """Which warps have a lane in `mask`: bool, shape (warps,)."""
    return mask.reshape(-1, WARP_SIZE).any(axis=1)

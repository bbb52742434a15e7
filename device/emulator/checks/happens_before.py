"""Which accesses of a block lie before which: what each thread knows to be over.

Time is the number of the memory instruction. A barrier of the whole block makes everything before
it known to all its threads, so one time a block says it. A barrier of some of them, such as
`__syncwarp`, needs one time for each pair; these tables are made only for programs that have one.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


class HappensBefore:
    """What the threads of a chunk of blocks know of each other.

    Attributes:
        time: Of the last access.
        since: For each lane, the time up to which it knows all of its block.
        group: Lanes among which some may wait for each other.
    """

    def __init__(self, lanes: int, block: int, group: int, time: int) -> None:
        """Begin a chunk.

        Args:
            lanes: How many it has.
            block: Lanes of a block.
            group: Lanes among which some may wait for each other: a warp's, a block's, or 0.
            time: Of the last access before it.
        """
        self.time = time
        self.block_clock = np.full(lanes, time, np.int64)
        self._block, self.group = block, group
        groups = lanes // group if group else 0
        self._known = np.zeros((groups, group, group), np.int32)

    def meet_block(self, blocks: Lanes) -> None:
        """Whole blocks, given as a mask of blocks, wait for all their threads."""
        self.block_clock.reshape(-1, self._block)[blocks] = self.time

    def meet(self, members: Lanes) -> None:
        """In each group the members, given as a mask of lanes, wait for each other."""
        here = members.reshape(-1, self.group)
        groups = np.flatnonzero(here.any(axis=1))
        here, known = here[groups], self._known[groups]
        # What one member knew of others before, all of them know now.
        merged = np.where(here[:, :, None], known, 0).max(axis=1)
        merged = np.where(here, self.time, merged)
        self._known[groups] = np.where(here[:, :, None], merged[:, None, :], known)

    def groups(self, lanes: Lanes) -> list[Lanes]:
        """Cut lanes, in rising order, into those of each group."""
        return np.split(lanes, np.flatnonzero(np.diff(lanes // self.group)) + 1)

    def pairwise_clock(self, lanes: Lanes, others: Lanes) -> Lanes:
        """Until when each lane knows another of its block."""
        since = self.block_clock[lanes]
        if not self.group:
            return since
        group = lanes // self.group
        together = np.flatnonzero(group == others // self.group)
        pairs = self._known[
            group[together], lanes[together] % self.group, others[together] % self.group
        ]
        since[together] = np.maximum(since[together], pairs)
        return since

    def newer_clocks(self, lane: int) -> list[tuple[int, int]]:
        """Lanes that a lane knows of more than its whole block, with the time of each."""
        if not self.group:
            return []
        group, member = divmod(lane, self.group)
        row = self._known[group, member]
        later = np.flatnonzero(row > self.block_clock[lane])
        return [(group * self.group + int(each), int(row[each])) for each in later]

"""Happens-before order of accesses within a block: what each thread knows to be complete.

Time counts memory instructions. A barrier of the whole block makes all earlier accesses known to
all its threads, so one time per lane suffices. A barrier of some threads, such as `__syncwarp`,
needs one time per pair of lanes. These tables are made only for programs with such a barrier.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


class HappensBefore:
    """The happens-before clocks of the threads of a chunk of blocks.

    Attributes:
        clock: The time of the last access, shape (1,).
        block_clock: Per lane, the time up to which it knows the accesses of its whole block.
        group: The size of the groups of lanes that may wait for each other; 0 for none.
        group_clocks: Per group, the time up to which its lanes know the accesses of all of them.
        pair_clocks: Per group, the time up to which each lane knows the accesses of each other one,
            where that is later; shape (groups, group, group).
    """

    def __init__(self, lanes: int, block: int, group: int, time: int) -> None:
        """Begin a chunk.

        Args:
            lanes: The number of lanes.
            block: Lanes per block.
            group: Lanes per group that may wait for each other: a warp's, a block's, or 0.
            time: The time of the last access before the chunk.
        """
        self.clock = np.array([time], np.int64)
        self.block_clock = np.full(lanes, time, np.int64)
        self._block, self.group = block, group
        groups = lanes // group if group else 0
        self.group_clocks = np.zeros(groups, np.int64)
        self.pair_clocks = np.zeros((groups, group, group), np.int32)

    @property
    def time(self) -> int:
        """The time of the last access."""
        return int(self.clock[0])

    @time.setter
    def time(self, time: int) -> None:
        self.clock[0] = time

    def synchronize_blocks(self, blocks: Lanes) -> None:
        """Synchronize all threads of blocks, given as a mask or by index."""
        self.block_clock.reshape(-1, self._block)[blocks] = self.time

    def known_by(self, members: Lanes) -> Lanes:
        """What members of one group, given as a mask of lanes, know together of each of its lanes.

        Returns:
            Times, shape (group,).
        """
        by_group = members.reshape(-1, self.group)
        (group,) = np.flatnonzero(by_group.any(axis=1))
        known = self.pair_clocks[group, by_group[group]].max(axis=0)
        known[by_group[group]] = self.time
        return np.asarray(known)

    def learn(self, members: Lanes, known: Lanes) -> None:
        """Let members of one group, given as a mask of lanes, know what others of it knew."""
        by_group = members.reshape(-1, self.group)
        (group,) = np.flatnonzero(by_group.any(axis=1))
        clocks = self.pair_clocks[group]
        clocks[by_group[group]] = np.maximum(clocks[by_group[group]], known)

    def synchronize(self, members: Lanes) -> None:
        """Synchronize, in each group, the members, given as a mask of lanes."""
        by_group = members.reshape(-1, self.group)
        whole = by_group.all(axis=1)
        self.group_clocks[whole] = self.time
        groups = np.flatnonzero(by_group.any(axis=1) & ~whole)
        joined, clocks = by_group[groups], self.pair_clocks[groups]
        # All members now know the accesses that one of them knew before.
        merged = np.where(joined[:, :, None], clocks, 0).max(axis=1)
        merged = np.where(joined, self.time, merged)
        self.pair_clocks[groups] = np.where(joined[:, :, None], merged[:, None, :], clocks)

    def groups(self, lanes: Lanes) -> list[Lanes]:
        """Split lanes, in rising order, by group."""
        return np.split(lanes, np.flatnonzero(np.diff(lanes // self.group)) + 1)

    def pairwise_clock(self, lanes: Lanes, others: Lanes) -> Lanes:
        """The time up to which each lane knows the accesses of another lane of its block."""
        clocks = self.block_clock[lanes]
        if not self.group:
            return clocks
        group = lanes // self.group
        same = np.flatnonzero(group == others // self.group)
        pairs = self.pair_clocks[group[same], lanes[same] % self.group, others[same] % self.group]
        pairs = np.maximum(pairs, self.group_clocks[group[same]])
        clocks[same] = np.maximum(clocks[same], pairs)
        return clocks

    def newer_clocks(self, lane: int) -> list[tuple[int, int]]:
        """The lanes that a lane knows more of than of its whole block, with their times."""
        if not self.group:
            return []
        group, member = divmod(lane, self.group)
        clocks = np.maximum(self.pair_clocks[group, member], self.group_clocks[group])
        newer = np.flatnonzero(clocks > self.block_clock[lane])
        return [(group * self.group + int(other), int(clocks[other])) for other in newer]

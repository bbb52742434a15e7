"""Happens-before order of accesses within a block or cluster: what a thread knows to be complete.

Time counts memory instructions. A barrier of the whole block makes all earlier accesses known to
all its threads, so one time per lane suffices. A barrier of some threads, such as `__syncwarp`,
needs one time per pair of lanes. These tables are made only for programs with such a barrier.
A thread that has waited at the barrier of its cluster knows the accesses of every thread of the
cluster up to the arrival of that one (`ClusterOrder`), or, where it arrived `.relaxed`, up to its
last fence before. A fence also releases what its thread knows of others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.codegen.check_layout import THREAD_BITS
from memlab.device.emulator.machine.threads import Threads, cluster_peers, cluster_ranks


class ClusterOrder:
    """What the lanes of a chunk know of others by the barriers of their clusters.

    The phases of a barrier are counted from 1 on. When a lane arrives at one, it has waited for the
    one before, so that the times of two phases suffice.

    Attributes:
        cluster: By lane, the number of its cluster.
        arrivals: How often each lane has arrived.
        passed: The phases that each lane knows to be over.
        released: By lane, the time up to which it has released its accesses.
        covered: By lane, the time up to which other lanes of its block have released its accesses.
    """

    def __init__(self, cluster: Lanes, block: int) -> None:
        """Begin a chunk.

        Args:
            cluster: The number of each lane's cluster.
            block: Lanes per block.
        """
        self.cluster, self._block = cluster, block
        self.arrivals, self.passed, self.released, self.covered = np.zeros(
            (4, len(cluster)), np.int64
        )
        # The same times at the arrivals, by the parity of the phase.
        self._released, self._covered = np.zeros((2, 2, len(cluster)), np.int64)

    def arrive(self, lanes: Lanes) -> None:
        """Lanes, as a mask, arrive."""
        self.arrivals += lanes
        for parity in range(2):
            arriving = lanes & (self.arrivals & 1 == parity)
            self._released[parity, arriving] = self.released[arriving]
            blocks = arriving.reshape(-1, self._block).any(axis=1)
            now = self.covered.reshape(-1, self._block)[blocks]
            self._covered[parity].reshape(-1, self._block)[blocks] = now

    def arrival_times(self, phases: Lanes, lanes: Lanes | slice = slice(None)) -> Lanes:
        """The times up to which lanes' accesses were released at phases, one for each.

        They are 0 where lanes have not arrived.
        """
        released = np.maximum(self._released, self._covered)
        times = np.where(phases & 1, released[1, lanes], released[0, lanes])
        return np.asarray(np.where((phases > 0) & (self.arrivals[lanes] >= phases), times, 0))

    def lacking(self, waiting: Lanes, lanes: Lanes) -> Lanes:
        """Those of some lanes that have not arrived as often as waiting ones of their cluster.

        Both are masks.
        """
        most = np.zeros(self.cluster.max(initial=0) + 1, np.int64)
        np.maximum.at(most, self.cluster[waiting], self.arrivals[waiting])
        return np.asarray(lanes & (self.arrivals < most[self.cluster]))

    def may_pass(self, waiting: Lanes, live: Lanes) -> Lanes:
        """Those of some waiting lanes for whose phase all live ones of their cluster have arrived.

        All are masks.
        """
        least = np.full(self.cluster.max(initial=0) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, self.cluster[live], self.arrivals[live])
        return np.asarray(waiting & (least[self.cluster] >= self.arrivals))

    def knows(self, lanes: Lanes, others: Lanes, times: Lanes) -> Lanes:
        """Whether each lane knows the access of another lane at a time."""
        reached = times <= self.arrival_times(self.passed[lanes], others)
        return np.asarray((self.cluster[lanes] == self.cluster[others]) & reached)


class RemoteAccesses:
    """The last access of each lane to the shared memory of each other block of its cluster."""

    def __init__(self, threads: Threads) -> None:
        """Begin a chunk."""
        cluster = threads.grid.cluster
        self._block = np.arange(threads.lanes) // threads.grid.padded_threads
        self._peers = cluster_peers(threads.blocks, cluster)
        self._own = cluster_ranks(threads.blocks, cluster)[self._block]
        shape = threads.grid.cluster_blocks, threads.lanes
        self._phase = np.full(shape, -1, np.int64)  # how often the lane had arrived before
        self._times, self._steps, self._addresses = np.zeros((3, *shape), np.int64)

    def note(
        self, ranks: Lanes, lanes: Lanes, addresses: Lanes, step: int, order: HappensBefore
    ) -> None:
        """Note the accesses of some lanes to the blocks of some ranks."""
        remote = ranks != self._own[lanes]
        if not remote.any() or order.clusters is None:
            return
        at = ranks[remote], lanes[remote]
        self._phase[at] = order.clusters.arrivals[lanes[remote]]
        self._times[at], self._steps[at] = order.time, step
        self._addresses[at] = addresses[remote]

    def to_ended_blocks(
        self, order: HappensBefore, release_acquire: ReleaseAcquireOrder | None, numbers: Lanes
    ) -> Iterator[tuple[int, Lanes, Lanes]]:
        """The accesses that no thread of the other block has waited for before it ended.

        Args:
            order: The order of the chunk, whose lanes have all ended.
            release_acquire: The order by fences and atomics, where it is followed.
            numbers: The threads of the lanes.

        Yields:
            An instruction; the addresses and the lanes of its accesses.
        """
        assert order.clusters is not None
        waited = np.zeros(len(self._peers), np.int64)  # by block: the phases that its threads know
        np.maximum.at(waited, self._block, order.clusters.passed)
        ranks, lanes = np.nonzero(self._phase >= 0)
        blocks = self._peers[self._block[lanes], ranks]
        late = self._phase[ranks, lanes] >= waited[blocks]
        ranks, lanes, blocks = ranks[late], lanes[late], blocks[late]
        if release_acquire is not None and len(lanes):
            first = int(numbers[0]) >> THREAD_BITS
            times = self._times[ranks, lanes]
            late = ~np.array(
                [
                    release_acquire.block_knows(first + block, int(numbers[lane]), time)
                    for block, lane, time in zip(
                        blocks.tolist(), lanes, times.tolist(), strict=True
                    )
                ]
            )
            ranks, lanes = ranks[late], lanes[late]
        steps = self._steps[ranks, lanes]
        for step in np.unique(steps).tolist():
            chosen = steps == step
            yield step, self._addresses[ranks, lanes][chosen], lanes[chosen]


class HappensBefore:
    """The happens-before clocks of the threads of a chunk of blocks.

    Attributes:
        clock: The time of the last access, shape (1,).
        block_clock: Per lane, the time up to which it knows the accesses of its whole block.
        group: The size of the groups of lanes that may wait for each other; 0 for none.
        group_clocks: Per group, the time up to which its lanes know the accesses of all of them.
        pair_clocks: Per group, the time up to which each lane knows the accesses of each other one,
            where that is later; shape (groups, group, group).
        clusters: The order by the barriers of clusters; None without clusters.
    """

    def __init__(
        self, lanes: int, block: int, group: int, time: int, clusters: Lanes | None = None
    ) -> None:
        """Begin a chunk.

        Args:
            lanes: The number of lanes.
            block: Lanes per block.
            group: Lanes per group that may wait for each other: a warp's, a block's, or 0.
            time: The time of the last access before the chunk.
            clusters: By lane, the number of its cluster; None where each block is one.
        """
        self.clusters = None if clusters is None else ClusterOrder(clusters, block)
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
        if self.clusters is not None:
            by_block = self.clusters.passed.reshape(-1, self._block)
            by_block[blocks] = by_block[blocks].max(axis=1, keepdims=True)

    def release_to_cluster(self, lanes: Lanes, cumulative: bool) -> None:
        """Lanes, as a mask, release their accesses to their clusters, by a fence or an arrival.

        With `cumulative`, they also release what they know of other lanes.
        """
        clusters = self.clusters
        if clusters is None:
            return
        clusters.released[lanes] = self.time
        if not cumulative:
            return
        by_block = clusters.covered.reshape(-1, self._block)
        known = np.where(lanes, self.block_clock, 0).reshape(-1, self._block).max(axis=1)
        np.maximum(by_block, known[:, None], out=by_block)
        if not self.group:
            return
        for group in np.unique(np.flatnonzero(lanes) // self.group).tolist():
            inside = slice(group * self.group, (group + 1) * self.group)
            members = np.zeros_like(lanes)
            members[inside] = lanes[inside]
            others = np.maximum(self.known_by(members), self.group_clocks[group])
            others[lanes[inside]] = 0
            np.maximum(clusters.covered[inside], others, out=clusters.covered[inside])

    def pass_cluster_barrier(self, lanes: Lanes) -> None:
        """Lanes, as a mask, go on behind the barrier of their cluster at which they arrived."""
        clusters = self.clusters
        assert clusters is not None
        clusters.passed[lanes] = np.maximum(clusters.passed, clusters.arrivals)[lanes]
        # All lanes of a block that have arrived make its time known; others know it pair by pair.
        arrived = clusters.arrival_times(clusters.arrivals).reshape(-1, self._block)
        known = np.repeat(arrived.min(axis=1), self._block)
        self.block_clock[lanes] = np.maximum(self.block_clock, known)[lanes]

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
        whole = np.asarray(by_group.all(axis=1))
        self.group_clocks[whole] = self.time
        joined = by_group & ~whole[:, None]
        lanes = np.flatnonzero(joined)
        if not lanes.size:
            return
        # All members now know the accesses that one of them knew before.
        groups, first, at = np.unique(lanes // self.group, return_index=True, return_inverse=True)
        clocks = self.pair_clocks.reshape(-1, self.group)  # a row per lane
        merged = np.maximum.reduceat(clocks[lanes], first)
        merged[joined[groups]] = self.time
        clocks[lanes] = merged[at]

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
